package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/param"
)

// WriteText writes the report as tables for a person.
func (r Report) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.printf("%s on %s (%s)\n\n", orNone(r.Workload), orNone(r.Device), r.label())
	switch {
	case r.Mode.Streaming():
		r.writeBandwidth(p)
	case len(r.Series) > 1:
		r.writeSideBySide(p)
	default:
		r.writeLatency(p)
	}
	r.writeSends(p)
	r.writeFaults(p)
	r.writeOutliers(p)
	if r.Unknown == 1 {
		p.printf("\n1 message was under way when the run ended: its fate is not known.\n")
	} else if r.Unknown > 1 {
		p.printf("\n%d messages were under way when the run ended: their fate is not known.\n", r.Unknown)
	}
	if r.Interrupted {
		p.printf("\nInterrupted: this is what was measured until then.\n")
	}
	if !r.Complete && r.Interrupted {
		p.printf("\nThe server's own counts are missing: they did not come in time.\n")
	} else if !r.Complete {
		p.printf("\nThe server's own counts are missing: the connection broke before they came.\n")
	}
	for _, s := range r.Switches {
		p.printf("\nSwitch to generation %d: %s; %s held, %d drained, pause %s us.\n",
			s.Generation, s.Outcome, param.Count(s.Held, "message"), s.Drained, text(s.Pause))
	}
	if r.Experiment != "" {
		p.printf("\nExperiment %s.\n", r.Experiment)
	}
	return p.err
}

// A printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table writes rows, the first of names, right-aligned.
func (p *printer) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

// label says what the numbers are and what they are not.
func (r Report) label() string {
	var parts []string
	switch r.Mode {
	case Streams:
		parts = append(parts, "stream, "+param.Count(r.InFlight, "message")+" in flight")
	case BothWays:
		parts = append(parts, "stream in both directions, "+param.Count(r.InFlight, "message")+" in flight in each")
	case Mixed:
		parts = append(parts, "round trip of mixed sizes, microseconds")
	default:
		parts = append(parts, "round trip, microseconds")
	}
	if r.Conns > 1 {
		parts = append(parts, fmt.Sprintf("%d connections", r.Conns))
	}
	if r.Burst > 1 {
		parts = append(parts, fmt.Sprintf("bursts of %d", r.Burst))
	}
	if r.Rate > 0 {
		parts = append(parts, fmt.Sprintf("at most %g messages per second on each", r.Rate))
	}
	if r.Simulated {
		parts = append(parts, "simulated device")
	}
	if r.Warmup == 0 {
		return strings.Join(parts, ", ") + "; cold: no warm-up"
	}
	return strings.Join(parts, ", ") + "; " + param.Count(r.Warmup, "warm-up message") + " per change of size not timed"
}

func (r Report) writeLatency(p *printer) {
	rows := [][]string{{"SIZE", "TIER", "N", "P50", "P90", "P99", "P99.9", "MAX"}}
	fewest := int64(measure.TailSamples)
	for _, s := range r.Sizes {
		sum := s.Latency.Summary()
		row := []string{param.FormatBytes(s.Size), orDash(s.Tier), fmt.Sprint(sum.N)}
		for _, d := range []time.Duration{sum.P50, sum.P90, sum.P99, sum.P999, sum.Max} {
			row = append(row, textOrDash(d))
		}
		fewest = min(fewest, sum.N)
		rows = append(rows, row)
	}
	p.table(rows)
	p.explain(fewest)
}

// explain says what the quantiles that are not shown need, where a size has as few
// samples as fewest.
func (p *printer) explain(fewest int64) {
	switch {
	case fewest < measure.P90Samples:
		p.printf("\nP90 needs %d samples of a size, P99 %d, P99.9 %d.\n", measure.P90Samples, measure.P99Samples, measure.TailSamples)
	case fewest < measure.P99Samples:
		p.printf("\nP99 needs %d samples of a size, P99.9 %d.\n", measure.P99Samples, measure.TailSamples)
	case fewest < measure.TailSamples:
		p.printf("\nP99.9 needs %d samples of a size.\n", measure.TailSamples)
	}
}

// writeSideBySide writes one column of P50 and P99 for each arm.
func (r Report) writeSideBySide(p *printer) {
	head := []string{"SIZE", "N"}
	for _, s := range r.Series {
		head = append(head, s.Name)
	}
	rows := [][]string{head}
	each := len(r.Sizes) / len(r.Series) // Sizes are by arm
	thin := false
	for i := range each {
		first := r.Sizes[i]
		row := []string{param.FormatBytes(first.Size), fmt.Sprint(first.Latency.N())}
		for a := range r.Series {
			s := r.Sizes[a*each+i]
			sum := s.Latency.Summary()
			row = append(row, textOrDash(sum.P50)+" / "+textOrDash(sum.P99))
			thin = thin || sum.P99 == 0
		}
		rows = append(rows, row)
	}
	p.printf("P50 / P99:\n\n")
	p.table(rows)
	if thin {
		p.printf("\nP99 needs %d samples of a size.\n", measure.P99Samples)
	}
}

