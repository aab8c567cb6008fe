// Package gather collects what a plan is made of: the spec resolved against the node's
// facts, what the drivers find, and the state with what an interrupted apply left. It
// reads and writes nothing.
package gather

import (
	"context"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/interrupts"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// A Source is the node that a plan is for.
type Source struct {
	Node    *node.Node
	Drivers drivers.Set
	BootID  string
	// Partial goes on without the parts of the spec that do not fit the node: they are frozen.
	Partial bool
	// Known are facts that are still good, so that they need not be found again; nil for none.
	Known *node.Facts
}

// A Gathering is what goes into a plan.
type Gathering struct {
	Doc   *state.Document // with what an interrupted apply left
	Facts *node.Facts
	Diags hcl.Diagnostics
	// Input is whole only when Diags has no errors, or with Partial when the errors are those
	// of its frozen workloads; whoever makes the plan may add Notes and Live.
	Input plan.Input
}

// Gather collects for sp, or with none for restoring everything. Force is plan.Input's. It
// is one look at the node, or a part of the one that ctx belongs to.
func (s Source) Gather(ctx context.Context, sp *spec.Spec, force bool) (*Gathering, error) {
	g := &Gathering{}
	var err error
	if g.Doc, err = state.Load(s.Node.StateDir()); err != nil {
		return nil, err
	}
	records, err := state.ReadJournal(s.Node.StateDir())
	if err != nil {
		return nil, err
	}
	g.Doc.Recover(records)
	if g.Facts = s.Known; g.Facts == nil {
		if g.Facts, err = s.Node.Facts(ctx); err != nil {
			return nil, err
		}
	}
	g.Input = plan.Input{Spec: &spec.Resolved{}, State: g.Doc, BootID: s.BootID, Force: force, Destroy: sp == nil, Unreadable: map[param.Target]error{}}
	g.Input.Online = cpus(g.Facts.CPUs.Online)
	g.Input.Present = g.Input.Online.Union(cpus(g.Facts.CPUs.Offline))
	if sp != nil {
		g.Input.Spec, g.Diags = sp.Resolve(g.Facts)
		unfit := g.Input.Spec.Unfit
		if g.Diags.HasErrors() && (!s.Partial || len(unfit) == 0) {
			return g, nil
		}
		g.Input = g.Input.Without(unfit)
	}
	s.observe(drivers.Within(ctx), g)
	s.confirm(ctx, g)
	return g, ctx.Err()
}

// cpus returns the CPUs of a list of the facts, none where that is not known.
func cpus(list *string) cpulist.Set {
	if list == nil {
		return cpulist.New()
	}
	set, err := cpulist.ParseKernel(*list)
	if err != nil {
		return cpulist.New()
	}
	return set
}

// observe reads what the spec is about, and of the rest what the state remembers.
func (s Source) observe(ctx context.Context, g *Gathering) {
	known := map[param.Target]bool{}
	for _, w := range g.Input.Spec.Workloads {
		for _, want := range w.Wants {
			if want.Unavailable != "" {
				continue
			}
			o := s.Drivers.Observe(ctx, want.Kind, w.Scope(want.Kind))
			for _, f := range o.Found {
				known[f.Target.Key()] = true
			}
			g.Input.Observed = append(g.Input.Observed, o)
		}
	}
	for _, e := range g.Doc.Entries {
		t := e.Target.Key()
		if e.BootID != s.BootID || known[t] {
			continue
		}
		known[t] = true
		o, ok, err := s.Drivers.Reread(ctx, t)
		switch {
		case err != nil:
			g.Input.Unreadable[t] = err
		case ok:
			g.Input.Remembered = append(g.Input.Remembered, o)
		}
	}
}

// confirm reads interrupts again that do not show what was written, which the kernel may be
// moving still. What shows as written but once was not taken back.
func (s Source) confirm(ctx context.Context, g *Gathering) {
	var doubt []*param.Observed
	look := func(found []param.Observed) {
		for i := range found {
			if found[i].Target.Kind == param.IRQ && s.lost(g, found[i]) {
				doubt = append(doubt, &found[i])
			}
		}
	}
	for _, o := range g.Input.Observed {
		look(o.Found)
	}
	look(g.Input.Remembered)
	if len(doubt) == 0 {
		return
	}
	interrupts.Again(ctx, func() bool {
		doubt = slices.DeleteFunc(doubt, func(o *param.Observed) bool {
			again, ok, err := s.Drivers.Reread(ctx, o.Target)
			if err != nil || !ok || s.lost(g, again) {
				return false
			}
			o.Settings = again.Settings
			return true
		})
		return len(doubt) == 0
	})
}

// lost reports whether o shows another value than was written to it.
func (s Source) lost(g *Gathering, o param.Observed) bool {
	return slices.ContainsFunc(o.Settings, func(v param.Setting) bool {
		e := g.Doc.Find(s.BootID, state.Key{Target: o.Target.Key(), ID: v.ID, Index: v.Index})
		return e != nil && v.Value.IsKnown() && v.Value != e.Written && (e.Maybe == nil || v.Value != *e.Maybe)
	})
}
