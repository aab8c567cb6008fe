// Package tune finds the hint that serves a workload best, out of what was measured
// with each candidate side by side.
package tune

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/param"
)

// FormatVersion is the version of a Result's JSON.
const FormatVersion = "1.1"

// A Mix is the sizes of a workload's messages, ascending, with their weights.
type Mix struct {
	Sizes   []int64
	Weights []float64
}

// maxSizes bounds the sizes of a mix: each is measured by itself.
const maxSizes = 16

// MixOf makes a mix of counts by size, in bins of powers of two that are named by
// their lower ends. A bin is measured in its middle; the rarest are left out where
// there are too many.
func MixOf(bins map[int64]uint64) Mix {
	type bin struct {
		size  int64
		count uint64
	}
	var list []bin
	for from, count := range bins {
		size := min(max(from+from/2, bench.MinSize), bench.MaxSize)
		if count > 0 {
			list = append(list, bin{size, count})
		}
	}
	slices.SortFunc(list, func(a, b bin) int {
		if a.count != b.count {
			return int(min(max(int64(b.count)-int64(a.count), -1), 1))
		}
		return int(min(max(a.size-b.size, -1), 1))
	})
	list = list[:min(len(list), maxSizes)]
	slices.SortFunc(list, func(a, b bin) int { return int(min(max(a.size-b.size, -1), 1)) })
	var m Mix
	for _, b := range list {
		if n := len(m.Sizes); n > 0 && m.Sizes[n-1] == b.size {
			m.Weights[n-1] += float64(b.count)
			continue
		}
		m.Sizes, m.Weights = append(m.Sizes, b.size), append(m.Weights, float64(b.count))
	}
	return m
}

// total is the sum of the weights.
func (m Mix) total() float64 {
	sum := 0.0
	for _, w := range m.Weights {
		sum += w
	}
	return sum
}

// covering is the smallest size that a share of the messages does not exceed.
func (m Mix) covering(share float64) int64 {
	order := make([]int, len(m.Sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(min(max(m.Sizes[a]-m.Sizes[b], -1), 1)) })
	sum := 0.0
	for _, i := range order {
		if sum += m.Weights[i]; sum >= share*m.total()*(1-1e-12) {
			return m.Sizes[i]
		}
	}
	return m.Sizes[order[len(order)-1]]
}

