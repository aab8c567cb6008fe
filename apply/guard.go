package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/plan"
)

// A Measurement is what was measured for a guard.
type Measurement struct {
	// Latency is of the kinds that have one.
	Latency *measure.Histogram
	// Bandwidth is in bytes per second, of a stream.
	Bandwidth int64
	// Simulated says that no hardware was measured.
	Simulated bool
	// Record is the same for the experiment.
	Record []experiment.Size
	Series []experiment.Series
}

// errNoMeter is why nothing can be measured where there is nothing to measure with.
var errNoMeter = errors.New("nothing to measure with")

// ErrBreachStays: a guard that an earlier run could not measure is breached, and what it is
// about is not this run's to undo.
var ErrBreachStays = errors.New("what it is about was changed by an earlier run and stays; rdmatune destroy restores the originals")

// guard measures the guards of the workloads that were changed, in the state that the
// whole run has led to, and only then undoes those with a breach: a rollback would
// change what the next guard measures.
func (a *run) guard(ctx context.Context) {
	changed := map[string]bool{}
	for _, t := range a.targets {
		if t.through && !a.failed[t.workload] {
			changed[t.workload] = true
		}
	}
	var breached []string
	due := slices.Clone(a.doc.Unmeasured)
	for _, g := range a.plan.GuardsDue() {
		before := slices.Contains(due, g.Address()) // an earlier run owes it
		if !changed[g.Workload] && !before {
			continue // nothing of it came into force
		}
		verdict := a.judge(ctx, g)
		a.doc.Unmeasured = slices.DeleteFunc(a.doc.Unmeasured, func(x string) bool { return x == g.Address() })
		bad := verdict.Verdict == experiment.GuardBreached && !g.Warn
		if verdict.Verdict == experiment.GuardNotMeasured || bad && before {
			// Also what an earlier run has changed and a rollback of this one leaves.
			a.doc.Unmeasured = append(a.doc.Unmeasured, g.Address())
		}
		if bad && !changed[g.Workload] {
			a.result.Failures = append(a.result.Failures, fmt.Errorf("%s is breached: %w", g.Address(), ErrBreachStays))
		}
		a.result.Guards = append(a.result.Guards, verdict)
		a.Experiment.Guards = append(a.Experiment.Guards, verdict)
		if bad && changed[g.Workload] {
			breached = append(breached, g.Workload)
		}
	}
	for _, w := range breached {
		if !a.failed[w] {
			a.rollback(context.WithoutCancel(ctx), w, true)
		}
	}
	a.accept()
	// What was undone needs no verdict, unless what came back does.
	for _, g := range a.plan.Guards {
		if a.failed[g.Workload] && !slices.Contains(due, g.Address()) {
			a.doc.Unmeasured = slices.DeleteFunc(a.doc.Unmeasured, func(x string) bool { return x == g.Address() })
		}
	}
}

// judge measures one guard.
func (a *run) judge(ctx context.Context, g plan.Guard) experiment.Guard {
	v := experiment.Guard{Workload: g.Workload, Name: g.Name, Verdict: experiment.GuardNotMeasured}
	a.event(Event{Step: Measuring, Address: g.Address(), Detail: g.Limits()})
	began := time.Now()
	m, err := Measurement{}, errNoMeter
	switch {
	case ctx.Err() != nil || a.result.Interrupted:
		err = errors.New("interrupted")
	case a.Measure != nil:
		m, err = a.Measure(ctx, g)
	}
	if ctx.Err() != nil { // what was measured until then is a remnant
		err = errors.New("interrupted")
		a.result.Interrupted = true
	}
	if err != nil {
		v.Text = err.Error()
	} else {
		v.Verdict, v.Text = verdict(g, m)
		if m.Simulated {
			v.Text += ", simulated device"
			a.Experiment.Simulated = true
		}
		a.Experiment.Sizes = append(a.Experiment.Sizes, m.Record...)
		a.Experiment.Series = append(a.Experiment.Series, m.Series...)
	}
	a.event(Event{Step: Measured, Address: g.Address(), Detail: v.Verdict + ": " + v.Text, Took: time.Since(began)})
	return v
}

// minForP99 is how many samples a 99th percentile takes: with fewer, it is the longest.
const minForP99 = 100

// verdict holds m against g's limits.
func verdict(g plan.Guard, m Measurement) (verdict, text string) {
	var said []string
	breached := false
	limit := func(what string, got, most time.Duration) {
		relation := "<="
		if got > most {
			relation, breached = ">", true
		}
		said = append(said, fmt.Sprintf("%s %s %s %s", what, got.Round(10*time.Nanosecond), relation, most))
	}
	if g.BandwidthMin > 0 {
		if m.Bandwidth <= 0 {
			return experiment.GuardNotMeasured, "no bandwidth was measured"
		}
		relation := ">="
		if m.Bandwidth < g.BandwidthMin {
			relation, breached = "<", true
		}
		said = append(said, fmt.Sprintf("%.1f MiB/s %s %.1f MiB/s", float64(m.Bandwidth)/(1<<20), relation, float64(g.BandwidthMin)/(1<<20)))
	}
	if g.P50Max > 0 || g.P99Max > 0 {
		if m.Latency == nil || m.Latency.N() == 0 {
			return experiment.GuardNotMeasured, "no message was timed"
		}
		if n := m.Latency.N(); g.P99Max > 0 && n < minForP99 {
			return experiment.GuardNotMeasured, fmt.Sprintf("%d messages were timed; a p99 takes %d", n, minForP99)
		}
		if g.P50Max > 0 {
			limit("p50", m.Latency.Quantile(0.5), g.P50Max)
		}
		if g.P99Max > 0 {
			limit("p99", m.Latency.Quantile(0.99), g.P99Max)
		}
		said = append(said, fmt.Sprintf("n %d", m.Latency.N()))
	}
	text = strings.Join(said, ", ")
	if breached {
		return experiment.GuardBreached, text
	}
	return experiment.GuardPassed, text
}
