package soak

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/state"
)

// A belief is what the model knows of one setting.
type belief struct {
	base    map[string]bool // what it may be while rdmatune leaves it alone
	pending map[string]bool // what others wrote over rdmatune's value and nobody has seen healed
	owned   bool            // rdmatune had set it when things were last quiet
	kept    bool            // somebody's value was left in place, and the original may be remembered
	unsure  bool            // rdmatune may have set it, or restored it, or not yet
}

// A process is one that the test started.
type process struct {
	comm  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// A world is the machine as the model has it: what is wanted, what bad conditions last, and
// what each setting may be.
type world struct {
	k        *kernel
	dir      string // the test's files
	specPath string
	stateDir string // on a file system of its own
	logPath  string

	d       *daemon           // nil: none runs
	stopped bool              // by SIGSTOP
	told    *reconcile.Status // last

	spec      variant // the last valid one that was written
	invalid   bool    // the file is not valid now
	digest    string  // of it
	unsettled bool    // a valid spec was written, and it was not seen that it is in force
	noSpec    bool    // the daemon was started while the file was invalid

	full, readonly bool            // the state's file system
	unbound        bool            // eth1 has no driver
	down           map[string]bool // cards
	offline        bool            // CPU 3

	adversary *exec.Cmd
	attacked  setting

	processes map[int]*process
	beliefs   map[setting]*belief
	defaults  map[bool]map[setting]string // by whether CPU 3 is offline: what a driver that is bound anew leaves
	hits      map[string][]time.Time      // rewrites of each group, as far as they count for the daemon's patience
}

// blocked reports whether the daemon cannot write its state.
func (w *world) blocked() bool { return w.full || w.readonly }

// frozen reports whether the trainer's workload cannot be resolved now.
func (w *world) frozen() bool {
	return w.spec.trainer != nil && (w.unbound || w.offline && slices.Contains(cpus(w.spec.trainer.pin), 3))
}

// wanted is what the spec asks for.
func (w *world) wanted() map[setting]string {
	want := map[setting]string{}
	vectorsOf := func(card, cpu string) {
		for i := range vectors {
			want[setting(fmt.Sprintf("irq %s/%d", card, i))] = cpu
		}
	}
	pin := map[string]string{}
	if t := w.spec.trainer; t != nil {
		pin["trainer"] = t.pin
		vectorsOf("eth1", first(t.irq))
		want["usecs eth1"] = strconv.Itoa(t.usecs)
		want["dma"] = strconv.Itoa(t.latency)
		for _, c := range cpus(t.pin) {
			khz := strconv.Itoa(t.mhz * 1000)
			for kind, v := range map[string]string{"governor": t.governor, "min": khz, "max": khz, "idle": strconv.Itoa(t.idle)} {
				want[setting(fmt.Sprintf("%s cpu%d", kind, c))] = v
			}
		}
	}
	if s := w.spec.server; s != nil {
		pin["server"] = s.pin
		vectorsOf("eth0", first(s.irq))
		want["usecs eth0"] = strconv.Itoa(s.usecs)
	}
	for pid, p := range w.processes {
		if list, ok := pin[p.comm]; ok {
			want[setting(fmt.Sprintf("pid %d", pid))] = list
		}
	}
	return want
}

// trainers reports whether a setting is one that the trainer's workload wants or had.
func (w *world) trainers(s setting) bool {
	switch s.kind() {
	case "pid":
		pid, _ := strconv.Atoi(s.of())
		return w.processes[pid] != nil && w.processes[pid].comm == "trainer"
	case "irq", "usecs":
		return strings.HasPrefix(s.of(), "eth1")
	}
	return true // dma, frequencies and idle states are the trainer's alone
}

// there reports whether a setting can be read now.
func (w *world) there(s setting) bool {
	switch s.kind() {
	case "irq", "usecs":
		return !w.unbound || !strings.HasPrefix(s.of(), "eth1")
	case "governor", "min", "max":
		return !w.offline || s.of() != "cpu3"
	}
	return true
}

// asserted reports whether the daemon must have given a setting what the spec says.
func (w *world) asserted(s setting) bool {
	switch {
	case w.d == nil || w.stopped || w.noSpec || w.blocked() || !w.there(s):
		return false
	case w.frozen() && w.trainers(s):
		return false
	case w.adversary != nil && s.group() == w.attacked.group():
		return false
	case s.kind() == "irq":
		card, _, _ := strings.Cut(s.of(), "/")
		return !w.down[card] // its vectors have no handler
	}
	return true
}

// problems are what status must say, as parts of its texts, and what it may say beside.
func (w *world) problems() (must, may []string) {
	if w.invalid {
		must = append(must, "the spec is invalid")
	}
	if w.noSpec {
		must = append(must, "nothing is healed until the spec is valid")
	}
	if w.frozen() && !w.noSpec {
		must = append(must, "left as they are")
	}
	for s, b := range w.beliefs {
		card, _, _ := strings.Cut(s.of(), "/")
		if (b.owned || b.kept || len(b.pending) > 0) && (!w.there(s) || w.down[card]) { // what is away, or has no handler, cannot be restored
			may = append(may, "its original is kept", "its CPUs are offline")
		}
	}
	if w.adversary != nil {
		may = append(may, "is not healed")
	}
	if w.blocked() {
		may = append(may, "no space left", "read-only file system", "reserve", "journal", "state", "disk", "readonly", "first look", "nothing was changed", "left as they are", "is made next")
	}
	return must, may
}

// errNotYet is that something does not hold, and may hold in a moment.
type errNotYet string

func (e errNotYet) Error() string { return string(e) }

func notYet(format string, args ...any) error { return errNotYet(fmt.Sprintf(format, args...)) }

// settings are those of the model, in one order.
func (w *world) settings() []setting { return slices.Sorted(maps.Keys(w.beliefs)) }

// settle takes what holds now for what is known.
func (w *world) settle() error {
	if w.d != nil && !w.stopped && !w.noSpec && !w.blocked() {
		w.unsettled = false
	}
	doc, err := state.Load(w.stateDir)
	if err != nil {
		return err
	}
	remembered := map[setting]bool{}
	for _, e := range doc.Entries {
		if s, _, err := w.entry(e); err == nil {
			remembered[s] = true
		}
	}
	want := w.wanted()
	for _, s := range w.settings() {
		b := w.beliefs[s]
		_, wants := want[s]
		switch {
		case !w.asserted(s):
		case wants:
			b.owned, b.unsure = true, false
			clear(b.pending)
		case s != "dma":
			got := w.k.read(s)
			// What others had written last is left in place, and the original remembered.
			b.kept = remembered[s]
			if b.kept {
				b.base[got] = true
			} else {
				b.base = map[string]bool{got: true}
			}
			clear(b.pending)
			b.owned, b.unsure = false, false
		default:
			b.owned = false
		}
	}
	return nil
}

// bases is what each setting may be while it is nobody's.
func (w *world) bases() map[setting]string {
	out := map[setting]string{}
	for s, b := range w.beliefs {
		out[s] = fmt.Sprint(slices.Sorted(maps.Keys(b.base)))
	}
	return out
}

// steady reports whether a setting is surely rdmatune's or surely nobody's, so that it is
// known what a write to it means.
func (w *world) steady(s setting) bool {
	_, wants := w.wanted()[s]
	return wants == w.beliefs[s].owned
}

// wrote notes that somebody else wrote a value.
func (w *world) wrote(s setting, value string) {
	b := w.beliefs[s]
	switch {
	case b.unsure:
		b.pending[value], b.base[value] = true, true
	case b.owned:
		b.pending[value] = true
	case b.kept:
		b.base[value] = true
	default:
		b.base = map[string]bool{value: true}
	}
}

// dropped notes that rdmatune is to give up settings: what others wrote last may stay.
func (w *world) dropped() {
	for _, b := range w.beliefs {
		if b.owned {
			maps.Copy(b.base, b.pending)
		}
	}
}

// unseen notes that the spec is to be another: what it wanted and was not seen in force
// rdmatune may have set all the same.
func (w *world) unseen() {
	for s := range w.wanted() {
		if b := w.beliefs[s]; b != nil && !b.owned {
			b.unsure = true
		}
	}
}

// hit counts a rewrite of a group and reports how many there were lately.
func (w *world) hit(s setting) { w.hits[s.group()] = append(w.hits[s.group()], time.Now()) }

func (w *world) recent(s setting) int {
	g := s.group()
	w.hits[g] = slices.DeleteFunc(w.hits[g], func(t time.Time) bool { return time.Since(t) > (contestedWindow+5)*time.Second })
	return len(w.hits[g])
}

// spawn starts a process by a name.
func (w *world) spawn(comm string) (int, error) {
	cmd := exec.Command(filepath.Join(w.dir, comm), "100000")
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	p := &process{comm: comm, cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // it is killed
		close(p.ended)
	}()
	w.processes[cmd.Process.Pid] = p
	w.beliefs[setting(fmt.Sprintf("pid %d", cmd.Process.Pid))] = &belief{base: map[string]bool{"0-3": true}, pending: map[string]bool{}}
	return cmd.Process.Pid, nil
}

func (w *world) kill(pid int) error {
	p := w.processes[pid]
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	delete(w.processes, pid)
	delete(w.beliefs, setting(fmt.Sprintf("pid %d", pid)))
	return nil
}
