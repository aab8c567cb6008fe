package soak

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/state"
)

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
	if !w.invalid && st.Spec.Digest != w.digest {
		return notYet("the daemon keeps the spec %s, which is now %s", st.Spec.Digest, w.digest)
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
	case (b.owned || b.unsure) && !w.asserted(s): // is to be restored when it can be
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
	// Once CPU 3 is back, a daemon completes what it restored meanwhile.
	return (w.cut(s) || s.kind() == "pid" && !w.asserted(s)) && (b.base["0-3"] || b.pending["0-3"]) && got == "0-2"
}

// cut reports whether the kernel cuts what is written to s.
func (w *world) cut(s setting) bool { return s.kind() == "pid" && w.offline }

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
		} else if !w.beliefs[s].kept && len(w.beliefs[s].pending) == 0 && !w.cut(s) {
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
