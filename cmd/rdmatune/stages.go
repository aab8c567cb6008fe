package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
)

// stageFlags are those of apply --experiment.
type stageFlags struct {
	on    bool
	peer  string
	sizes string
	count int
}

func (f *stageFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.on, "experiment", false, "measure before, after the base tuning and after the hint")
	cmd.Flags().StringVar(&f.peer, "peer", "", "with --experiment, `host:port` where rdmatune bench serve answers (default: that of the workload's first guard)")
	cmd.Flags().StringVar(&f.sizes, "sizes", "8B,1KiB,16KiB", "with --experiment, message `sizes`")
	cmd.Flags().IntVar(&f.count, "count", 1000, "with --experiment, `messages` of each size that are timed at each stage")
}

// stageBefore is the stage before the run.
const stageBefore apply.Stage = "before"

// stages measure the parts of an apply.
type stages struct {
	m         *meter
	o         bench.Options
	workloads []staged
	into      *experiment.Experiment
	failed    []error
}

// A staged workload is what was measured of one.
type staged struct {
	spec.Workload
	peer    string
	base    bool             // the plan changes something but the hint
	hint    bool             // it changes the hint
	old     control.Settings // that its connections followed before the run
	reports map[apply.Stage]bench.Report
	again   bench.Report // a second measurement before the run, as far from the first as the machine drifts
}

// newStages measures what there is before the run.
func newStages(ctx context.Context, m *meter, p *planning, f stageFlags, into *experiment.Experiment) (*stages, error) {
	s := &stages{m: m, into: into, o: bench.Options{Count: f.count}}
	var err error
	if s.o.Sizes, err = parseSizes(f.sizes); err != nil {
		return nil, err
	}
	if p.spec == nil {
		return nil, errors.New("--experiment is about applying a spec")
	}
	resolved, diags := p.spec.Resolve(p.facts)
	if diags.HasErrors() {
		return nil, diags
	}
	for _, w := range resolved.Workloads {
		x := staged{Workload: w, peer: f.peer, reports: map[apply.Stage]bench.Report{}}
		for _, g := range w.Guards {
			if x.peer == "" {
				x.peer = g.Peer
			}
		}
		for _, c := range p.plan.Changes {
			if c.Workload == w.Address && c.Action != param.Restore {
				x.hint = x.hint || c.Target.Kind == param.Hint
				x.base = x.base || c.Target.Kind != param.Hint
			}
		}
		if x.base || x.hint {
			if x.peer == "" || w.Device == "" {
				return nil, fmt.Errorf("--experiment: the workload %s needs a device, and a bench serve to be measured against (--peer)", w.Address)
			}
			s.workloads = append(s.workloads, x)
		}
	}
	s.measure(ctx, stageBefore)
	if len(s.failed) == 0 {
		s.measureAgain(ctx)
	}
	return s, errors.Join(s.failed...)
}

// measureAgain measures what is to be compared across stages once more before anything
// is changed: two measurements of the same tell how far apart the machine's own drift
// puts them.
func (s *stages) measureAgain(ctx context.Context) {
	for i := range s.workloads {
		w := &s.workloads[i]
		if !w.base {
			continue
		}
		r, err := s.one(ctx, w, stageBefore)
		if err != nil {
			s.failed = append(s.failed, err)
			continue
		}
		w.again = r
	}
}

// measure measures every workload that the run changes, as it is now.
func (s *stages) measure(ctx context.Context, stage apply.Stage) {
	for i := range s.workloads {
		w := &s.workloads[i]
		if stage == apply.Hinted && !w.hint && len(w.reports) > 1 {
			continue // the base tuning was its end
		}
		printf(os.Stderr, "Measuring %s, %s ...\n", w.Address, describeStage(stage))
		r, err := s.one(ctx, w, stage)
		if err != nil {
			s.failed = append(s.failed, fmt.Errorf("%s, %s, was not measured: %w", w.Address, describeStage(stage), err))
			continue
		}
		w.reports[stage] = r
		s.record(w, stage, r)
	}
	if stage == apply.Hinted {
		s.judge()
	}
}

