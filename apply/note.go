package apply

import (
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// note writes into the state which of t's changes are in force.
func (a *run) note(t *target) {
	for _, c := range t.changes {
		s, ok := drivers.Lookup(t.inForce, c.ID, c.Index)
		switch {
		case !ok && !t.through:
			// Not reported: the thread or the target is gone, or was never written.
		case ok && s.Value != c.New && t.partly:
			a.partly(c, c.New, s.Value)
		case ok && s.Value != c.New:
			// It stayed as it was; a value that is neither old nor new is another's.
		case c.Action == param.Restore:
			a.doc.Forget(a.plan.BootID, state.Key{Target: c.Target.Key(), ID: c.ID, Index: c.Index})
		default:
			a.doc.Wrote(a.plan.BootID, c)
		}
	}
}

// partly makes the state say that c's setting goes back to original, and is at got on
// the way there.
func (a *run) partly(c param.Change, original, got param.Value) {
	k := state.Key{Target: c.Target.Key(), ID: c.ID, Index: c.Index}
	if e := a.doc.Find(a.plan.BootID, k); e != nil {
		e.Written, e.Maybe = got, nil
		return
	}
	a.doc.Put(state.Entry{BootID: a.plan.BootID, Target: k.Target, ID: c.ID, Index: c.Index,
		Original: original, Written: got, Workloads: []string{c.Workload}})
}

// refuse remembers which of t's changes this node cannot have.
func (a *run) refuse(t *target, err error) {
	for _, c := range t.changes {
		if s, ok := drivers.Lookup(t.inForce, c.ID, c.Index); ok && s.Value != c.New {
			a.doc.Refuse(a.plan.BootID, state.Key{Target: c.Target.Key(), ID: c.ID, Index: c.Index}, err.Error())
		}
	}
}
