package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
	Loses         *string   `json:"loses"` // from where the low-latency path does; null: no size has both hints
	Experiment    string    `json:"experiment"`

	warmup int
}

// A ringRow is one size. Times are of all ranks, in nanoseconds.
type ringRow struct {
	Size    int64 `json:"size"`
	Message int64 `json:"message"` // bytes of the largest one
	Hint    int64 `json:"hint"`    // the matched one, in bytes
	// Null is what was not measured; without both, so are the differences.
	Zero    *ringTime `json:"hint_0"`
	Matched *ringTime `json:"matched"`
	By      *float64  `json:"by"`    // of the means
	Shown   *bool     `json:"shown"` // that they differ

	zero, matched *measure.Histogram
	profiles      [2]map[string]string
}

type ringTime struct {
	N    int64 `json:"n"`
	Mean int64 `json:"mean_ns"`
	P50  int64 `json:"p50_ns"`
	P99  int64 `json:"p99_ns,omitempty"` // not below 100 samples
}

// String is number, mean and P99, in microseconds, as cells of a table.
func (t *ringTime) String() string {
	if t == nil {
		return "0\t-\t-"
	}
	p99 := "-"
	if t.P99 > 0 {
		p99 = fmt.Sprintf("%.1f", float64(t.P99)/1e3)
	}
	return fmt.Sprintf("%d\t%.1f\t%s", t.N, float64(t.Mean)/1e3, p99)
}

// newRingReport makes the report of what the ranks measured: the sizes that any of it is of.
func newRingReport(j ringJob, cells []ringCell) ringReport {
	r := ringReport{FormatVersion: "1.2", Ranks: j.Ranks, Sizes: []ringRow{}, warmup: j.Warmup}
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
		row.compare()
		r.Sizes = append(r.Sizes, row)
	}
	r.Loses = loses(r.Sizes)
	return r
}

// compare summarises what was measured of a row, and the difference where that is both.
func (row *ringRow) compare() {
	summary := func(h *measure.Histogram) *ringTime {
		s := h.Summary()
		if s.N == 0 {
			return nil
		}
		mean, _ := h.Mean()
		return &ringTime{s.N, int64(mean), int64(s.P50), int64(s.P99)}
	}
	row.Zero, row.Matched = summary(row.zero), summary(row.matched)
	if row.Zero == nil || row.Matched == nil {
		return
	}
	m0, se0 := row.zero.Mean()
	m1, se1 := row.matched.Mean()
	a, aSE, b, bSE := float64(m0), float64(se0), float64(m1), float64(se1)
	row.By = new((b - a) / a)
	// The means' difference by the normal approximation, at 95 %. One sample has no spread.
	row.Shown = new(row.comparable() && (b-a)*(b-a) > 1.96*1.96*(aSE*aSE+bSE*bSE))
}

// comparable reports whether there is enough of both hints for a conclusion.
func (row *ringRow) comparable() bool { return row.zero.N() > 1 && row.matched.N() > 1 }

// loses says from which size on the low-latency path takes longer, of the sizes that
// have both hints. Nil is no conclusion: there is none.
func loses(rows []ringRow) *string {
	from, largest := int64(-1), int64(-1)
	for _, row := range rows {
		if !row.comparable() {
			continue
		}
		largest = max(largest, row.Size)
		switch worse := *row.Shown && *row.By > 0; {
		case worse && from < 0:
			from = row.Size
		case !worse:
			from = -1
		}
	}
	switch {
	case largest < 0:
		return nil
	case from < 0:
		return new("up to " + param.FormatBytes(largest) + ", the low-latency path is not shown to lose")
	}
	return new("from " + param.FormatBytes(from) + " on, the low-latency path loses")
}

// record writes the report as an experiment into the database of stateDir.
func (r ringReport) record(ctx context.Context, stateDir string, e *experiment.Experiment) error {
	if err := r.describe(e); err != nil {
		return err
	}
	db, err := experiment.Open(ctx, stateDir)
	if err != nil {
		return err
	}
	return errors.Join(db.Finish(ctx, *e), db.Close())
}

// describe adds the report to an experiment.
func (r ringReport) describe(e *experiment.Experiment) error {
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
	printf(w, "SIZE\tMESSAGE\tMATCHED HINT\tHINT 0 N\tMEAN\tP99\tMATCHED N\tMEAN\tP99\tDIFFERENCE\t\n")
	for _, x := range r.Sizes {
		by := "-"
		switch {
		case !x.comparable():
		case *x.Shown:
			by = fmt.Sprintf("%+.1f %%", 100**x.By)
		default:
			by = "none shown"
		}
		printf(w, "%s\t%s\t%d B\t%s\t%s\t%s\t\n", param.FormatBytes(x.Size), param.FormatBytes(x.Message), x.Hint, x.Zero, x.Matched, by)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printf(os.Stdout, "\nEvery rank times every all-reduce: N is the all-reduces of a size and hint times %d.\n", r.Ranks)
	if r.Interrupted {
		printf(os.Stdout, "\nInterrupted: this is what was measured until then.\n")
	}
	conclusion := "No conclusion: no size was measured with both hints"
	if r.Loses != nil {
		conclusion = strings.ToUpper((*r.Loses)[:1]) + (*r.Loses)[1:]
	}
	printf(os.Stdout, "\n%s.\n", conclusion)
	if r.Experiment != "" {
		printf(os.Stdout, "\nExperiment %s.\n", r.Experiment)
	}
	return nil
}
