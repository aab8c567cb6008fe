package main

import (
	"context"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/doctor"
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/gather"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
)

// baseDue returns what of a workload's base tuning is not in force: the kinds that a plan
// changes, and those that have to wait or cannot be read. Interrupts of its device count
// whichever workload places them, and so do cores that it has in common with another.
func baseDue(p *plan.Plan, r *spec.Resolved, address string) (changes, waiting []param.Kind) {
	i := slices.IndexFunc(r.Workloads, func(w spec.Workload) bool { return w.Address == address })
	if i < 0 {
		return nil, nil
	}
	w := &r.Workloads[i]
	for _, kind := range spec.BaseTuning {
		if slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
			return c.Target.Kind == kind && (c.Workload == address || shares(r, w, c))
		}) {
			changes = append(changes, kind)
			continue
		}
		of := "workload." + address + "." + string(kind)
		about := func(n plan.Note) bool { return n.Address == of || strings.HasPrefix(n.Address, of+"[") }
		if slices.ContainsFunc(p.Pending, about) || slices.ContainsFunc(p.Unreadable, about) {
			waiting = append(waiting, kind)
		}
	}
	return changes, waiting
}

// shares reports whether a change that another workload asks for is about w as well.
func shares(r *spec.Resolved, w *spec.Workload, c plan.Change) bool {
	if c.Target.Kind == param.IRQ {
		return w.Device != "" && slices.ContainsFunc(r.Workloads, func(other spec.Workload) bool {
			return other.Address == c.Workload && other.Device == w.Device
		})
	}
	return c.Target.Kind == param.Frequency && slices.Contains(w.Scope(param.Frequency).Targets, c.Target.Name)
}

// sayBase makes what a plan says of base tuning what is so: that it is in the spec does
// not mean that it is in force.
func sayBase(p *plan.Plan, r *spec.Resolved) {
	for i := range p.Live {
		l := &p.Live[i]
		at := slices.IndexFunc(l.Criteria, func(c plan.Criterion) bool { return c.Question == doctor.BaseTuning && c.Answer == string(doctor.Yes) })
		if at < 0 {
			continue
		}
		changes, waiting := baseDue(p, r, l.Workload)
		text := "base tuning is done as far as can be now"
		if len(changes) > 0 {
			text = "this plan does the base tuning (" + names(changes) + ")"
		}
		if len(waiting) > 0 {
			text += "; what has to wait: " + names(waiting)
		}
		if len(changes)+len(waiting) > 0 {
			l.Criteria[at].Statement = text
		}
	}
}

// notInForce says what of a workload's base tuning a plan of its spec would have to do.
func (s *session) notInForce(ctx context.Context, sp *spec.Spec, address string) ([]string, error) {
	g, err := gather.Source{Node: s.node, Drivers: s.drivers, BootID: s.bootID}.Gather(drivers.Within(ctx), sp, false)
	if err != nil {
		return nil, err
	}
	if g.Diags.HasErrors() {
		return nil, g.Diags
	}
	changes, waiting := baseDue(plan.Make(g.Input), g.Input.Spec, address)
	var out []string
	if len(changes) > 0 {
		out = append(out, "not in force: "+names(changes)+"; rdmatune apply does it")
	}
	if len(waiting) > 0 {
		out = append(out, "what has to wait: "+names(waiting))
	}
	return out, nil
}

// names joins kinds.
func names(kinds []param.Kind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	return strings.Join(out, ", ")
}
