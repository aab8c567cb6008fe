package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// rollback undoes what this run did for a workload, the last change first. A step
// that fails does not stop the others. breached: a guard was.
func (a *run) rollback(ctx context.Context, workload string, breached bool) {
	a.failed[workload] = true
	a.result.RolledBack = append(a.result.RolledBack, workload)
	var hints, others []*target
	for i := len(a.targets) - 1; i >= 0; i-- {
		switch t := a.targets[i]; {
		case t.workload != workload || !t.touched:
		case t.target.Kind == param.Hint:
			hints = append(hints, t)
		default:
			others = append(others, t)
		}
	}
	a.reject(workload, hints, others, breached)
	if len(hints) > 0 {
		a.undoHints(ctx, workload, hints)
	}
	for _, t := range others {
		a.undo(ctx, t)
	}
}

// reject remembers what is undone, so that nobody makes it again unasked: of a breach all
// of it. What went together with a write that did not work may well go with the next try,
// but that connections are switched to and fro.
func (a *run) reject(workload string, hints, others []*target, breached bool) {
	undone := hints
	if breached {
		undone = slices.Concat(hints, others)
	}
	r := state.Rejection{Spec: a.plan.Digests[workload]}
	for _, t := range undone {
		r.Kinds = append(r.Kinds, t.target.Kind)
	}
	if len(r.Kinds) == 0 || r.Spec == "" {
		return
	}
	slices.Sort(r.Kinds)
	r.Kinds = slices.Compact(r.Kinds)
	a.doc.Reject(workload, r)
	if err := a.journal.Append(state.Record{Run: a.Experiment.ID, BootID: a.plan.BootID, Workload: workload, Rejection: &r}); err != nil {
		a.result.Failures = append(a.result.Failures, fmt.Errorf("workload %s: what is rolled back: %w", workload, err))
	}
}

// accept forgets what was rejected of workloads for which this run has made just that.
func (a *run) accept() {
	for _, t := range a.targets {
		r, rejected := a.doc.Rejections[t.workload]
		if rejected && t.through && !a.failed[t.workload] && slices.Contains(r.Kinds, t.target.Kind) {
			delete(a.doc.Rejections, t.workload)
		}
	}
}

// undoHints takes a workload's connections back. Going back is a switch like any
// other: with a generation of its own, higher than the one that is rejected, and
// free of the cooldown.
func (a *run) undoHints(ctx context.Context, workload string, hints []*target) {
	g := a.plan.Generations[workload]
	back := state.Generation{Counter: g.Counter + 1, Follows: g.Follows, Rejected: true}
	if err := a.journal.Append(state.Record{Run: a.Experiment.ID, BootID: a.plan.BootID, Workload: workload, Generation: &back}); err != nil {
		a.result.Unrestored = append(a.result.Unrestored, fmt.Errorf("workload %s: %w", workload, err))
		return
	}
	a.plan.Generations[workload] = back
	// What processes fall back to is put back before they are told to fall back.
	slices.Reverse(hints)
	for _, t := range hints {
		t.order.Generation, t.order.Force = back.Counter, true
		if ms, ok := t.order.Wanted(param.DrainTimeout).AsInt(); ok {
			t.order.Drain = time.Duration(ms) * time.Millisecond
		}
		t.order.Want = oldSettings(t)
		t.order.Release = t.order.Want == nil
	}
	a.prepare(ctx, hints)
	for _, t := range hints {
		a.undo(ctx, t)
	}
}

// oldSettings is what a hint's target had before: the old values of what changed,
// and of the rest what is wanted. A target that had none at all wants none again.
func oldSettings(t *target) []param.Setting {
	values := map[param.ID]param.Value{}
	for _, s := range t.order.Want {
		values[s.ID] = s.Value
	}
	for _, c := range t.changes {
		if c.Index == "" {
			values[c.ID] = c.Old
		}
	}
	var out []param.Setting
	any := false
	for _, row := range param.Table {
		if v, ok := values[row.ID]; ok {
			out = append(out, param.Setting{ID: row.ID, Value: v})
			any = any || !v.IsAbsent()
		}
	}
	if !any {
		return nil
	}
	return out
}

// undo writes the old values of t back, and notes in the state what it reached.
func (a *run) undo(ctx context.Context, t *target) {
	addr := plan.Address(t.workload, t.target)
	var back []param.Change
	for _, c := range t.changes {
		if !c.Old.IsKnown() || c.Old.IsAbsent() && t.target.Kind != param.Hint {
			continue // there is no value to write: the kernel takes no unset value back
		}
		c.Old, c.New, c.Action = c.New, c.Old, param.Restore
		c.Reason = "rollback"
		back = append(back, c)
	}
	if len(back) == 0 {
		return
	}
	a.event(Event{Step: RollingBack, Address: addr, Detail: describe(back)})
	began := time.Now()
	d, err := a.Drivers.Driver(t.target.Kind)
	if err == nil {
		t.inForce, err = d.Apply(ctx, t.target, back, t.order)
	}
	if errors.Is(err, drivers.ErrGone) || errors.Is(err, drivers.ErrUnavailable) {
		err = nil
	}
	wasThrough := t.through
	t.through = false
	if wasThrough {
		a.count(t, -1)
	}
	partly := errors.Is(err, drivers.ErrPartly)
	if err != nil && !partly {
		a.result.Unrestored = append(a.result.Unrestored, fmt.Errorf("%s: rollback: %w", addr, err))
		a.note(t)
		return
	}
	for _, c := range t.changes {
		a.unnote(c)
		if s, ok := drivers.Lookup(t.inForce, c.ID, c.Index); partly && ok && s.Value != c.Old {
			a.partly(c, c.Old, s.Value)
		}
	}
	if partly {
		a.result.Pending = append(a.result.Pending, plan.Note{Address: addr, Reason: err.Error()})
	}
	a.event(Event{Step: RolledBack, Address: addr, Detail: describe(back), Took: time.Since(began)})
}

// unnote makes the state say of a setting what it said before this run.
func (a *run) unnote(c param.Change) {
	k := state.Key{Target: c.Target.Key(), ID: c.ID, Index: c.Index}
	if before := a.plan.Base.Find(a.plan.BootID, k); before != nil {
		a.doc.Put(*before)
		return
	}
	a.doc.Forget(a.plan.BootID, k)
}
