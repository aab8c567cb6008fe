package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

func TestOnly(t *testing.T) {
	change := func(w string, k param.Kind, name string) Change {
		return Change{Change: param.Change{Workload: w, Target: param.Target{Kind: k, Name: name}}}
	}
	old := state.Generation{Counter: 4, Follows: "x", Rejected: true}
	before := &state.Document{Generations: map[string]state.Generation{"a": old, "c": {Counter: 9}}}
	p := &Plan{
		Changes:     []Change{change("a", param.IRQ, "x/0"), change("a", param.Hint, "20"), change("b", param.Hint, "30"), change("b", param.Hint, "31")},
		Generations: map[string]state.Generation{"a": {Counter: 5, Follows: "x"}, "b": {Counter: 1}, "c": {Counter: 9}},
	}
	for _, test := range []struct {
		name        string
		drop        string // target
		changes     int
		generations map[string]state.Generation
	}{
		{"nothing dropped", "", 4, p.Generations},
		{"base tuning dropped", "x/0", 3, p.Generations},
		{"a hint's only change dropped: the rejected generation stays", "20", 3, map[string]state.Generation{"a": old, "b": {Counter: 1}, "c": {Counter: 9}}},
		{"one of a hint's changes dropped", "30", 3, p.Generations},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := p.Only(before, func(c Change) bool { return c.Target.Name != test.drop })
			if len(got.Changes) != test.changes || len(p.Changes) != 4 {
				t.Errorf("%d changes of %d, want %d of 4", len(got.Changes), len(p.Changes), test.changes)
			}
			if diff := cmp.Diff(test.generations, got.Generations); diff != "" {
				t.Errorf("generations (-want +got):\n%s", diff)
			}
		})
	}
	none := p.Only(before, func(Change) bool { return false })
	if _, there := none.Generations["b"]; there || none.Generations["a"] != old || !none.Empty() {
		t.Errorf("without changes: %+v", none.Generations)
	}
}
