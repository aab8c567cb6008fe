package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// TestStatusIsBounded: what a status says of the last pass and of what is wrong is for
// people, whatever a node of thousands of settings goes through.
func TestStatusIsBounded(t *testing.T) {
	const many = 5000
	p := Pass{Drifts: make([]Drift, many), Heals: make([]Drift, many), Failures: make([]string, many), Switches: make([]experiment.Switch, many), Changed: many}
	k := p.kept()
	if len(k.Drifts) != recentDrifts || len(k.Heals) != recentDrifts || len(k.Failures) != recentDrifts || len(k.Switches) != recentDrifts || k.Changed != many {
		t.Errorf("kept %d drifts, %d heals, %d failures, %d switches of %d", len(k.Drifts), len(k.Heals), len(k.Failures), len(k.Switches), k.Changed)
	}
	if cap(k.Drifts) >= many {
		t.Error("all drifts stay in memory")
	}
	if len(p.Drifts) != many {
		t.Error("the pass itself was changed")
	}
	if few := (Pass{Drifts: make([]Drift, 3)}).kept(); len(few.Drifts) != 3 || few.Heals != nil {
		t.Errorf("of few: %+v", few)
	}
	problems := make([]string, many)
	if got := bounded(problems); len(got) != maxProblems+1 || got[maxProblems] != fmt.Sprintf("and %d more", many-maxProblems) {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
	if got := bounded(problems[:maxProblems]); len(got) != maxProblems {
		t.Errorf("%d problems of %d", len(got), maxProblems)
	}
}

// TestUnhealedIsForgotten: what was never healed and is in no plan any more is kept only
// while it cannot be judged, and no longer than the judge remembers it. Processes come and
// go for years beside a workload whose device is gone.
func TestUnhealedIsForgotten(t *testing.T) {
	for _, whole := range []bool{true, false} {
		l := newLoop(t, Config{})
		now := time.Unix(1_000_000, 0)
		find := func(plan.Change) cause { return cause{writer: "app", when: now} }
		for i := range 50 {
			c := vector(true, "a")
			c.Target.Name = fmt.Sprint("gone/", i)
			p := &plan.Plan{Changes: []plan.Change{c}}
			l.tell(l.judge.rule(now, p, &state.Document{}, find), &Pass{}, whole)
			now = now.Add(10 * time.Minute)
		}
		if n := len(l.unhealed); whole && n != 1 || !whole && (n < 2 || n > 10) {
			t.Errorf("whole %v: %d are waited for", whole, n)
		}
	}
}

func TestDistinct(t *testing.T) {
	if got := distinct([]string{"b", "a", "b", "b", "c", "a"}); !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("%q", got)
	}
	if got := distinct(nil); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}