// writeSends writes how long calls of Send took in bursts: where a queue fills, its
// sender waits.
func (r Report) writeSends(p *printer) {
	rows := [][]string{{"SIZE", "TIER", "P50", "P99", "QUEUE FULL", "P50 THEN", "LONG", "OF THESE FULL"}}
	if len(r.Series) > 1 {
		rows[0] = append([]string{"SERIES"}, rows[0]...)
	}
	for _, s := range r.Sizes {
		if s.Sends.Took == nil {
			continue
		}
		sum, out := s.Sends.Took.Summary(), s.Sends.Outliers()
		row := []string{param.FormatBytes(s.Size), orDash(s.Tier), textOrDash(sum.P50), textOrDash(sum.P99), "-", "-", fmt.Sprint(out.N), "-"}
		if s.Sends.Full != nil {
			row[4], row[5], row[7] = fmt.Sprint(s.Sends.Full.N()), textOrDash(s.Sends.Full.Quantile(0.5)), fmt.Sprint(out.Full)
		}
		if len(r.Series) > 1 {
			row = append([]string{s.Series}, row...)
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		p.printf("\nTime in Send; long is %d times P50 and more:\n\n", measure.OutlierFactor)
		p.table(rows)
	}
}

func (r Report) writeBandwidth(p *printer) {
	head := []string{"SIZE", "TIER", "MESSAGES", "MiB/s", "Gb/s"}
	if len(r.Series) > 1 {
		head = append([]string{"SERIES"}, head...)
	}
	rows := [][]string{head}
	for _, s := range r.Sizes {
		b := float64(s.Bandwidth())
		row := []string{param.FormatBytes(s.Size), orDash(s.Tier), fmt.Sprint(s.Messages), "-", "-"}
		if b > 0 {
			row[3], row[4] = fmt.Sprintf("%.1f", b/(1<<20)), fmt.Sprintf("%.3f", b*8/1e9)
		}
		if len(r.Series) > 1 {
			row = append([]string{s.Series}, row...)
		}
		rows = append(rows, row)
	}
	p.table(rows)
}

// writeFaults says that all is well, or what is not.
func (r Report) writeFaults(p *printer) {
	rows := [][]string{{"SIZE", "LOST", "DUPLICATED", "REORDERED", "CORRUPTED"}}
	sent := uint64(0)
	for _, s := range r.Sizes {
		sent += s.Sent
		if !s.Counts.OK() {
			rows = append(rows, []string{
				param.FormatBytes(s.Size), fmt.Sprint(s.Lost), fmt.Sprint(s.Duplicated), fmt.Sprint(s.Reordered), fmt.Sprint(s.Corrupted),
			})
		}
	}
	if len(rows) > 1 {
		p.printf("\n")
		p.table(rows)
		return
	}
	if r.Complete {
		p.printf("\nOf %s sent, none was lost, duplicated, reordered or corrupted.\n", param.Count(sent, "message"))
	}
}

// writeOutliers says how often a message took far longer than most, and when the
// senders found their queue full.
func (r Report) writeOutliers(p *printer) {
	if len(r.Series) > 1 {
		r.writeFull(p)
		return
	}
	first := true
	for _, s := range r.Sizes {
		var said []string
		if s.Latency != nil {
			if o := s.Latency.Outliers(); o.N > 1 && len(s.Worst) > 0 {
				said = append(said, fmt.Sprintf("outliers of %.1f times P50 about every %.0f messages (%d of %d); the longest was message %d, %s into the run",
					o.Factor, o.Every, o.N, s.Latency.N(), s.Worst[0].Index+1, s.Worst[0].At.Round(time.Millisecond)))
			}
		}
		if s.FullEvents > 0 {
			said = append(said, "the send queue was full "+param.Count(s.FullEvents, "time"))
		}
		if len(said) == 0 {
			continue
		}
		if first {
			p.printf("\n")
			first = false
		}
		name := param.FormatBytes(s.Size)
		if r.Mode == Mixed && s.FullEvents > 0 && len(said) == 1 {
			name = "all sizes" // counted for the turn, which has all of them
		}
		p.printf("%s: %s.\n", name, strings.Join(said, "; "))
	}
}

// writeFull says of each arm how often its senders found the queue full.
func (r Report) writeFull(p *printer) {
	for i, series := range r.Series {
		full := uint64(0)
		for _, s := range r.Sizes {
			if s.Series == series.Name {
				full += s.FullEvents
			}
		}
		if i == 0 {
			p.printf("\n")
		}
		p.printf("%s: the send queue was full %s.\n", series.Name, param.Count(full, "time"))
	}
}

func text(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Nanoseconds())/1000) }

// textOrDash is text; no latency is zero, so 0 is one that is not there.
func textOrDash(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return text(d)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "(no name)"
	}
	return s
}
