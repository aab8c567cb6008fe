package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
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

// TestHeld: a target's driver hears of what is in force and of what the plan makes, and of
// nothing else: whatever it wrote beside would have no original.
func TestHeld(t *testing.T) {
	policy := param.Target{Kind: param.Frequency, Name: "policy0"}
	now := func(id param.ID, v param.Value) param.Setting { return param.Setting{ID: id, Value: v} }
	fixed := now(param.EnergyPreference, param.Unknown("not available here"))
	fixed.Fixed = true
	observed := param.Observed{Target: policy, Settings: []param.Setting{
		now(param.Governor, param.Text("powersave")), now(param.MinKHz, param.Int(1)), now(param.MaxKHz, param.Int(5)), fixed,
	}}
	w := spec.Workload{Address: "a", Wants: []spec.Want{{Kind: param.Frequency, Targets: []spec.TargetWant{{Name: "policy0", Settings: []spec.Setting{
		want(param.Governor, param.Text("performance"), 1), want(param.MinKHz, param.Int(4), 2), want(param.MaxKHz, param.Int(5), 3),
		want(param.EnergyPreference, param.Text("performance"), 4),
	}}}}}}
	doc := document()
	p := Make(input(doc, w).found("a", param.Frequency, observed))
	held := func(p *Plan) (out []param.ID) {
		for _, s := range p.Orders[policy].Want {
			out = append(out, s.ID)
		}
		return out
	}
	check := func(what string, p *Plan, want ...param.ID) {
		t.Helper()
		if diff := cmp.Diff(want, held(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("all", p, param.Governor, param.MinKHz, param.MaxKHz)
	check("the governor alone", p.Only(doc, func(c Change) bool { return c.ID == param.Governor }), param.Governor, param.MaxKHz)
	check("all, again", p, param.Governor, param.MinKHz, param.MaxKHz)
	doc.Refuse(boot, state.Key{Target: policy, ID: param.MinKHz}, "the kernel refused it")
	check("one was refused", Make(input(doc, w).found("a", param.Frequency, observed)), param.Governor, param.MaxKHz)
}

// TestFrozen: what is remembered of a workload that cannot be judged now stays, also where
// it shares a setting with one that wants it no more.
func TestFrozen(t *testing.T) {
	vector := func(name string) param.Target { return param.Target{Kind: param.IRQ, Name: name, Incarnation: "i"} }
	in := input(document(
		entry(vector("x/0"), param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), "a"),
		entry(vector("x/1"), param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), "a", "b"),
		entry(vector("x/2"), param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), "b"),
	))
	for _, name := range []string{"x/0", "x/1", "x/2"} {
		in.Remembered = append(in.Remembered, irqFound(name, "1"))
	}
	in.Frozen = map[spec.Part]bool{{Workload: "a"}: true}
	p := Make(in)
	if len(p.Changes) != 1 || p.Changes[0].Target.Name != "x/2" || len(p.Base.Entries) != 3 {
		t.Errorf("changes %v, %d entries; want x/2 restored and all three remembered", p.Changes, len(p.Base.Entries))
	}
}

// TestBroken: an error names the workloads that it is about, and without them the rest can
// be planned.
func TestBroken(t *testing.T) {
	workload := func(addr string, w ...spec.Want) spec.Workload { return spec.Workload{Address: addr, Wants: w} }
	unreadable := irqFound("x/0", "0-3")
	unreadable.Settings[0].Value = param.Unknown("busy")
	in := input(nil, workload("a", irqWant("1", "x/0")), workload("b", irqWant("1", "x/1")), workload("c", irqWant("2", "x/1"))).
		found("a", param.IRQ, unreadable).found("b", param.IRQ, irqFound("x/1", "0-3")).found("c", param.IRQ, irqFound("x/1", "0-3"))
	p := Make(in)
	part := func(w string) spec.Part { return spec.Part{Workload: w, Kind: param.IRQ} }
	if diff := cmp.Diff([]spec.Part{part("a"), part("c"), part("b")}, p.Broken); diff != "" {
		t.Fatalf("broken (-want +got):\n%s\n%v", diff, p.Diags)
	}
	rest := Make(in.Without([]spec.Part{part("a"), part("c")}))
	if rest.Errored() || len(rest.Changes) != 1 || rest.Changes[0].Workload != "b" {
		t.Errorf("without a and c: %v, %v", rest.Diags, rest.Changes)
	}
	if len(in.Spec.Workloads) != 3 || in.Frozen != nil {
		t.Errorf("the input was changed: %d workloads, frozen %v", len(in.Spec.Workloads), in.Frozen)
	}
}

func TestIndependent(t *testing.T) {
	p := &Plan{Policies: map[string]Policy{"a": {}, "b": {AllOrNone: true}, "c": {Continue: true}}}
	for w, policy := range p.Independent().Policies {
		if policy != (Policy{Continue: true}) {
			t.Errorf("%s: %+v", w, policy)
		}
	}
	if p.Policies["b"] != (Policy{AllOrNone: true}) {
		t.Errorf("the plan itself was changed: %+v", p.Policies)
	}
}
