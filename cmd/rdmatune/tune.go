package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/tune"
)

// tuneFlags are the flags of tune.
type tuneFlags struct {
	specFlags
	peer      string
	hints     string
	lanes     bool
	mix       string
	objective string
	floor     string
	count     int
	write     bool
	asJSON    bool
}

func newTune(o *options) *cobra.Command {
	f := &tuneFlags{}
	cmd := &cobra.Command{
		Use:   "tune WORKLOAD [FILE or DIRECTORY]",
		Short: "Find the hint that serves a workload best, by measuring",
		Long: `Measure candidates for a workload's hint side by side on its device, each on a
connection of its own to a bench serve, with the workload's own message sizes: those
that its live connections have counted, or --mix. Hint 0 is always among the
candidates, and is proposed unless another is shown to be better.

The objective is the mean latency of all messages, or a quantile at one size
(p99@8B). With --bandwidth-min, candidates whose largest messages stay below it are
out. --write puts the proposal into the spec, which keeps its comments and format;
apply then makes it so.`,
		Example: `  rdmatune tune allreduce --peer 10.9.0.1:7471
  rdmatune tune 'allreduce["0"]' --peer 10.9.0.1:7471 --objective p99@8B --lanes
  rdmatune tune storage node.hcl --peer 10.9.0.1:7471 --mix 4KiB=95,1MiB=5 --bandwidth-min 80Gbit/s --write`,
		Args: arguments(1, 2, "one WORKLOAD is"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.tune(cmd, args, f) },
	}
	f.specFlags.register(cmd)
	cmd.Flags().StringVar(&f.peer, "peer", "", "`host:port` where rdmatune bench serve answers (needed)")
	cmd.Flags().StringVar(&f.hints, "hints", "", "`candidates` such as 4KiB,16KiB (default: sizes that cover much of the messages)")
	cmd.Flags().BoolVar(&f.lanes, "lanes", false, "try each candidate with two lanes as well")
	cmd.Flags().StringVar(&f.mix, "mix", "", "message `sizes` by weight, such as 4KiB=95,1MiB=5 (default: of the live connections)")
	cmd.Flags().StringVar(&f.objective, "objective", "mean", "what is to be small: `mean`, or p50@SIZE, p99@SIZE")
	cmd.Flags().StringVar(&f.floor, "bandwidth-min", "", "least `bandwidth` of the largest messages, such as 80Gbit/s")
	cmd.Flags().IntVar(&f.count, "count", 5000, "`messages` that are timed for each candidate")
	cmd.Flags().BoolVar(&f.write, "write", false, "write the proposal into the spec")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	return cmd
}

