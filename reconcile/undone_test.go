package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// TestHeld: only what somebody rewrites is contested.
func TestHeld(t *testing.T) {
	for verdict, want := range map[Verdict]string{
		Heal: "", Wait: "waiting", Contested: "contested", NoConsent: "left", Once: "left", Rejected: "rolled back",
	} {
		var h held
		given := h.add(verdict, Held{Address: "a", Setting: "size", Reason: "r"})
		got := ""
		for name, list := range map[string][]Held{"contested": h.contested, "waiting": h.waiting, "rolled back": h.rolledBack, "left": h.left} {
			if len(list) > 0 {
				got += name
			}
		}
		if got != want || given != (want != "" && verdict != Wait) || len(h.problems()) != min(len(want), 1) {
			t.Errorf("%s: in %q, given up %v, problems %q", verdict, got, given, h.problems())
		}
	}
}

// TestHeldProblems: a rollback is one problem for each reason, however many settings it has.
func TestHeldProblems(t *testing.T) {
	h := held{contested: []Held{{Address: "c", Setting: "cpus", Reason: "rewritten"}}, waiting: []Held{{Address: "w", Setting: "cpus", Reason: "refused"}}}
	for i := range 70 {
		h.rolledBack = append(h.rolledBack, Held{Address: fmt.Sprint("r", i), Setting: "cpus", Reason: fmt.Sprint("guard ", i%2)})
	}
	want := []string{
		"c cpus is not healed: rewritten",
		"r0 cpus (and 34 more) was rolled back: guard 0",
		"r1 cpus (and 34 more) was rolled back: guard 1",
		"w cpus is not healed yet: refused",
	}
	if diff := cmp.Diff(want, h.problems()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(h.rolledBack) != 70 || h.rolledBack[1].Address != "r1" {
		t.Error("what is held was changed")
	}
}

// TestRejectedReason: what a guard has rolled back is told with its name and values, also
// after a restart, when only the experiments know; and a rollback without a guard is told
// without one.
func TestRejectedReason(t *testing.T) {
	hint := plan.Change{Change: param.Change{Workload: "w", Target: param.Target{Kind: param.Hint, Name: "published/w"}, ID: param.HintSize, Action: param.Update, Old: param.Absent(), New: param.Int(1)}}
	irq := vector(false, "a")
	p := &plan.Plan{Changes: []plan.Change{irq, hint}, Digests: map[string]string{"w": "d"}}
	doc := &state.Document{
		Generations: map[string]state.Generation{"w": {Counter: 2, Follows: "d", Rejected: true}},
		Rejections:  map[string]state.Rejection{"w": {Spec: "d", Kinds: []param.Kind{param.Hint}}},
	}
	breach := []experiment.Guard{
		{Workload: "w", Name: "tail", Verdict: experiment.GuardBreached, Text: "p99 216µs > 1µs"},
		{Workload: "w", Name: "fine", Verdict: experiment.GuardPassed, Text: "p50 1µs <= 1s"},
		{Workload: "v", Name: "other", Verdict: experiment.GuardBreached, Text: "p50 2s > 1s"},
	}
	for name, test := range map[string]struct {
		status experiment.Status
		guards []experiment.Guard
		record bool
		want   string
	}{
		"by a guard":         {experiment.RolledBack, breach, true, `guard "tail": p99 216µs > 1µs; ` + tryAgain},
		"by a refused write": {experiment.RolledBack, nil, true, "its last generation was rolled back (now 2); " + tryAgain},
		"no record any more": {want: "its last generation was rolled back (now 2); " + tryAgain},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeldTest(t)
			l := h.loop()
			if test.record {
				db, err := experiment.Open(t.Context(), h.node.StateDir())
				h.must(err)
				for i, e := range []experiment.Experiment{
					{ID: "20260301-120000-0001", Status: test.status, Detail: experiment.Detail{Guards: test.guards}, Error: "refused"},
					{ID: "20260301-120000-0002", Status: experiment.Done},
					{ID: "20260301-120000-0003", Status: experiment.RolledBack, Detail: experiment.Detail{Origin: "another node"}},
				} {
					e.Kind, e.Workload, e.Time = experiment.Apply, "w", time.Unix(int64(1_000_000+i), 0)
					h.must(db.Begin(t.Context(), e))
					h.must(db.Finish(t.Context(), e))
				}
				h.must(db.Close())
			}
			for range 2 {
				l.recall(t.Context(), p, doc)
				rulings := l.judge.rule(time.Now(), p, doc, func(plan.Change) cause { return cause{} })
				kept := l.tell(rulings, &Pass{}, true)
				l.judge.forgive(rulings)
				if len(kept.rolledBack) != 1 || kept.rolledBack[0].Reason != test.want || len(kept.contested) > 0 {
					t.Fatalf("%+v, want %q", kept, test.want)
				}
			}
			if said := h.log.String(); strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "msg="+string(Rejected)) {
				t.Errorf("log: %s", said)
			}
			l.judge.forgive(nil)
			if len(l.judge.undone) > 0 {
				t.Error("why it was rolled back is remembered when it is not held any more")
			}
		})
	}
	// In the daemon's own run the guard's values are those of the run.
	j := newJudge(5, time.Minute, nil)
	find := func(plan.Change) cause { return cause{} }
	j.rule(time.Unix(1, 0), p, &state.Document{}, find)
	j.undone["w"] = breaches(breach, "w")
	for _, c := range p.Changes {
		j.note(time.Unix(1, 0), c, p, breached)
	}
	for _, r := range j.rule(time.Unix(2, 0), p, &state.Document{}, find) {
		if r.verdict != Rejected || r.reason != `guard "tail": p99 216µs > 1µs; `+tryAgain {
			t.Errorf("%s: %s (%s)", r.Target.Kind, r.verdict, r.reason)
		}
	}
}
