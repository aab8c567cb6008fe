package reconcile

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

const tail = `workload.w.guard["tail"]`

// owing is a plan with a guard on each of two workloads, of which those at these addresses
// are owed.
func owing(owed ...string) *plan.Plan {
	return &plan.Plan{Base: &state.Document{Unmeasured: owed}, Guards: []plan.Guard{{Workload: "w", Name: "tail"}, {Workload: "v", Name: "tail"}}}
}

// TestDebts: a guard without a verdict is measured at once, then later and later, and at
// once again after a signal, a change of its workload, or when it is owed anew.
func TestDebts(t *testing.T) {
	d := debts{}
	now := time.Unix(1_000_000, 0)
	p := owing(tail)
	chosen := func() bool { return len(d.choose(now, p)) > 0 }
	unmeasured := experiment.Guard{Workload: "w", Name: "tail", Verdict: experiment.GuardNotMeasured, Text: "nobody answers"}
	d.keep(p.Base.Unmeasured)
	for i, pause := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		if !chosen() {
			t.Fatalf("try %d: not chosen when it is due", i)
		}
		if news := d.note(now, unmeasured); news != (i == 0) {
			t.Errorf("try %d: news %v", i, news)
		}
		if at := d.due(p); !at.Equal(now.Add(pause)) {
			t.Errorf("try %d: due %v after, want %v", i, at.Sub(now), pause)
		}
		now = now.Add(pause - time.Second)
		if chosen() {
			t.Errorf("try %d: chosen before its time", i)
		}
		now = now.Add(time.Second)
	}
	d.note(now, unmeasured)
	change := plan.Change{Change: param.Change{Workload: "w", Action: param.Update}}
	for what, test := range map[string]struct {
		change plan.Change
		want   bool
	}{
		"its workload":            {change, true},
		"another":                 {plan.Change{Change: param.Change{Workload: "v", Action: param.Update}}, false},
		"a restore of its own":    {plan.Change{Change: param.Change{Workload: "w", Action: param.Restore}}, false},
		"nothing of any workload": {plan.Change{}, false},
	} {
		p.Changes = []plan.Change{test.change}
		if got := slices.ContainsFunc(d.choose(now, p), func(g plan.Guard) bool { return g.Workload == "w" }); got != test.want {
			t.Errorf("a change of %s: chosen %v", what, got)
		}
	}
	p.Changes = nil
	d.forget()
	if !chosen() || !d.note(now, unmeasured) || d[tail].pause != firstRemeasure {
		t.Error("after a signal it is not tried and told anew")
	}
	if news := d.note(now, experiment.Guard{Workload: "w", Name: "tail", Verdict: experiment.GuardBreached, Text: "p99 2ms > 1ms"}); !news || !d[tail].breached {
		t.Error("that it is breached is no news")
	}
	d.keep(nil)
	if len(d.list()) > 0 || !d.due(p).IsZero() {
		t.Error("it is owed after its verdict")
	}
	d.keep([]string{tail})
	if !chosen() {
		t.Error("owed anew, it is not measured at once")
	}
	if at := (debts{"workload.gone.guard[\"g\"]": {}}).due(p); !at.IsZero() {
		t.Errorf("a guard of a workload that cannot be judged is due at %v: passes without end", at)
	}
}

// TestTellGuards: what the log and the health say of each kind of verdict.
func TestTellGuards(t *testing.T) {
	for name, test := range map[string]struct {
		verdict    string
		owedBefore bool
		owed       bool
		undone     bool
		log        string
		problems   int // that are no debts
	}{
		"passed":                          {verdict: experiment.GuardPassed},
		"passed at last":                  {verdict: experiment.GuardPassed, owedBefore: true, log: `level=INFO msg="guard passed"`},
		"not measured":                    {verdict: experiment.GuardNotMeasured, owed: true, log: `level=WARN msg="guard not measured`},
		"breached":                        {verdict: experiment.GuardBreached, undone: true, log: `level=ERROR msg="guard breached: rolled back"`, problems: 1},
		"breached, and what was is owed":  {verdict: experiment.GuardBreached, undone: true, owed: true, owedBefore: true, log: `level=ERROR msg="guard breached: rolled back"`, problems: 1},
		"breached, to be reported":        {verdict: experiment.GuardBreached, log: `level=WARN msg="guard breached: it is to be reported alone"`},
		"breached when it was due before": {verdict: experiment.GuardBreached, owed: true, owedBefore: true, log: `level=ERROR msg="guard breached: it is about what an earlier run`},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			l := newLoop(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
			var owed, undone []string
			if test.owedBefore {
				l.debts.keep([]string{tail})
			}
			if test.owed {
				owed = []string{tail}
			}
			if test.undone {
				undone = []string{"w"}
			}
			v := []experiment.Guard{{Workload: "w", Name: "tail", Verdict: test.verdict, Text: "p99 2ms > 1ms"}}
			for i := range 2 {
				problems := l.tellGuards(v, undone, owed, "id")
				if len(problems) != test.problems || (len(l.debts.list()) > 0) != test.owed {
					t.Errorf("run %d: problems %q, owed %v", i, problems, l.debts.list())
				}
				if said := log.String(); i == 0 && (strings.Count(said, "level=") != min(len(test.log), 1) || !strings.Contains(said, test.log)) {
					t.Errorf("log: %s, want %q", said, test.log)
				}
			}
			if test.verdict == experiment.GuardNotMeasured && strings.Count(log.String(), "level=") != 1 {
				t.Errorf("told more than once: %s", log.String())
			}
			for _, d := range l.debts.list() {
				if s := d.String(); !strings.Contains(s, tail) || !strings.Contains(s, "p99 2ms") || d.Breached != (test.verdict == experiment.GuardBreached) {
					t.Errorf("%q, %+v", s, d)
				}
			}
		})
	}
}

// TestPaid: a verdict that rdmatune apply has found is heard of by the next sweep.
func TestPaid(t *testing.T) {
	h := newHeldTest(t)
	l := h.loop()
	for _, test := range []struct{ state, owed []string }{{nil, nil}, {[]string{tail}, nil}, {[]string{tail}, []string{tail}}, {nil, []string{tail}}} {
		l.debts.keep(test.owed)
		h.doc.Unmeasured = test.state
		h.must(h.doc.Save(h.node.StateDir()))
		if want := len(test.owed) > len(test.state); l.paid() != want {
			t.Errorf("%q of %q: paid %v", test.state, test.owed, !want)
		}
	}
}