// Hints are the candidates worth trying besides 0: the powers of two that cover half,
// three quarters and all but a hundredth of the messages.
func (m Mix) Hints() []int64 {
	var out []int64
	for _, share := range []float64{0.5, 0.75, 0.99} {
		h := int64(1)
		for h < m.covering(share) {
			h *= 2
		}
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// A Candidate is a hint with its lanes.
type Candidate struct {
	Hint  int64  `json:"hint"`  // bytes
	Lanes string `json:"lanes"` // single or dual
}

// String names the candidate.
func (c Candidate) String() string {
	name := "hint " + param.FormatBytes(c.Hint)
	if c.Hint > 0 && c.Lanes == "dual" {
		name += ", two lanes"
	}
	return name
}

// An Objective is what is to be small.
type Objective struct {
	Quantile float64 // 0: the mean of all messages
	Size     int64   // of the quantile
}

// ParseObjective reads "mean", "p50@SIZE" or "p99@SIZE".
func ParseObjective(s string) (Objective, error) {
	name, size, at := strings.Cut(s, "@")
	quantile, known := map[string]float64{"mean": 0, "p50": 0.5, "p99": 0.99}[name]
	if !known || at == (name == "mean") {
		return Objective{}, fmt.Errorf("%q is not mean, p50@SIZE or p99@SIZE", s)
	}
	if !at {
		return Objective{}, nil
	}
	n, _, err := param.ParseBytes(size)
	return Objective{quantile, n}, err
}

// String is what ParseObjective reads.
func (o Objective) String() string {
	if o.Quantile == 0 {
		return "mean"
	}
	return fmt.Sprintf("p%g@%s", 100*o.Quantile, param.FormatBytes(o.Size))
}

// A Result is the tries and the proposal.
type Result struct {
	Objective string `json:"objective"`
	Simulated bool   `json:"simulated"` // no hardware was measured
	// Interrupted says that the run was to be longer: nothing is proposed.
	Interrupted bool   `json:"interrupted"`
	Tries       []Try  `json:"tries"`
	Best        int    `json:"best"` // index of the proposed try, -1 for none
	Why         string `json:"why"`
}

// A Try is one candidate as measured.
type Try struct {
	Candidate
	Value     time.Duration `json:"value_ns"`
	By        float64       `json:"by"`    // relative to hint 0
	Shown     bool          `json:"shown"` // the difference from hint 0 is
	Bandwidth int64         `json:"bandwidth,omitempty"`
	Out       string        `json:"out,omitempty"` // why it is not proposed whatever its value

	low, high time.Duration // interval of the difference from hint 0
}

// errSize says that the objective's size was not measured.
var errSize = errors.New("the objective's size is not among those measured")

// Judge holds the candidates of a run, the first of which is hint 0, against each
// other. latency has one series for each candidate, in order; bandwidth likewise, and
// is nil where it was not measured. When either was interrupted, the result has what was
// measured until then.
func Judge(cs []Candidate, latency bench.Report, bandwidth *bench.Report, mix Mix, o Objective, floor int64) (Result, error) {
	r := Result{Objective: o.String(), Simulated: latency.Simulated, Interrupted: latency.Interrupted || bandwidth != nil && bandwidth.Interrupted}
	each := len(mix.Sizes)
	if len(cs) == 0 || len(latency.Sizes) != each*len(cs) || cs[0].Hint != 0 {
		return r, errors.New("the run does not have what was asked of it")
	}
	at := slices.Index(mix.Sizes, o.Size)
	if o.Quantile > 0 && at < 0 {
		return r, fmt.Errorf("%w: %s", errSize, param.FormatBytes(o.Size))
	}
	for i, c := range cs {
		t := Try{Candidate: c}
		rows, zero := latency.Sizes[i*each:(i+1)*each], latency.Sizes[:each]
		counted := rows
		if o.Quantile > 0 {
			counted = rows[at : at+1]
		}
		if r.Interrupted && !slices.ContainsFunc(counted, func(s bench.Size) bool { return s.Latency.N() > 0 }) {
			t.Out = "not measured"
			r.Tries = append(r.Tries, t)
			continue
		}
		if r.Interrupted && i > 0 && r.Tries[0].Value == 0 {
			zero = rows // there is nothing of hint 0 to hold it against
		}
		if o.Quantile > 0 {
			d := measure.Compare(zero[at].Latency, rows[at].Latency, o.Quantile)
			t.Value, t.By, t.Shown, t.low, t.high = d.B, d.By(), d.Shown(), d.Low, d.High
		} else {
			t.mean(rows, zero, mix)
		}
		if i == 0 {
			t.By, t.Shown = 0, false
		}
		if bandwidth != nil && i < len(bandwidth.Sizes) {
			t.Bandwidth = bandwidth.Sizes[i].Bandwidth()
			if t.Bandwidth < floor && !r.Interrupted {
				t.Out = "below the bandwidth that is needed"
			}
		}
		r.Tries = append(r.Tries, t)
	}
	if r.Interrupted {
		r.Best, r.Why = -1, "Interrupted: this is what was measured until then, and nothing is proposed."
		return r, nil
	}
	return r, r.choose()
}

// mean sets the value to the mean latency of all messages by their weights, and its
// interval by the normal approximation of the two means.
func (t *Try) mean(rows, zero []bench.Size, mix Mix) {
	value, variance := weighted(rows, mix)
	base, baseVariance := weighted(zero, mix)
	half := 1.96 * math.Sqrt(variance+baseVariance)
	t.Value = time.Duration(value)
	if base > 0 {
		t.By = (value - base) / base
	}
	t.low, t.high = time.Duration(value-base-half), time.Duration(value-base+half)
	t.Shown = t.low > 0 || t.high < 0
}

// weighted is the weighted mean of rows' latencies and the variance of that mean.
func weighted(rows []bench.Size, mix Mix) (mean, variance float64) {
	total := 0.0
	for i, s := range rows {
		if s.Latency.N() > 0 {
			total += mix.Weights[i]
		}
	}
	for i, s := range rows {
		if s.Latency.N() == 0 {
			continue // so rare that none was drawn
		}
		m, se := s.Latency.Mean()
		share := mix.Weights[i] / total
		mean += share * float64(m)
		variance += share * share * float64(se) * float64(se)
	}
	return mean, variance
}

// choose proposes the try with the least value among those that are shown to be better
// than hint 0, else hint 0.
func (r *Result) choose() error {
	best := -1
	for i, t := range r.Tries {
		if t.Out != "" || i > 0 && (!t.Shown || t.By >= 0) && r.Tries[0].Out == "" {
			continue
		}
		if best < 0 || t.Value < r.Tries[best].Value {
			best = i
		}
	}
	if best < 0 {
		return errors.New("no candidate has the bandwidth that is needed")
	}
	r.Best = best
	t := r.Tries[best]
	switch {
	case best == 0:
		r.Why = "No candidate is shown to be better than hint 0: leave it at 0."
	case r.Tries[0].Out != "":
		r.Why = fmt.Sprintf("%s has the least %s of those with the bandwidth that is needed.", t.Candidate, r.Objective)
	default:
		r.Why = fmt.Sprintf("%s has the least %s: %.1f %% below hint 0 (95 %% interval %.1f to %.1f us).",
			t.Candidate, r.Objective, -100*t.By, float64(t.low)/1e3, float64(t.high)/1e3)
	}
	return nil
}
