package plan

import (
	"slices"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// Only returns p with those of its changes that keep wants; the others are neither made
// nor recorded. A workload whose hint loses a change keeps the generation that it has in
// before, unless others of its changes need the new one.
func (p *Plan) Only(before *state.Document, keep func(Change) bool) *Plan {
	out := *p
	out.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return !keep(c) })
	out.Generations = make(map[string]state.Generation, len(p.Generations))
	for w, g := range p.Generations {
		hint := func(c Change) bool { return c.Workload == w && c.Target.Kind == param.Hint }
		if old, had := before.Generations[w]; slices.ContainsFunc(p.Changes, hint) && !slices.ContainsFunc(out.Changes, hint) {
			if had {
				out.Generations[w] = old
			}
			continue
		}
		out.Generations[w] = g
	}
	return &out
}

// Independent returns p with changes that stand for themselves: one that is refused undoes
// no other. It is for putting back what was in force already, where undoing would bring
// back what somebody else has written.
func (p *Plan) Independent() *Plan {
	out := *p
	out.Policies = make(map[string]Policy, len(p.Policies))
	for w := range p.Policies {
		out.Policies[w] = Policy{Continue: true}
	}
	return &out
}
