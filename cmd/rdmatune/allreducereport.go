package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/rdmatune/rdmatune/bench/ring"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/param"
)

// A ringReport is what bench allreduce prints.
type ringReport struct {
	FormatVersion string    `json:"format_version"`
	Ranks         int       `json:"ranks"`
	Simulated     bool      `json:"simulated"`
	Interrupted   bool      `json:"interrupted"` // the run was to be longer
	Sizes         []ringRow `json:"sizes"`
	Loses         string    `json:"loses"` // from where the low-latency path does
	Experiment    string    `json:"experiment"`

	warmup int
}

// A ringRow is one size. Times are of all ranks, in nanoseconds.
type ringRow struct {
	Size    int64    `json:"size"`
	Message int64    `json:"message"` // bytes of the largest one
	Hint    int64    `json:"hint"`    // the matched one, in bytes
	Zero    ringTime `json:"hint_0"`
	Matched ringTime `json:"matched"`
	By      float64  `json:"by"`    // of the means
	Shown   bool     `json:"shown"` // that they differ

	zero, matched *measure.Histogram
	profiles      [2]map[string]string
}

type ringTime struct {
	N    int64 `json:"n"`
	Mean int64 `json:"mean_ns"`
	P50  int64 `json:"p50_ns"`
	P99  int64 `json:"p99_ns"`
}

// newRingReport makes the report of what the ranks measured: the sizes that any of it is of.
func newRingReport(j ringJob, cells []ringCell) ringReport {
	r := ringReport{FormatVersion: "1.1", Ranks: j.Ranks, Sizes: []ringRow{}, warmup: j.Warmup}
	for _, size := range j.Sizes {
		row := ringRow{Size: size, Message: ring.Chunk(size, j.Ranks), Hint: ring.MatchedHint(size, j.Ranks), zero: measure.New(), matched: measure.New()}
		for _, c := range cells {
			if c.Size != size {
				continue
			}
			h, err := measure.Decode(c.Histogram)
			if err != nil {
				continue // a rank of the same program wrote it
			}
			if c.Matched {
				row.matched.Merge(h)
				row.profiles[1] = c.Profile
			} else {
				row.zero.Merge(h)
				row.profiles[0] = c.Profile
			}
		}
		if row.zero.N()+row.matched.N() == 0 {
			continue
		}
		mean := func(h *measure.Histogram) (ringTime, float64, float64) {
			m, se := h.Mean()
			return ringTime{h.N(), int64(m), int64(h.Quantile(0.5)), int64(h.Quantile(0.99))}, float64(m), float64(se)
		}
		var a, aSE, b, bSE float64
		row.Zero, a, aSE = mean(row.zero)
		row.Matched, b, bSE = mean(row.matched)
		if a > 0 && b > 0 {
			row.By = (b - a) / a
		}
		// The means' difference by the normal approximation, at 95 %. One sample has no spread.
		row.Shown = row.Zero.N > 1 && row.Matched.N > 1 && (b-a)*(b-a) > 1.96*1.96*(aSE*aSE+bSE*bSE)
		r.Sizes = append(r.Sizes, row)
	}
	r.Loses = loses(r.Sizes)
	return r
}

// loses says from which size on the low-latency path takes longer.
func loses(rows []ringRow) string {
	from := int64(-1)
	for _, row := range rows {
		switch worse := row.Shown && row.By > 0; {
		case worse && from < 0:
			from = row.Size
		case !worse:
			from = -1
		}
	}
	if from < 0 {
		return "up to the largest size, the low-latency path is not shown to lose"
	}
	return "from " + param.FormatBytes(from) + " on, the low-latency path loses"
}

// record adds the report to an experiment.
func (r ringReport) record(e *experiment.Experiment) error {
	for i, row := range r.Sizes {
		for k, h := range []*measure.Histogram{row.zero, row.matched} {
			if h.N() == 0 {
				continue
			}
			name, hint := "hint 0", int64(0)
			if k == 1 {
				name, hint = "matched hint, "+param.FormatBytes(row.Size), row.Hint
			}
			if k == 1 || i == 0 {
				e.Series = append(e.Series, experiment.Series{Name: name, Hint: &hint, Profile: row.profiles[k]})
			}
			encoded, err := h.Encode()
			if err != nil {
				return err
			}
			sum := h.Summary()
			e.Sizes = append(e.Sizes, experiment.Size{
				Series: name, Kind: experiment.AllReduce, Size: row.Size, Warmup: int64(r.warmup), N: sum.N, P50: int64(sum.P50),
				P99: int64(sum.P99), P999: int64(sum.P999), Max: int64(sum.Max), Histogram: encoded,
			})
		}
	}
	return nil
}

func (r ringReport) writeText() error {
	label := ""
	if r.Simulated {
		label = ", simulated device"
	}
	printf(os.Stdout, "Ring all-reduce of %d ranks, time until all have the sums, microseconds%s\n\n", r.Ranks, label)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	printf(w, "SIZE\tMESSAGE\tMATCHED HINT\tN\tHINT 0 MEAN\tP99\tMATCHED MEAN\tP99\tDIFFERENCE\t\n")
	for _, x := range r.Sizes {
		by := fmt.Sprintf("%+.1f %%", 100*x.By)
		if !x.Shown {
			by = "none shown"
		}
		us := func(ns int64) string {
			if ns == 0 {
				return "-" // not measured
			}
			return fmt.Sprintf("%.1f", float64(ns)/1e3)
		}
		printf(w, "%s\t%s\t%d B\t%d\t%s\t%s\t%s\t%s\t%s\t\n", param.FormatBytes(x.Size), param.FormatBytes(x.Message), x.Hint, x.Zero.N,
			us(x.Zero.Mean), us(x.Zero.P99), us(x.Matched.Mean), us(x.Matched.P99), by)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.Interrupted {
		printf(os.Stdout, "\nInterrupted: this is what was measured until then.\n")
	}
	printf(os.Stdout, "\nAnd %s.\n\nExperiment %s.\n", r.Loses, r.Experiment)
	return nil
}
