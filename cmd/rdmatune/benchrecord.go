package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
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
		what := param.FormatBytes(p.Size)
		if p.Series != "" {
			what = p.Series + ", " + what
		}
		printf(os.Stderr, "\r\x1b[K%s%s: %s, %s\r", p.Elapsed.Round(100*time.Millisecond), of, what, param.Count(p.N, "message"))
	}
}

// tierOf is the tier by which a connection carries messages of size.
func tierOf(info transport.ConnInfo, size int64) string {
	for _, b := range info.Bands {
		if b.From <= size && size <= b.To {
			return b.Tier
		}
	}
	return ""
}

// profileOf is a connection's profile as granted, by attribute.
func profileOf(info transport.ConnInfo) map[string]string {
	m := map[string]string{
		"name": info.Profile, "completion": info.Completion, "origin": info.Origin,
		"eager": strconv.FormatInt(info.Eager, 10), "inline": strconv.FormatInt(info.Inline, 10),
		"lanes": strconv.Itoa(len(info.Lanes)), "ordered": strconv.FormatBool(info.Ordered),
	}
	for _, l := range info.Lanes {
		lane := "lane" + strconv.Itoa(l.Index) + "."
		m[lane+"send_wr"], m[lane+"recv_wr"] = strconv.Itoa(l.SendWR), strconv.Itoa(l.RecvWR)
		m[lane+"max_inline"], m[lane+"segment"] = strconv.Itoa(l.MaxInline), strconv.Itoa(l.Segment)
		m[lane+"moderated"] = strconv.FormatBool(l.Moderated)
	}
	if len(info.Degraded) > 0 {
		m["degraded"] = strings.Join(info.Degraded, "; ")
	}
	return m
}

// record writes the run to the experiment database and returns its id. cut: an interrupt
// ended it before the server's account came.
func (o *options) record(ctx context.Context, x *bencher, b *benchFlags, r bench.Report, began time.Time, before node.Activity, runErr error, cut bool) (string, error) {
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
		Detail: experiment.Detail{Notes: r.Notes()},
	}
	x.surroundings(ctx, &e, x.facts, x.device, before)
	switch {
	case runErr != nil:
		e.Status, e.Error = experiment.Failed, runErr.Error()
	case !r.OK() && !cut:
		e.Status, e.Error = experiment.Failed, "messages were lost, duplicated, reordered or corrupted"
	case interrupted:
		e.Status = experiment.Interrupted
	}
	for _, s := range r.Series {
		e.Series = append(e.Series, experiment.Series{Name: s.Name, Hint: s.Hint, Profile: s.Profile})
	}
	for _, s := range r.Sizes {
		size, err := recorded(r, s)
		if err != nil {
			return "", err
		}
		e.Sizes = append(e.Sizes, size)
	}
	for _, c := range x.conns {
		for _, w := range c.Info().Switches {
			e.Switches = append(e.Switches, experiment.Switch{
				Workload: b.workload, PID: os.Getpid(), Connection: strconv.FormatUint(c.Info().ID, 10), Generation: w.Generation,
				Outcome: w.Outcome, At: max(w.When.Sub(began), 0), Pause: w.Pause, Drained: int64(w.Drained), Held: int64(w.Held),
			})
		}
	}
	if err := db.Finish(ctx, e); err != nil {
		return "", err
	}
	return e.ID, nil
}

// recorded is one size of a report as the database has it.
func recorded(r bench.Report, s bench.Size) (experiment.Size, error) {
	out := experiment.Size{
		Series: s.Series, Kind: experiment.RoundTrip, Tier: s.Tier, Size: s.Size, Warmup: int64(r.Warmup), Bandwidth: s.Bandwidth(),
		Lost: int64(s.Lost), Duplicated: int64(s.Duplicated), Reordered: int64(s.Reordered), Corrupted: int64(s.Corrupted),
		SizeDetail: experiment.SizeDetail{Worst: s.Worst, HighWater: int64(s.HighWater), FullEvents: int64(s.FullEvents)},
	}
	for _, p := range s.Timeline {
		out.Timeline = append(out.Timeline, experiment.Point{At: p.At, Took: p.Took, N: p.N, P50: int64(p.P50), Max: int64(p.Max)})
	}
	if s.Took > 0 {
		out.Kind, out.N = experiment.Stream, s.Messages
		return out, nil
	}
	sum := s.Latency.Summary()
	out.N, out.P50, out.P99, out.P999, out.Max = sum.N, int64(sum.P50), int64(sum.P99), int64(sum.P999), int64(sum.Max)
	var err error
	out.Histogram, err = s.Latency.Encode()
	return out, err
}
