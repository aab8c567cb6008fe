package plan

import (
	"slices"
	"testing"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// TestOwedGuards: a guard is owed while the spec has it, also while its workload cannot be
// judged.
func TestOwedGuards(t *testing.T) {
	const address = `workload.w["a"].guard["tail"]`
	with := &spec.Resolved{Workloads: []spec.Workload{{Address: `w["a"]`, Guards: []spec.Guard{{Name: "tail"}}}}}
	for name, test := range map[string]struct {
		spec   *spec.Resolved
		frozen []spec.Part
		want   bool
		due    bool
	}{
		"in the spec":                  {spec: with, want: true, due: true},
		"no longer":                    {spec: &spec.Resolved{}},
		"all restored":                 {},
		"workload frozen":              {spec: with, frozen: []spec.Part{{Workload: `w["a"]`}}, want: true},
		"another frozen":               {spec: &spec.Resolved{}, frozen: []spec.Part{{Workload: "w"}}},
		"a part of it frozen":          {spec: with, frozen: []spec.Part{{Workload: `w["a"]`, Kind: param.IRQ}}, want: true, due: true},
		"a part frozen, and no longer": {spec: &spec.Resolved{}, frozen: []spec.Part{{Workload: `w["a"]`, Kind: param.IRQ}}},
	} {
		in := Input{Spec: test.spec, State: &state.Document{Unmeasured: []string{address}}}.Without(test.frozen)
		p := Make(in)
		if got := slices.Contains(p.Base.Unmeasured, address); got != test.want {
			t.Errorf("%s: owed %v", name, got)
		}
		if got := len(p.GuardsDue()) > 0; got != test.due {
			t.Errorf("%s: due %v", name, got)
		}
	}
}
