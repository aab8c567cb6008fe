package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/gather"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// carryOut makes the changes of todo and notes what became of each.
func (l *Loop) carryOut(ctx context.Context, p *Pass, todo *plan.Plan, g *gather.Gathering, rulings []ruling, problems []string) ([]string, error) {
	steps := map[string]apply.Step{}
	step, finish := l.busy()
	defer finish()
	r := &apply.Runner{
		Drivers: l.c.Drivers, StateDir: l.c.Node.StateDir(), Switches: l.c.Switches,
		Experiment: l.c.Describe(experiment.Reconcile, l.spec, g.Doc, g.Facts),
		Progress: func(e apply.Event) {
			step()
			switch e.Step {
			case apply.Written, apply.Deferred, apply.Skipped, apply.Failed:
				steps[e.Address] = e.Step
			}
		},
	}
	measured := len(todo.GuardsDue()) > 0
	if !todo.Empty() || measured {
		db, err := l.experiments(ctx)
		if err != nil {
			return problems, fmt.Errorf("%w: %w", apply.ErrNothingChanged, err)
		}
		r.DB = db
		defer func() {
			if err := db.Close(); err != nil {
				l.log.Error("experiment database", "error", err)
			}
		}()
		if l.c.Meter != nil && measured {
			r.Measure = l.c.Meter(ctx, todo, g.Facts)
		}
		p.Experiment = r.Experiment.ID
	}
	res, err := r.Run(ctx, todo, g.Doc)
	l.doc = g.Doc
	if doc, loadErr := state.Load(l.c.Node.StateDir()); loadErr == nil {
		l.doc = doc
	}
	problems = append(problems, l.tellGuards(res.Guards, res.RolledBack, l.doc.Unmeasured, p.Experiment)...)
	healed := time.Now()
	for _, w := range res.RolledBack {
		l.judge.undone[w] = breaches(res.Guards, w)
	}
	outcomes := map[subject]outcome{}
	for _, c := range todo.Changes {
		o := outcomeOf(steps[plan.Address(c.Workload, c.Target)], err)
		switch {
		case !slices.Contains(res.RolledBack, c.Workload):
		case l.judge.undone[c.Workload] != "":
			o = breached
		case o != refused:
			o = rolledBack
		}
		l.judge.note(healed, c, todo, o)
		outcomes[subjectOf(c)] = o
		if o == done {
			p.Changed++
		}
	}
	for s, o := range outcomes {
		d, drifted := l.unhealed[s]
		if !drifted || o != done {
			continue
		}
		delete(l.unhealed, s)
		d.Healed = max(healed.Sub(d.When), 1)
		p.Heals = append(p.Heals, d)
		l.log.Log(ctx, told(len(p.Heals), slog.LevelInfo), "healed", "address", d.Address, "setting", d.Setting, "value", d.Wrote, "writer", d.Writer, "after", d.Healed.Round(time.Microsecond))
	}
	for _, f := range slices.Concat(res.Failures, res.Unrestored) {
		if errors.Is(f, apply.ErrBreachStays) {
			continue // a debt
		}
		if text := f.Error(); !slices.Contains(p.Failures, text) {
			p.Failures = append(p.Failures, text)
			problems = append(problems, text)
		}
	}
	l.logNotInForce(p.Failures)
	for _, w := range res.RolledBack {
		l.log.Error("rolled back", "workload", w, "reason", cmp.Or(l.judge.undone[w], "a change failed"), "experiment", p.Experiment)
	}
	if p.Changed > 0 {
		l.log.Info("changed", "settings", p.Changed, "trigger", p.Trigger, "experiment", p.Experiment, "took", time.Since(p.Began).Round(time.Millisecond))
	}
	p.RolledBack = res.RolledBack
	p.Switches = l.switches(ctx, todo)
	return problems, err
}

// outcomeOf is what became of a change, by the last step that was heard of its target in a
// run that ended with err.
func outcomeOf(s apply.Step, err error) outcome {
	switch {
	case s == apply.Failed || s == "" && err != nil:
		return refused
	case s == apply.Skipped:
		return skipped
	case s == apply.Deferred || s == "":
		return deferred
	}
	return done
}

// switches are those that a plan has ordered.
func (l *Loop) switches(ctx context.Context, p *plan.Plan) []experiment.Switch {
	if l.c.Switches == nil {
		return nil
	}
	var out []experiment.Switch
	seen := map[string]bool{}
	for _, c := range p.Changes {
		if c.Target.Kind == param.Hint && c.Index != "" && !seen[c.Workload] {
			seen[c.Workload] = true
			out = append(out, l.c.Switches(ctx, c.Workload, p.Generations[c.Workload].Counter)...)
		}
	}
	return out
}

// restore puts every original back, as destroy does.
func (l *Loop) restore(ctx context.Context) (err error) {
	lock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	g, err := gather.Source{Node: l.c.Node, Drivers: l.c.Drivers, BootID: l.c.BootID}.Gather(ctx, nil, false)
	if err != nil {
		return err
	}
	p := plan.Make(g.Input)
	p.Destroy = false // the next start is to tune the node again
	step, finish := l.busy()
	defer finish()
	r := &apply.Runner{Drivers: l.c.Drivers, StateDir: l.c.Node.StateDir(), Switches: l.c.Switches,
		Experiment: l.c.Describe(experiment.Destroy, nil, g.Doc, g.Facts), Progress: func(apply.Event) { step() }}
	if !p.Empty() {
		if r.DB, err = l.experiments(ctx); err != nil {
			return fmt.Errorf("%w: %w", apply.ErrNothingChanged, err)
		}
		defer func() { err = errors.Join(err, r.DB.Close()) }()
	}
	res, err := r.Run(ctx, p, g.Doc)
	if l.c.Negotiate != nil {
		if _, negErr := l.c.Negotiate(ctx, nil); negErr != nil {
			err = errors.Join(err, negErr)
		}
	}
	return errors.Join(append(append([]error{err}, res.Failures...), res.Unrestored...)...)
}
