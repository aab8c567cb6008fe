package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A kind is one kind of event. can reports whether it is possible now, do makes it happen
// and says what it did.
type kind struct {
	name   string
	weight int
	alone  bool // not together with others
	can    func(*soak) bool
	do     func(context.Context, *soak) (string, error)
}

// endTime bounds the end of a daemon; it restores, on a host that may be loaded.
const endTime = 2 * time.Minute

var (
	frequencies = []string{"1200000", "1800000", "2200000", "2600000", "3000000"}
	// lists are those of others; none is CPU 3 alone, from which the kernel itself takes
	// everything when it goes away.
	lists = []string{"0", "1", "2", "0-1", "1-2", "0-2"}
)

func always(*soak) bool { return true }

// up reports whether a daemon listens that has been seen to be well.
func up(s *soak) bool { return s.w.d != nil && s.w.d.seen && !s.w.stopped }

func (s *soak) calm() bool { return s.w.adversary == nil }

var kinds = []kind{
	{name: "irq", weight: 30, can: canWrite("irq"), do: writes("irq")},
	{name: "frequency", weight: 20, can: canWrite("max", "min"), do: writes("max", "min")},
	{name: "governor", weight: 8, can: canWrite("governor"), do: writes("governor")},
	{name: "idle", weight: 12, can: canWrite("idle"), do: writes("idle")},
	{name: "usecs", weight: 10, can: canWrite("usecs"), do: writes("usecs")},
	{name: "taskset", weight: 16, can: canWrite("pid"), do: writes("pid")},
	{name: "spawn", weight: 14, can: func(s *soak) bool { return len(s.w.processes) < 12 }, do: func(_ context.Context, s *soak) (string, error) {
		comm := pick(s.r, "trainer", "trainer", "server", "other")
		pid, err := s.w.spawn(comm)
		return fmt.Sprintf("%s is %d", comm, pid), err
	}},
	{name: "kill", weight: 12, can: func(s *soak) bool { return len(s.w.processes) > 0 }, do: func(_ context.Context, s *soak) (string, error) {
		pid := pick(s.r, slices.Sorted(maps.Keys(s.w.processes))...)
		return fmt.Sprintf("%s %d", s.w.processes[pid].comm, pid), s.w.kill(pid)
	}},
	{name: "burst", weight: 2, can: always, do: func(ctx context.Context, s *soak) (string, error) {
		n := 100 + s.r.IntN(300)
		return strconv.Itoa(n), run(ctx, "sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do nothing; i=$((i+1)); done", n))
	}},
	{name: "link down", weight: 4, can: func(s *soak) bool { return s.calm() && len(s.w.down) < 2 }, do: linkDown},
	{name: "link up", weight: 40, can: func(s *soak) bool { return len(s.w.down) > 0 }, do: linkUp},
	{name: "cpu off", weight: 4, can: func(s *soak) bool { return s.calm() && !s.w.offline }, do: cpuOff},
	{name: "cpu on", weight: 40, can: func(s *soak) bool { return s.w.offline }, do: cpuOn},
	{name: "unbind", weight: 3, can: func(s *soak) bool { return s.calm() && !s.w.unbound }, do: unbind},
	{name: "bind", weight: 40, can: func(s *soak) bool { return s.w.unbound }, do: bind},
	{name: "kill -9", weight: 6, can: func(s *soak) bool { return s.w.d != nil && s.kills }, do: kill9},
	{name: "out of memory", weight: 3, can: func(s *soak) bool { return up(s) && s.kills }, do: outOfMemory},
	{name: "term", weight: 5, can: func(s *soak) bool { return up(s) && s.kills && !s.w.unsettled }, do: term},
	{name: "start", weight: 60, can: func(s *soak) bool { return s.w.d == nil && s.canStart() }, do: start},
	{name: "hup", weight: 4, can: up, do: func(_ context.Context, s *soak) (string, error) { return "", s.w.d.signal(syscall.SIGHUP) }},
	{name: "stop", weight: 4, can: up, do: func(_ context.Context, s *soak) (string, error) {
		s.w.stopped = true
		return "", s.w.d.signal(syscall.SIGSTOP)
	}},
	{name: "cont", weight: 80, can: func(s *soak) bool { return s.w.stopped }, do: func(_ context.Context, s *soak) (string, error) {
		s.w.stopped = false
		return "", s.w.d.signal(syscall.SIGCONT)
	}},
	{name: "spec", weight: 14, can: (*soak).calm, do: newSpec},
	{name: "invalid", weight: 4, can: func(s *soak) bool { return s.calm() && !s.w.invalid && (s.w.d == nil || !s.w.unsettled) }, do: invalidSpec},
	{name: "valid", weight: 40, can: func(s *soak) bool { return s.w.invalid }, do: validSpec},
	{name: "fill", weight: 4, can: func(s *soak) bool { return s.calm() && !s.w.blocked() }, do: fill},
	{name: "free", weight: 40, can: func(s *soak) bool { return s.w.full }, do: func(_ context.Context, s *soak) (string, error) {
		s.w.full = false
		return "", os.Remove(filepath.Join(s.w.stateDir, "ballast"))
	}},
	{name: "read-only", weight: 4, can: func(s *soak) bool { return s.calm() && !s.w.blocked() }, do: readOnly},
	{name: "read-write", weight: 40, can: func(s *soak) bool { return s.w.readonly }, do: func(_ context.Context, s *soak) (string, error) {
		s.w.readonly = false
		return "", unix.Mount("", s.w.stateDir, "", unix.MS_REMOUNT, "")
	}},
	{name: "clock", weight: 4, can: always, do: func(_ context.Context, s *soak) (string, error) {
		by := time.Duration(s.r.Int64N(int64(200*time.Hour))) - 100*time.Hour
		return by.Round(time.Second).String(), s.setClock(by)
	}},
	{name: "plan", weight: 3, can: always, do: cliPlan},
	{name: "apply", weight: 3, can: always, do: cliApply},
	{name: "apply -9", weight: 3, can: always, do: cliApplyKilled},
	{name: "refused", weight: 2, can: up, do: cliRefused},
	{name: "adversary", weight: 2, alone: true, can: func(s *soak) bool { return s.calm() && up(s) && s.bright() }, do: adversary},
	{name: "adversary ends", weight: 60, can: func(s *soak) bool { return s.w.adversary != nil && (s.w.d == nil || up(s)) }, do: adversaryEnds},
}