func (o *options) tune(cmd *cobra.Command, args []string, f *tuneFlags) (err error) {
	if f.peer == "" {
		return errors.New("--peer is needed: start rdmatune bench serve on another node and name it here")
	}
	objective, err := tune.ParseObjective(f.objective)
	if err != nil {
		return fmt.Errorf("--objective: %w", err)
	}
	floor := int64(0)
	if f.floor != "" {
		if floor, err = spec.ParseBandwidth(f.floor); err != nil {
			return fmt.Errorf("--bandwidth-min: %w", err)
		}
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	sp, _, err := o.load(args[1:], f.specFlags, f.asJSON)
	if err != nil {
		return err
	}
	facts, err := s.node.Facts(ctx)
	if err != nil {
		return err
	}
	resolved, diags := sp.Resolve(facts)
	if diags.HasErrors() {
		return diags
	}
	at := slices.IndexFunc(resolved.Workloads, func(w spec.Workload) bool { return w.Address == args[0] })
	if at < 0 {
		var have []string
		for _, w := range resolved.Workloads {
			have = append(have, w.Address)
		}
		return fmt.Errorf("the spec has no workload %q; it has %s", args[0], strings.Join(have, ", "))
	}
	w := resolved.Workloads[at]
	if w.Device == "" {
		return fmt.Errorf("the workload %s has no device to measure on", w.Address)
	}
	mix, source, err := tuneMix(ctx, s, w.Address, f.mix)
	if err != nil {
		return err
	}
	base := settingsOf(w)
	candidates, err := tuneCandidates(f, mix, base)
	if err != nil {
		return err
	}
	printf(os.Stderr, "Measuring %s on %s against %s, with %s.\n", param.Count(len(candidates), "candidate"), w.Device, f.peer, source)
	res, e, err := o.tryCandidates(ctx, s, w, f, mix, candidates, objective, floor)
	if err != nil {
		return err
	}
	if f.asJSON {
		if err := writeJSON(struct {
			FormatVersion string `json:"format_version"`
			Workload      string `json:"workload"`
			Sizes         string `json:"sizes_from"`
			Experiment    string `json:"experiment"`
			tune.Result
		}{tune.FormatVersion, w.Address, source, e, res}); err != nil {
			return err
		}
	} else if err := writeTuning(res, e); err != nil {
		return err
	}
	switch {
	case f.write && res.Interrupted:
		return errors.New("interrupted: the spec stays as it is")
	case f.write:
		return writeHint(sp, w, res, f.lanes)
	}
	return nil
}

// tuneMix is the workload's message sizes and where they are from.
func tuneMix(ctx context.Context, s *session, workload, flag string) (tune.Mix, string, error) {
	if flag != "" {
		sizes, weights, err := parseMix(flag)
		return tune.Mix{Sizes: sizes, Weights: weights}, "the sizes given", err
	}
	list, err := control.List(ctx, s.node.RunDir())
	if err != nil {
		return tune.Mix{}, "", err
	}
	bins := map[int64]uint64{}
	total := uint64(0)
	for _, p := range list {
		if p.Workload != workload {
			continue
		}
		for _, c := range p.Conns {
			for _, b := range c.Sent.Sizes {
				bins[b.From] += b.Count
				total += b.Count
			}
		}
	}
	if total == 0 {
		return tune.Mix{}, "", fmt.Errorf("no live connection of the workload %s has sent a message that tells its sizes; give them with --mix", workload)
	}
	return tune.MixOf(bins), "the sizes of " + param.Count(total, "message") + " of its live connections", nil
}

// tuneCandidates are hint 0 and what else is to be tried.
func tuneCandidates(f *tuneFlags, mix tune.Mix, base control.Settings) ([]tune.Candidate, error) {
	hints := mix.Hints()
	if f.hints != "" {
		list, err := parseHints(f.hints)
		if err != nil {
			return nil, err
		}
		hints = nil
		for _, h := range list {
			if h == nil {
				return nil, errors.New(`--hints: "none" is no candidate: a hint is to be found`)
			}
			if *h > 0 {
				hints = append(hints, *h)
			}
		}
	}
	out := []tune.Candidate{{Lanes: control.LanesSingle}}
	lanes := []string{control.LanesSingle}
	switch {
	case f.lanes:
		lanes = []string{control.LanesSingle, control.LanesDual}
	case base.Lanes != nil:
		lanes = []string{*base.Lanes} // as the spec has it
	}
	for _, h := range hints {
		for _, l := range lanes {
			out = append(out, tune.Candidate{Hint: h, Lanes: l})
		}
	}
	if len(out) > maxConnections {
		return nil, fmt.Errorf("%d candidates are more than the %d clients of a bench serve; name fewer with --hints", len(out), maxConnections)
	}
	return out, nil
}

// settingsOf is what a workload's hint block asks for.
func settingsOf(w spec.Workload) control.Settings {
	var s control.Settings
	for _, want := range w.Wants {
		if want.Kind != param.Hint || len(want.Targets) == 0 {
			continue
		}
		for _, x := range want.Targets[0].Settings {
			n, isInt := x.Value.AsInt()
			text, isText := x.Value.AsText()
			b, isBool := x.Value.AsBool()
			switch {
			case x.ID == param.HintSize && isInt:
				s.Size = &n
			case x.ID == param.HintEagerMax && isInt:
				s.EagerMax = &n
			case x.ID == param.HintLanes && isText:
				s.Lanes = &text
			case x.ID == param.HintCompletion && isText:
				s.Completion = &text
			case x.ID == param.HintOrdered && isBool:
				s.Ordered = &b
			}
		}
	}
	return s
}

// tryCandidates measures, judges and records.
func (o *options) tryCandidates(ctx context.Context, s *session, w spec.Workload, f *tuneFlags, mix tune.Mix, candidates []tune.Candidate, objective tune.Objective, floor int64) (tune.Result, string, error) {
	facts, err := s.node.Facts(ctx)
	if err != nil {
		return tune.Result{}, "", err
	}
	m := &meter{s: s, facts: facts}
	var arms []arm
	for _, c := range candidates {
		a := arm{name: c.String(), settings: settingsOf(w)}
		a.settings.Size, a.settings.Lanes = &c.Hint, &c.Lanes
		arms = append(arms, a)
	}
	began := time.Now()
	before := s.node.Activity(facts, w.Device)
	common := bench.Options{Workload: w.Address, Device: w.Device, Stall: guardStall}
	if o.colorOn(os.Stderr) {
		common.Progress = benchProgress(common)
	}
	mixed := common
	mixed.Sizes, mixed.Weights, mixed.Mode, mixed.Count = mix.Sizes, mix.Weights, bench.Mixed, f.count
	latency, err := m.against(ctx, w.Device, f.peer, arms, mixed)
	switch cut := latency.CutShort(err); {
	case ctx.Err() != nil && !latency.Measured() && (err == nil || cut || errors.Is(err, context.Canceled)):
		return tune.Result{}, "", errUnmeasured
	case err != nil && !cut:
		return tune.Result{}, "", err
	}
	var bandwidth *bench.Report
	if floor > 0 && !latency.Interrupted {
		stream := common
		stream.Sizes, stream.Mode, stream.Count = []int64{slices.Max(mix.Sizes)}, bench.Streams, 500
		r, err := m.against(ctx, w.Device, f.peer, arms, stream)
		switch {
		case ctx.Err() != nil: // what there is of the latencies counts
			latency.Interrupted = true
		case err != nil:
			return tune.Result{}, "", err
		default:
			bandwidth = &r
		}
	}
	res, err := tune.Judge(candidates, latency, bandwidth, mix, objective, floor)
	if err != nil {
		return res, "", err
	}
	id, err := s.recordTuning(context.WithoutCancel(ctx), m, w, latency, bandwidth, began, before, res)
	return res, id, err
}

// tuneNote begins the note by which an experiment of tune is told.
const tuneNote = "tune: "

// recordTuning writes all tries as one experiment.
func (s *session) recordTuning(ctx context.Context, m *meter, w spec.Workload, latency bench.Report, bandwidth *bench.Report, began time.Time, before node.Activity, res tune.Result) (string, error) {
	db, err := experiment.Open(ctx, s.node.StateDir())
	if err != nil {
		return "", err
	}
	defer db.Close()
	e := experiment.Experiment{
		ID: experiment.NewID(began), Time: began.UTC(), Kind: experiment.Bench, Workload: w.Address, Status: experiment.Done,
		Duration: time.Since(began), Node: s.identity(m.facts, w.Device), Device: w.Device, Simulated: latency.Simulated, Version: spec.Version,
		Detail: experiment.Detail{Notes: append(latency.Notes(), tuneNote+res.Why)},
	}
	if res.Interrupted {
		e.Status = experiment.Interrupted
	}
	s.surroundings(ctx, &e, m.facts, w.Device, before)
	for _, x := range latency.Series {
		e.Series = append(e.Series, experiment.Series{Name: x.Name, Hint: x.Hint, Profile: x.Profile})
	}
	reports := []bench.Report{latency}
	if bandwidth != nil {
		reports = append(reports, *bandwidth)
	}
	for _, r := range reports {
		for _, z := range r.Sizes {
			size, err := recorded(r, z)
			if err != nil {
				return "", err
			}
			e.Sizes = append(e.Sizes, size)
		}
	}
	return e.ID, db.Finish(ctx, e)
}
