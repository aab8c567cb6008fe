package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
)

// referee is who the others are compared with.
const referee = "perftest"

// markdown renders the results.
func (r Results) markdown() string {
	var b strings.Builder
	b.WriteString(`# Performance

Made by ` + "`go run ./test/bench`" + `, which runs the contestants in turns, each of them once a
round. A number is the median over the rounds; a ratio is to perftest's, with the
interval that holds it in 95 of 100 repetitions (percentile bootstrap over rounds).
Latencies are half round trips, as perftest and UCX print them. The machine: ` + r.Machine + `.
`)
	if strings.Contains(r.Machine, "TCG") {
		b.WriteString(`
In an emulated machine ratios say something, absolute numbers say nothing of any NIC.
`)
	}
	if r.Load != "" {
		b.WriteString(`
Before the last measurement the host's load average was ` + r.Load + `, to which those before it belong.
Other work on the host would show in the tails and in wide intervals.
`)
	}
	for _, kind := range []struct{ title, prefix, metric, unit string }{
		{"Latency", "latency", metricP50, "us"},
		{"Latency", "latency", metricP99, "us"},
		{"Bandwidth by send", "send bandwidth", metricRate, "MiB/s"},
		{"Bandwidth by RDMA write", "write bandwidth", metricRate, "MiB/s"},
	} {
		r.table(&b, kind.title, kind.prefix, kind.metric, kind.unit)
	}
	r.compared(&b, "The hint", "hint", byHint, metricP50, metricP99)
	r.compared(&b, "The hint by cause", "cause", byCause, metricP50, metricP99)
	r.compared(&b, "Two lanes", "lanes", byLanes, metricRate)
	r.compared(&b, "Completion", "completion", byCompletion, metricP50, metricP99, metricCPU, metricWakes)
	r.compared(&b, "The hint, between devices in software", "soft hint", byHint, metricP50, metricP99)
	r.compared(&b, "Two lanes, between devices in software that are 20 ms apart", "soft 20ms lanes", byLanes, metricRate)
	r.burstTables(&b)
	r.switches(&b)
	r.compared(&b, "Go's scheduler", "scheduler", byScheduler, metricP50, metricP99, metricRate)
	r.costs(&b)
	if r.Machine == labMachine {
		b.WriteString("\n" + labNotes)
	}
	return b.String()
}

// labNotes is what the lab's numbers say, in words.
//
//go:embed notes.md
var labNotes string

// costs renders what the binding itself costs.
func (r Results) costs(b *strings.Builder) {
	call, poll := r.runs("costs of the binding", "verbs binding", metricCall), r.runs("costs of the binding", "verbs binding", metricPoll)
	if len(call) == 0 || len(poll) == 0 {
		return
	}
	fmt.Fprintf(b, `
## The binding alone

A call that polls an empty completion queue takes %.0f ns, each further poll within the
call %.0f ns: the difference is the way into C and back. A message takes two such ways,
one to post and one to wait (CQ.Spin polls many times in one); receives are posted and
sends are signaled in batches.
`, median(call), median(poll))
}

// table renders one metric of the measurements whose names start with prefix.
func (r Results) table(b *strings.Builder, title, prefix, metric, unit string) {
	var names, who []string
	for _, s := range r.Series {
		if s.Metric != metric || !strings.HasPrefix(s.Measurement, prefix) {
			continue
		}
		if !slices.Contains(names, s.Measurement) {
			names = append(names, s.Measurement)
		}
		if !slices.Contains(who, s.Contestant) {
			who = append(who, s.Contestant)
		}
	}
	if len(names) == 0 {
		return
	}
	if unit != metric {
		title += ", " + metric
	}
	fmt.Fprintf(b, "\n## %s (%s)\n\n| size | runs |", title, unit)
	for _, c := range who {
		fmt.Fprintf(b, " %s |", c)
		if c != referee {
			b.WriteString(" ratio |")
		}
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", 2*len(who)-1) + "\n")
	for _, name := range names {
		base := r.runs(name, referee, metric)
		fmt.Fprintf(b, "| %s | %d |", strings.TrimPrefix(name, prefix+" "), len(base))
		for _, c := range who {
			runs := r.runs(name, c, metric)
			if len(runs) == 0 {
				b.WriteString(" - | - |")
				continue
			}
			v := median(runs)
			if unit == "us" {
				v /= 1000
			}
			fmt.Fprintf(b, " %.1f |", v)
			switch x := compare(runs, base); {
			case c == referee:
			case len(base) == 0:
				b.WriteString(" - |")
			default:
				fmt.Fprintf(b, " %.2f (%.2f to %.2f) |", x.value, x.low, x.high)
			}
		}
		b.WriteString("\n")
	}
}

// number writes v to three or four digits, without an exponent.
func number(v float64) string {
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (r Results) runs(measurement, contestant, metric string) []float64 {
	for _, s := range r.Series {
		if s.Measurement == measurement && s.Contestant == contestant && s.Metric == metric {
			return s.Runs
		}
	}
	return nil
}