// targets are the settings of some kinds that may be written now.
func (s *soak) targets(of []string) []setting {
	return slices.DeleteFunc(s.w.settings(), func(x setting) bool { return !slices.Contains(of, x.kind()) || !s.writable(x) })
}

func canWrite(of ...string) func(*soak) bool {
	return func(s *soak) bool { return len(s.targets(of)) > 0 }
}

// writes returns an event that lets another program change a setting of these kinds.
func writes(of ...string) func(context.Context, *soak) (string, error) {
	return func(ctx context.Context, s *soak) (string, error) {
		from := s.targets(of)
		want := s.w.wanted()
		if s.r.IntN(3) > 0 { // rather one that is to be healed
			managed := slices.DeleteFunc(slices.Clone(from), func(x setting) bool { _, wants := want[x]; return !wants })
			if len(managed) > 0 {
				from = managed
			}
		}
		x := pick(s.r, from...)
		var values []string
		switch x.kind() {
		case "irq", "pid":
			values = lists
		case "max", "min":
			values = frequencies
		case "governor":
			values = []string{"performance", "powersave", "ondemand", "schedutil"}
		case "idle":
			values = []string{"0", "1", "4", "9"}
		case "usecs":
			values = []string{"0", "3", "20", "70", "250"}
		}
		value := pick(s.r, values...)
		if err := s.w.k.write(ctx, x, value); err != nil {
			return "", err
		}
		s.w.hit(x)
		s.noteWrite(x, value)
		s.last = x
		return fmt.Sprintf("%s = %s", x, value), nil
	}
}

// writable reports whether the model knows what a write to a setting now leads to, and the
// daemon's patience is not tried.
func (s *soak) writable(x setting) bool {
	if !s.w.there(x) || s.w.recent(x) >= 2 || s.w.adversary != nil && x.group() == s.w.attacked.group() {
		return false
	}
	if x.kind() == "irq" {
		if card, _, _ := strings.Cut(x.of(), "/"); s.w.down[card] {
			return false
		}
	}
	for _, other := range s.w.settings() {
		if other.group() == x.group() && !s.w.steady(other) {
			return false
		}
	}
	return true
}

// noteWrite tells the model. A limit moves the other one of its policy as well.
func (s *soak) noteWrite(x setting, value string) {
	for _, other := range s.w.settings() {
		switch {
		case other == x && !s.w.beliefs[x].owned && x.kind() != "pid": // what the kernel made of it
			s.w.wrote(x, s.w.k.read(x))
		case other == x:
			s.w.wrote(x, value)
		case other.group() != x.group():
		case s.w.beliefs[other].owned && other.kind() != "governor":
			for _, f := range frequencies {
				s.w.wrote(other, f)
			}
		case !s.w.beliefs[other].owned:
			s.w.wrote(other, s.w.k.read(other))
		}
	}
	if b := s.w.beliefs[x]; b.owned && (x.kind() == "max" || x.kind() == "min") {
		for _, f := range frequencies {
			b.pending[f] = true
		}
	}
}

func linkDown(ctx context.Context, s *soak) (string, error) {
	card := pick(s.r, cards...)
	if s.w.down[card] || card == "eth1" && s.w.unbound {
		return "no link", nil
	}
	s.w.down[card] = true
	return card, run(ctx, "ip", "link", "set", card, "down")
}

