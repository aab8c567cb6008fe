package soak

import (
	"context"
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

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/state"
)

// A belief is what the model knows of one setting.
type belief struct {
	base    map[string]bool // what it may be while rdmatune leaves it alone
	pending map[string]bool // what others wrote over rdmatune's value and nobody has seen healed
	owned   bool            // rdmatune had set it when things were last quiet
	kept    bool            // somebody's value was left in place, and the original may be remembered
	unsure  bool            // rdmatune may have restored it, or not yet
}

// A process is one that the test started.
type process struct {
	comm  string
	cmd   *exec.Cmd
	ended chan struct{}
	// narrowed: CPU 3 was away while it lived. The kernel cuts a set that is written then
	// down to what is there, and gives nothing back.
	narrowed bool
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
		if b.owned && (!w.there(s) || w.down[card]) { // what is away, or has no handler, cannot be restored
			may = append(may, "its original is kept", "its CPUs are offline")
		}
	}
	if w.adversary != nil {
		may = append(may, "is not healed")
	}
	if w.blocked() {
		may = append(may, "no space left", "read-only file system", "reserve", "journal", "state", "disk", "readonly", "first look", "nothing was changed", "left as they are")
	}
	return must, may
}

// errNotYet is that something does not hold, and may hold in a moment.
type errNotYet string

func (e errNotYet) Error() string { return string(e) }

func notYet(format string, args ...any) error { return errNotYet(fmt.Sprintf(format, args...)) }

// holds checks the model against the kernel, the status and the state.
func (w *world) holds(ctx context.Context) error {
	want := w.wanted()
	wrong := false
	for _, s := range w.settings() {
		if err := w.check(s, want, &wrong); err != nil {
			return err
		}
	}
	if w.d == nil {
		if v := w.k.read("dma"); v != noLatency {
			return notYet("no daemon runs, and the machine's idle latency is bounded by %s", v)
		}
	}
	if w.d == nil || w.stopped {
		return nil
	}
	if !w.d.alive() {
		return fmt.Errorf("the daemon ended by itself: %v", w.d.err)
	}
	st, err := status(ctx)
	if err != nil {
		return notYet("status: %v", err)
	}
	w.told = st
	if st.PID != w.d.pid() {
		return notYet("pid %d answers instead of %d", st.PID, w.d.pid())
	}
	must, may := w.problems()
	if err := match(st.Problems, must, may); err != nil {
		return err
	}
	if wrong && w.blocked() && st.Healthy {
		return notYet("something is not as wanted and the state cannot be written, and the status says that all is well")
	}
	if len(must)+len(may) == 0 {
		if len(st.Contested)+len(st.Waiting) > 0 {
			return notYet("contested %v, waiting %v", st.Contested, st.Waiting)
		}
		if len(w.down) == 0 {
			return w.stateHolds(st, want)
		}
	}
	return nil
}

// check holds one setting against what it may be.
func (w *world) check(s setting, want map[setting]string, wrong *bool) error {
	b := w.beliefs[s]
	if !w.there(s) {
		return nil
	}
	value, wants := want[s]
	got := w.k.read(s)
	switch {
	case wants && w.asserted(s):
		if got != value {
			return notYet("%s is %q, wanted %q", s, got, value)
		}
	case wants:
		*wrong = *wrong || got != value && s.kind() != "irq"
	case b.owned && !w.asserted(s): // is to be restored when it can be
	case s == "dma": // see below: it depends on whether a daemon runs
	case !w.allowed(s, got):
		return notYet("%s is %q, and is nobody's: want one of %v", s, got, slices.Sorted(maps.Keys(b.base)))
	}
	return nil
}

// allowed reports whether a setting that is nobody's may have a value.
func (w *world) allowed(s setting, got string) bool {
	b := w.beliefs[s]
	if b.base[got] || b.pending[got] {
		return true
	}
	if s.kind() != "pid" {
		return false
	}
	pid, _ := strconv.Atoi(s.of())
	p := w.processes[pid]
	return p != nil && p.narrowed && (b.base["0-3"] || b.pending["0-3"]) && got == "0-2"
}

// match holds the problems of a status against what is expected.
func match(problems, must, may []string) error {
	has := func(text string, parts []string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(p)) })
	}
	for _, p := range problems {
		if !has(p, must) && !has(p, may) {
			return notYet("status: %s", p)
		}
	}
	for _, m := range must {
		if !slices.ContainsFunc(problems, func(p string) bool { return has(p, []string{m}) }) {
			return notYet("status has no problem %q: %q", m, problems)
		}
	}
	return nil
}

// stateHolds checks that the state says what the kernel says, and nothing that was begun is
// left over.
func (w *world) stateHolds(st *reconcile.Status, want map[setting]string) error {
	if _, err := os.Stat(filepath.Join(w.stateDir, "journal.jsonl")); err == nil {
		return notYet("all is well, and a journal is left")
	}
	doc, err := state.Load(w.stateDir)
	if err != nil {
		return err
	}
	for _, e := range doc.Entries {
		if e.BootID != st.BootID {
			continue
		}
		s, written, err := w.entry(e)
		if err != nil {
			return err
		}
		if w.beliefs[s] == nil {
			continue // of a process that has ended; the next plan drops it
		}
		_, wants := want[s]
		if wants {
			if got := w.k.read(s); got != written {
				return notYet("the state has %s = %q, the kernel %q", s, written, got)
			}
		} else if !w.beliefs[s].kept && len(w.beliefs[s].pending) == 0 {
			return notYet("the state has %s, which nobody wants", s)
		}
	}
	return nil
}

// entry names the setting of an entry of the state as this test does.
func (w *world) entry(e state.Entry) (setting, string, error) {
	text, ok := e.Written.AsText()
	if n, isInt := e.Written.AsInt(); isInt {
		text, ok = strconv.FormatInt(n, 10), true
	}
	name := e.Target.Name
	cpu := "cpu" + strings.TrimPrefix(strings.TrimPrefix(name, "policy"), "cpu")
	var s setting
	switch e.ID {
	case param.PinCPUs:
		s = setting("pid " + name)
	case param.Governor:
		s = setting("governor " + cpu)
	case param.MinKHz:
		s = setting("min " + cpu)
	case param.MaxKHz:
		s = setting("max " + cpu)
	case param.CStateLatency:
		s, text = setting("idle "+cpu), strings.TrimSuffix(text, "us")
	case param.DMAMaxLatency:
		s, text = "dma", strings.TrimSuffix(text, "us")
	case param.RXUsecs:
		s = setting("usecs " + name)
	case param.IRQCPUs:
		function, index, _ := strings.Cut(name, "/")
		for card, pci := range w.k.pci {
			if pci == function {
				s = setting("irq " + card + "/" + index)
			}
		}
	}
	if s == "" || !ok {
		return "", "", fmt.Errorf("the state has an entry that nobody asked for: %s %s %s", e.Target.Kind, name, e.ID)
	}
	return s, text, nil
}

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

// hit counts a rewrite of a group and reports how many there were lately.
func (w *world) hit(s setting) { w.hits[s.group()] = append(w.hits[s.group()], time.Now()) }

func (w *world) recent(s setting) int {
	g := s.group()
	w.hits[g] = slices.DeleteFunc(w.hits[g], func(t time.Time) bool { return time.Since(t) > 2*contestedWindow*time.Second })
	return len(w.hits[g])
}

// spawn starts a process by a name.
func (w *world) spawn(comm string) (int, error) {
	cmd := exec.Command(filepath.Join(w.dir, comm), "100000")
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	p := &process{comm: comm, cmd: cmd, ended: make(chan struct{}), narrowed: w.offline}
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