func describeStage(stage apply.Stage) string {
	if stage == stageBefore {
		return "as it was"
	}
	return "after the " + string(stage)
}

// one measures one workload with the settings that are published for it now, from the
// CPUs that its processes would have.
func (s *stages) one(ctx context.Context, w *staged, stage apply.Stage) (bench.Report, error) {
	settings, _, err := control.ReadPublished(s.m.s.node.RunDir(), w.Address)
	if err != nil {
		return bench.Report{}, err
	}
	if settings == nil {
		settings = &control.Settings{}
	}
	o := s.o
	o.Workload, o.Device, o.Stall = w.Address, w.Device, guardStall
	var back func()
	if stage != stageBefore && s.m.s.node.Kind() == node.Local {
		for _, want := range w.Wants {
			if want.Kind == param.Pinning && len(want.Targets) > 0 {
				if back, err = s.pinSelf(want.Targets[0].Settings[0].Value); err != nil {
					return bench.Report{}, err
				}
			}
		}
	}
	if back != nil {
		defer back()
	}
	arms := []arm{{name: w.Address + ", " + describeStage(stage), settings: *settings}}
	if stage == stageBefore {
		w.old = *settings
	}
	if stage == apply.Hinted && w.hint {
		// The old settings take turns with the new ones, so that no drift is between them.
		arms = append(arms, arm{name: w.Address + ", the old settings beside", settings: w.old})
	}
	return s.m.against(ctx, w.Device, w.peer, arms, o)
}

// record keeps a stage's numbers with the run's experiment.
func (s *stages) record(w *staged, stage apply.Stage, r bench.Report) {
	e := s.into
	e.Device = w.Device
	e.Simulated = e.Simulated || r.Simulated
	e.Node.Driver, e.Node.Firmware = "", ""
	id := s.m.s.identity(s.m.facts, w.Device)
	e.Node.Driver, e.Node.Firmware = id.Driver, id.Firmware
	if e.Explain == nil {
		e.Explain = s.m.s.node.Explain(s.m.facts, w.Device)
	}
	for _, x := range r.Series {
		e.Series = append(e.Series, experiment.Series{Name: x.Name, Hint: x.Hint, Profile: x.Profile})
	}
	for _, z := range r.Sizes {
		size, err := recorded(r, z)
		if err != nil {
			s.failed = append(s.failed, err)
			continue
		}
		e.Sizes = append(e.Sizes, size)
	}
}

// judge says what each step did.
func (s *stages) judge() {
	for i := range s.workloads {
		w := &s.workloads[i]
		before, haveBefore := w.reports[stageBefore]
		base, haveBase := w.reports[apply.BaseTuned]
		hinted, haveHinted := w.reports[apply.Hinted]
		if !haveBase && w.base && !w.hint {
			base, haveBase = hinted, haveHinted // no hint: the end is that of the base tuning
		}
		if w.base && haveBefore && haveBase {
			s.effect(w, experiment.StepBase, before.Sizes, base.Sizes, w.again.Sizes)
		}
		if w.hint && haveHinted {
			each := len(hinted.Sizes) / 2
			s.effect(w, experiment.StepHint, hinted.Sizes[each:], hinted.Sizes[:each], nil)
		}
	}
}

// effect compares sizes before and after a step. again, if there is any, is before
// measured a second time: a difference that is not twice as large as that of the same
// is not shown.
func (s *stages) effect(w *staged, step string, before, after, again []bench.Size) {
	e := experiment.Effect{Workload: w.Address, Step: step, Device: w.Device, Firmware: s.into.Node.Firmware}
	if step == experiment.StepHint {
		now := settingsOf(w.Workload)
		e.Hint = now.Size
		if now.Lanes != nil {
			e.Lanes = *now.Lanes
		}
	}
	var said []string
	for i := range before {
		for _, q := range []struct {
			name string
			of   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			d := measure.Compare(before[i].Latency, after[i].Latency, q.of)
			if !d.Shown() || again != nil && !beyond(d, measure.Compare(before[i].Latency, again[i].Latency, q.of)) {
				continue
			}
			e.Shown = true
			said = append(said, fmt.Sprintf("%s %s %.1f -> %.1f us (%+.1f %%, 95 %% interval %+.1f to %+.1f us)", param.FormatBytes(before[i].Size), q.name,
				float64(d.A)/1e3, float64(d.B)/1e3, 100*d.By(), float64(d.Low)/1e3, float64(d.High)/1e3))
		}
	}
	e.Text = strings.Join(said, "; ")
	switch {
	case !e.Shown:
		e.Text = "set, read back, no difference shown" + s.firstCause(w)
	case again != nil:
		e.Text += "; measured one after the other, and more than twice what the same differed by before"
	}
	s.into.Effects = append(s.into.Effects, e)
}