func linkUp(ctx context.Context, s *soak) (string, error) {
	card := pick(s.r, slices.Sorted(maps.Keys(s.w.down))...)
	delete(s.w.down, card)
	// A vector that nobody has placed is placed anew when its handler is installed, and of
	// where somebody has placed it the part that is near the card is taken, if there is one.
	for x, b := range s.w.beliefs {
		if x.kind() != "irq" || !strings.HasPrefix(x.of(), card) {
			continue
		}
		if !b.owned {
			b.base[s.w.defaults[s.w.offline][x]] = true
		}
		for _, may := range []map[string]bool{b.base, b.pending} {
			for v := range maps.Clone(may) {
				if n := near(card, v); n != "" {
					may[n] = true
				}
			}
		}
	}
	return card, run(ctx, "ip", "link", "set", card, "up")
}

// near is the part of a CPU list that is on the NUMA node of a card, "" for none: eth0 has
// CPUs 0 and 1, eth1 the others.
func near(card, list string) string {
	var on []string
	for _, c := range cpus(list) {
		if (c < 2) == (card == "eth0") {
			on = append(on, strconv.Itoa(c))
		}
	}
	switch len(on) {
	case 0:
		return ""
	case 1:
		return on[0]
	}
	return on[0] + "-" + on[len(on)-1]
}

func cpuOff(_ context.Context, s *soak) (string, error) {
	s.w.offline = true
	return "", os.WriteFile("/sys/devices/system/cpu/cpu3/online", []byte("0"), 0)
}

func cpuOn(_ context.Context, s *soak) (string, error) {
	s.w.offline = false
	return "", os.WriteFile("/sys/devices/system/cpu/cpu3/online", []byte("1"), 0)
}

const nicDriver = "/sys/bus/pci/drivers/e1000e"

func unbind(_ context.Context, s *soak) (string, error) {
	s.w.unbound = true
	delete(s.w.down, "eth1")
	for x, b := range s.w.beliefs {
		if (x.kind() == "irq" || x.kind() == "usecs") && strings.HasPrefix(x.of(), "eth1") {
			*b = belief{base: map[string]bool{}, pending: map[string]bool{}}
		}
	}
	return "eth1", os.WriteFile(nicDriver+"/unbind", []byte(s.w.k.pci["eth1"]), 0)
}

func bind(ctx context.Context, s *soak) (string, error) {
	if err := os.WriteFile(nicDriver+"/bind", []byte(s.w.k.pci["eth1"]), 0); err != nil {
		return "", err
	}
	s.w.unbound = false
	for x, value := range s.w.defaults[s.w.offline] {
		if (x.kind() == "irq" || x.kind() == "usecs") && strings.HasPrefix(x.of(), "eth1") {
			s.w.beliefs[x].base[value] = true
		}
	}
	return "eth1", errors.Join(run(ctx, "ip", "link", "set", "eth1", "up"), run(ctx, "rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "eth1"))
}

// fill leaves no byte on the state's file system.
func fill(_ context.Context, s *soak) (_ string, err error) {
	f, err := os.Create(filepath.Join(s.w.stateDir, "ballast"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for size := 1 << 20; size > 0; {
		switch _, err := io.CopyN(f, zeros{}, int64(size)); {
		case errors.Is(err, unix.ENOSPC):
			size /= 16
		case err != nil:
			return "", err
		}
	}
	s.w.full = true
	return "", nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func readOnly(_ context.Context, s *soak) (string, error) {
	for range 50 {
		err := unix.Mount("", s.w.stateDir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		switch {
		case err == nil:
			s.w.readonly = true
			return "", nil
		case !errors.Is(err, unix.EBUSY):
			return "", err
		}
		time.Sleep(20 * time.Millisecond) // somebody writes there
	}
	return "busy", nil
}

// adversary rewrites one setting as fast as it can, until it is given up.
func adversary(_ context.Context, s *soak) (string, error) {
	var from []setting
	want := s.w.wanted()
	for _, x := range s.w.settings() {
		if _, wants := want[x]; wants && slices.Contains([]string{"irq", "idle", "max", "governor"}, x.kind()) && s.writable(x) && s.w.recent(x) == 0 {
			from = append(from, x)
		}
	}
	if len(from) == 0 {
		return "nothing to attack", nil
	}
	x := pick(s.r, from...)
	value := map[string]string{"irq": "0-1", "idle": "5", "max": "1200000", "governor": "ondemand"}[x.kind()]
	cmd := exec.Command("sh", "-c", "while :; do echo "+value+" > "+s.w.k.file(x)+"; done", "adversary")
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s.w.adversary, s.w.attacked = cmd, x
	s.noteWrite(x, value)
	for range contestedAfter {
		s.w.hit(x)
	}
	s.contest = true
	return fmt.Sprintf("%s = %s", x, value), nil
}

func adversaryEnds(_ context.Context, s *soak) (string, error) {
	if err := s.w.adversary.Process.Kill(); err != nil {
		return "", err
	}
	_ = s.w.adversary.Wait() // killed
	s.w.adversary = nil
	if s.w.d == nil {
		return "", nil
	}
	return "hup", s.w.d.signal(syscall.SIGHUP)
}
