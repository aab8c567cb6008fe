package plan

import (
	"maps"
	"slices"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// Only returns p with those of its changes that keep wants; the others are neither made
// nor recorded, nor does a target's driver hear of them. A workload whose hint loses a
// change keeps the generation that it has in before, unless others of its changes need the
// new one: a process gets its order whole.
func (p *Plan) Only(before *state.Document, keep func(Change) bool) *Plan {
	out := *p
	out.Changes = nil
	out.Orders = maps.Clone(p.Orders)
	for _, c := range p.Changes {
		if keep(c) {
			out.Changes = append(out.Changes, c)
			continue
		}
		key := c.Target.Key()
		if order, ok := out.Orders[key]; ok && c.Target.Kind != param.Hint {
			order.Want = slices.DeleteFunc(slices.Clone(order.Want), func(s param.Setting) bool { return s.ID == c.ID && s.Index == c.Index })
			out.Orders[key] = order
		}
	}
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
