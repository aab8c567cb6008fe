package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// benchProgress shows how far a long run is, on a terminal.
func benchProgress(bo bench.Options) func(bench.Progress) {
	var last time.Time
	return func(p bench.Progress) {
		if time.Since(last) < 200*time.Millisecond {
			return
		}
		last = time.Now()
		of := ""
		if bo.Duration > 0 {
			of = " of " + bo.Duration.String()
		}
		printf(os.Stderr, "\r\x1b[K%s%s: %s, %d messages\r", p.Elapsed.Round(100*time.Millisecond), of, param.FormatBytes(p.Size), p.N)
	}
}

// record writes the run to the experiment database and returns its id.
func (o *options) record(ctx context.Context, x *bencher, b *benchFlags, r bench.Report, began time.Time, runErr error) (string, error) {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	db, err := experiment.Open(ctx, x.node.StateDir())
	if err != nil {
		return "", err
	}
	defer db.Close()
	e := experiment.Experiment{
		ID: experiment.NewID(began), Time: began.UTC(), Kind: experiment.Bench, Workload: b.workload, Status: experiment.Done,
		Duration: time.Since(began), Node: x.identity(x.facts, x.device), Device: x.device, Simulated: x.simulated, Version: spec.Version,
	}
	switch {
	case runErr != nil:
		e.Status, e.Error = experiment.Failed, runErr.Error()
	case !r.OK():
		e.Status, e.Error = experiment.Failed, "messages were lost, duplicated, reordered or corrupted"
	case interrupted:
		e.Status = experiment.Interrupted
	}
	hint := "(unset)"
	if x.conn.Hint != nil {
		hint = param.FormatBytes(*x.conn.Hint)
	}
	for _, s := range [][2]string{{"hint", hint}, {"origin", x.conn.Origin}, {"profile", x.conn.Profile}, {"completion", x.conn.Completion}} {
		e.Settings = append(e.Settings, experiment.Setting{Address: "connection", Attr: s[0], Value: s[1]})
	}
	for _, s := range r.Sizes {
		h, err := s.Latency.Encode()
		if err != nil {
			return "", err
		}
		e.Sizes = append(e.Sizes, experiment.Size{
			Kind: experiment.RoundTrip, Size: s.Size, Warmup: int64(r.Warmup), N: s.Latency.N(), P50: s.Latency.Quantile(0.5).Nanoseconds(),
			P99: s.Latency.Quantile(0.99).Nanoseconds(), Max: s.Latency.Max().Nanoseconds(),
			Lost: int64(s.Lost), Duplicated: int64(s.Duplicated), Reordered: int64(s.Reordered), Corrupted: int64(s.Corrupted), Histogram: h,
		})
	}
	for _, w := range r.Switches {
		e.Switches = append(e.Switches, experiment.Switch{Workload: b.workload, PID: os.Getpid(), Connection: strconv.FormatUint(x.conn.ID, 10), Generation: w.Generation, Outcome: w.Outcome,
			Pause: w.Pause, Drained: int64(w.Drained), Held: int64(w.Held)})
	}
	return e.ID, db.Finish(ctx, e)
}