// beyond reports whether d is more than twice as large as the difference of the same.
func beyond(d, same measure.Difference) bool {
	size := func(d measure.Difference) time.Duration {
		if d.B < d.A {
			return d.A - d.B
		}
		return d.B - d.A
	}
	return size(d) > 2*size(same)
}

// firstCause names what a setting without effect most likely comes from.
func (s *stages) firstCause(w *staged) string {
	if v := s.m.facts.Virtualised; v != nil && *v != "" {
		return "; the first cause to think of is virtualisation (" + *v + "), which can take a setting and not pass it on"
	}
	if simulated(s.m.s.node, s.m.facts, w.Device) {
		return "; the device has no hardware"
	}
	return ""
}

// report shows what each step did.
func (s *stages) report() {
	if s == nil {
		return
	}
	for _, e := range s.into.Effects {
		label := ""
		if s.into.Simulated {
			label = " (simulated device)"
		}
		printf(os.Stdout, "Effect of the %s on %s%s: %s.\n", e.Step, e.Workload, label, e.Text)
	}
}

// err is what could not be measured.
func (s *stages) err() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.failed...)
}

// effects are notes about hints of the spec that were measured on their device and
// firmware before, and made no difference.
func (s *session) effects(ctx context.Context, sp *spec.Resolved, facts *node.Facts) ([]plan.Note, error) {
	wanted := map[string]control.Settings{}
	for _, w := range sp.Workloads {
		if x := settingsOf(w); x.Size != nil && *x.Size > 0 {
			wanted[w.Address] = x
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	db, err := experiment.OpenReadOnly(ctx, s.node.StateDir())
	if err != nil || db == nil {
		return nil, nil // a plan needs no history: whoever asks for experiments hears what is wrong with them
	}
	defer db.Close()
	var out []plan.Note
	for _, w := range sp.Workloads {
		x, ok := wanted[w.Address]
		if !ok || w.Device == "" {
			continue
		}
		lanes := ""
		if x.Lanes != nil {
			lanes = *x.Lanes
		}
		e, id, err := db.LastEffect(ctx, w.Device, s.identity(facts, w.Device).Firmware, *x.Size, lanes)
		if err != nil || id == "" || e.Shown {
			continue
		}
		out = append(out, plan.Note{Address: "workload." + w.Address + ".hint", Reason: fmt.Sprintf(
			"a hint of %s was measured on this device and firmware before (experiment %s): %s", param.FormatBytes(*x.Size), id, e.Text)})
	}
	return out, nil
}

// pinSelf moves all threads of this process to the CPUs of list, and returns what moves
// them back. A thread born in between has them of the one that made it.
func (s *stages) pinSelf(list param.Value) (back func(), err error) {
	text, _ := list.AsText()
	set, err := cpulist.ParseKernel(text)
	if err != nil {
		return nil, err
	}
	n := s.m.s.node
	threads, err := n.Procs().Threads(os.Getpid())
	if err != nil {
		return nil, err
	}
	before := threads[0].CPUs
	move := func(to cpulist.Set) error {
		threads, err := n.Procs().Threads(os.Getpid())
		for _, t := range threads {
			if setErr := n.SetAffinity(t.TID, to); setErr != nil && !errors.Is(setErr, procs.ErrGone) {
				err = errors.Join(err, setErr)
			}
		}
		return err
	}
	if err := move(set); err != nil {
		return nil, errors.Join(err, move(before))
	}
	return func() {
		if err := move(before); err != nil {
			s.failed = append(s.failed, err)
		}
	}, nil
}
