package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/audit"
	"github.com/rdmatune/rdmatune/audit/live"
	"github.com/rdmatune/rdmatune/doctor"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/internal/gpu"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
)

// A question is what an examination is for besides the node itself.
type question struct {
	spec      *spec.Resolved // that has the workloads; nil without any
	workloads []*spec.Workload
	due       []string // what of the base tuning of the workloads is not in force
	// brief leaves out what no verdict about the workloads needs; else local devices are
	// tried out and the GPU driver asked.
	brief bool
}

// examine examines the session's node. What went into the report comes with it.
func (s *session) examine(ctx context.Context, facts *node.Facts, q question) (*doctor.Report, *doctor.Input, error) {
	in := &doctor.Input{Node: s.node, Facts: facts, Brief: q.brief}
	if s.node.Kind() == node.Local && !q.brief {
		in.Verbs, in.NoVerbs = ibverbs.Provider{}, !ibverbs.Built
		if len(facts.GPUs) > 0 {
			in.GPUs, in.GPUErr = gpu.Devices()
		}
	}
	transports, err := s.transports(ctx)
	if err != nil {
		return nil, nil, err
	}
	var all []int
	for _, w := range q.workloads {
		d := doctor.Workload{Address: w.Address, Device: w.Device, Hint: hintOf(w), Due: q.due}
		if d.PIDs, _, err = s.processesOf(ctx, w); err != nil {
			return nil, nil, err
		}
		for _, kind := range q.spec.Tuned(w) {
			d.Tuned = append(d.Tuned, string(kind))
		}
		for _, t := range transports {
			if slices.Contains(d.PIDs, t.PID) {
				d.Transports = append(d.Transports, t)
			}
		}
		d.Following = following(w, d.Transports)
		s.libraries(&d)
		all = append(all, d.PIDs...)
		in.Workloads = append(in.Workloads, d)
	}
	if in.View, err = live.Look(ctx, s.node, live.Options{Facts: facts, Transports: transports, PIDs: all}); err != nil {
		return nil, nil, err
	}
	r, err := doctor.Examine(ctx, *in)
	return r, in, err
}

// following are the processes all of whose transports are as w wants them.
func following(w *spec.Workload, transports []control.Process) []int {
	if hintOf(w) == nil {
		return nil
	}
	of := map[int][]control.Process{}
	for _, t := range transports {
		of[t.PID] = append(of[t.PID], t)
	}
	var out []int
	for pid, mine := range of {
		if differences(w, mine) == "" {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// libraries sorts the processes of d that are not on rdmatune's transport by whether
// they have a communication library mapped.
func (s *session) libraries(d *doctor.Workload) {
	for _, pid := range d.PIDs {
		if slices.ContainsFunc(d.Transports, func(t control.Process) bool { return t.PID == pid }) {
			continue
		}
		mapped, err := s.node.Procs().Mapped(pid)
		switch {
		case err != nil || len(mapped) == 0:
			d.Unseen = append(d.Unseen, pid)
		case slices.ContainsFunc(mapped, func(m procs.Mapping) bool { return audit.LibraryOf(m.Path) != nil }):
			d.Libraries = append(d.Libraries, pid)
		}
	}
}

// transports lists the processes of rdmatune's transport, and shows them as processes
// of a node that is not this machine.
func (s *session) transports(ctx context.Context) ([]control.Process, error) {
	if s.node.Kind() != node.Local {
		if err := s.adopt(ctx); err != nil {
			return nil, err
		}
	}
	return control.List(ctx, s.node.RunDir())
}

// live is what plan shows of the processes of workloads that have a hint.
func (s *session) live(ctx context.Context, r *spec.Resolved, facts *node.Facts) ([]plan.Live, error) {
	var workloads []*spec.Workload
	for i := range r.Workloads {
		if hintOf(&r.Workloads[i]) != nil {
			workloads = append(workloads, &r.Workloads[i])
		}
	}
	if len(workloads) == 0 {
		return nil, nil
	}
	report, in, err := s.examine(ctx, facts, question{spec: r, workloads: workloads, brief: true})
	if err != nil {
		return nil, err
	}
	var out []plan.Live
	for i, w := range workloads {
		l := plan.Live{Workload: w.Address, Processes: []plan.Process{}, Disagree: []string{}, Others: []string{}, Criteria: []plan.Criterion{}}
		for _, v := range report.Workloads[i].Verdicts {
			l.Criteria = append(l.Criteria, plan.Criterion{Group: v.Group, Question: v.Question, Answer: string(v.Answer), Statement: v.Statement})
		}
		seen := in.Workloads[i]
		audited, err := audit.Processes(ctx, s.node, seen.PIDs, audit.Options{Workload: w.Address, Hint: hintOf(w), Own: ownHints(seen.Transports)})
		if err != nil {
			return nil, err
		}
		for _, p := range audited.Processes {
			l.Processes = append(l.Processes, planProcess(p, w, audited, seen.Transports))
		}
		for _, f := range audited.Findings {
			if f.Process == 0 && f.Severity == audit.Contradiction {
				l.Disagree = append(l.Disagree, f.Variable+": "+f.Message)
			}
		}
		for _, u := range doctor.Users(in.View, w.Device, &seen) {
			l.Others = append(l.Others, u.Name+": "+u.Processes)
		}
		out = append(out, l)
	}
	return out, nil
}

// planProcess says when a process follows the hint of its workload, and what is in the
// way until then.
func planProcess(p audit.Process, w *spec.Workload, r *audit.Report, transports []control.Process) plan.Process {
	out := plan.Process{PID: p.PID, Comm: p.Comm, When: plan.NotObservable, Detail: p.Err}
	hint := *hintOf(w)
	var mine []control.Process
	for _, t := range transports {
		if t.PID == p.PID {
			if t.Err != "" {
				out.Detail = t.Err
				return out
			}
			mine = append(mine, t)
		}
	}
	switch {
	case len(mine) > 0:
		out.Transport, out.When, out.Detail = true, plan.Follows, differences(w, mine)
		switch {
		case out.Detail != "" && ownStands(w, mine):
			out.When = plan.Differs // of each connection the plan says why
			if !slices.ContainsFunc(mine, func(t control.Process) bool { return len(t.Conns) > 0 }) {
				out.Detail += ", since override = false"
			}
		case out.Detail != "":
			out.When = plan.SwitchNow // unless the plan leaves it alone
		}
		return out
	case p.Err != "":
		return out
	}
	var mismatches []string
	libraries := 0
	for _, v := range r.Variables {
		row := audit.VariableByName(v.Name)
		if v.Process != p.PID || row == nil || !row.Hint() || row.Library == "rdmatune" {
			continue
		}
		libraries++
		if want := row.For(hint); want != "" && v.Parsed.String() != want {
			mismatches = append(mismatches, fmt.Sprintf("%s is %s (%s), the hint is %s there", v.Name, v.Parsed, v.Origin, want))
		}
	}
	switch {
	case libraries == 0:
		out.Detail = "it has no library mapped that can be told of sizes"
	case len(mismatches) == 0:
		out.When = plan.Follows
	default:
		out.When = plan.AtNextStart
		for i, m := range mismatches {
			if i > 0 {
				out.Detail += "; "
			}
			out.Detail += m
		}
	}
	return out
}

// ownStands reports whether all that the transports of a process follow is their own
// hint, which w leaves to them.
func ownStands(w *spec.Workload, transports []control.Process) bool {
	return !hintFlag(w, param.HintOverride) && !slices.ContainsFunc(transports, func(t control.Process) bool {
		return t.Hint.Level != control.LevelProgram && t.Hint.Level != control.LevelEnv
	})
}

// differences says what the transports of a process follow other than the workload
// wants: those connections that an order is about, and connections to come.
func differences(w *spec.Workload, transports []control.Process) string {
	hint := *hintOf(w)
	dual := hint > 0 && textOf(w, param.Hint, param.HintLanes) == control.LanesDual
	ordered := hintFlag(w, param.HintOrdered)
	size := param.FormatBytes(hint)
	connections, hints, lanes, orders := 0, 0, 0, 0
	var out []string
	for _, t := range transports {
		for _, c := range t.Conns {
			if c.Fixed {
				continue
			}
			connections++
			if c.Hint == nil || *c.Hint != hint {
				hints++
			}
			if c.Dual != dual {
				lanes++
			}
			if c.Ordered != ordered {
				orders++
			}
		}
		if t.Hint.Size != nil && *t.Hint.Size == hint {
			continue
		}
		next := "none"
		if t.Hint.Size != nil {
			next = param.FormatBytes(*t.Hint.Size)
		}
		if note := fmt.Sprintf("its next connections follow %s (%s)", next, t.Hint.Origin); !slices.Contains(out, note) {
			out = append(out, note)
		}
	}
	for _, d := range []struct {
		count int
		what  string
	}{
		{orders, map[bool]string{true: "not ordered", false: "ordered"}[ordered]},
		{lanes, map[bool]string{true: "with a single lane, not dual", false: "with dual lanes, not a single one"}[dual]},
		{hints, "on another hint than " + size},
	} {
		if d.count > 0 {
			out = slices.Insert(out, 0, fmt.Sprintf("%d of %s %s", d.count, param.Count(connections, "connection"), d.what))
		}
	}
	return strings.Join(out, "; ")
}
