package experiment

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/rdmatune/rdmatune/measure"
)

// ErrHardware says that two experiments were made on different hardware.
var ErrHardware = errors.New("different hardware")

// A Comparison is what one experiment's numbers say beside another's.
type Comparison struct {
	A, B      Side         `json:"-"`
	Sizes     []SizeChange `json:"sizes"`
	Differs   []Differing  `json:"differs"`
	Unmatched []string     `json:"unmatched"` // what only one of them measured
	Verdict   string       `json:"verdict"`   // overall, or why there is none
	Cause     string       `json:"cause"`     // what the difference can be attributed to
}

// A Side is one series of an experiment.
type Side struct {
	Experiment
	Series string
}

// A SizeChange compares one size of one kind.
type SizeChange struct {
	Kind      string                    `json:"kind"`
	Size      int64                     `json:"size"`
	Quantiles map[string]QuantileChange `json:"quantiles,omitempty"` // by "p50", "p99", "p99.9"
	Bandwidth *BandwidthChange          `json:"bandwidth,omitempty"`
}

// A QuantileChange is a difference of quantiles in nanoseconds, with its interval in
// which 95 of 100 repetitions would lie.
type QuantileChange struct {
	A     int64   `json:"a_ns"`
	B     int64   `json:"b_ns"`
	Low   int64   `json:"low_ns"`
	High  int64   `json:"high_ns"`
	By    float64 `json:"by"` // (B - A) / A
	Shown bool    `json:"shown"`
}

// A BandwidthChange is a difference of bandwidths in bytes per second.
type BandwidthChange struct {
	A     int64   `json:"a"`
	B     int64   `json:"b"`
	By    float64 `json:"by"` // (B - A) / A
	P     float64 `json:"p"`  // how likely such a difference is when there is none
	Shown bool    `json:"shown"`
}

// A Differing is something that is not the same in both.
type Differing struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
	// Follows says that it follows from a hint that differs, and is no cause of its own.
	Follows bool `json:"follows,omitempty"`
}

// quantiles are those compared, and the samples that each needs on both sides.
var quantiles = []struct {
	name string
	q    float64
	n    int64
}{{"p50", 0.5, 1}, {"p99", 0.99, 100}, {"p99.9", 0.999, measure.TailSamples}}

// Compare says what differs from a to b. Experiments of different hardware are refused
// with ErrHardware unless force is set.
func Compare(a, b Side, force bool) (Comparison, error) {
	c := Comparison{A: a, B: b, Sizes: []SizeChange{}, Differs: []Differing{}, Unmatched: []string{}}
	if why := hardware(a.Experiment, b.Experiment); why != "" && !force {
		return c, fmt.Errorf("%w: %s", ErrHardware, why)
	}
	rowsA, err := a.rows()
	if err != nil {
		return c, err
	}
	rowsB, err := b.rows()
	if err != nil {
		return c, err
	}
	for _, x := range rowsA {
		at := slices.IndexFunc(rowsB, func(y Size) bool { return x.Kind == y.Kind && x.Size == y.Size })
		if at < 0 {
			c.Unmatched = append(c.Unmatched, fmt.Sprintf("%s of %d bytes: only in %s", x.Kind, x.Size, a.ID))
			continue
		}
		change, err := compareSizes(x, rowsB[at])
		if err != nil {
			return c, err
		}
		c.Sizes = append(c.Sizes, change)
	}
	for _, y := range rowsB {
		if !slices.ContainsFunc(rowsA, func(x Size) bool { return x.Kind == y.Kind && x.Size == y.Size }) {
			c.Unmatched = append(c.Unmatched, fmt.Sprintf("%s of %d bytes: only in %s", y.Kind, y.Size, b.ID))
		}
	}
	if len(c.Sizes) == 0 {
		return c, fmt.Errorf("%s and %s measured nothing in common", a.ID, b.ID)
	}
	c.Differs = differing(a, b)
	c.Cause = cause(c.Differs)
	c.Verdict = verdict(c.Sizes)
	return c, nil
}

// rows returns the measurements of the side's series; of an experiment with several,
// one must be named.
func (s Side) rows() ([]Size, error) {
	if s.Series == "" && len(s.Experiment.Series) > 1 {
		return nil, fmt.Errorf("experiment %s has several series; name one, such as %s:%s", s.ID, s.ID, s.Experiment.Series[0].Name)
	}
	name := s.Series
	if name == "" && len(s.Experiment.Series) == 1 {
		name = s.Experiment.Series[0].Name
	}
	var out []Size
	for _, z := range s.Sizes {
		if z.Series == name {
			out = append(out, z)
		}
	}
	if len(out) == 0 {
		if s.Series != "" {
			return nil, fmt.Errorf("experiment %s has no series %q", s.ID, s.Series)
		}
		return nil, fmt.Errorf("experiment %s measured nothing", s.ID)
	}
	return out, nil
}

func compareSizes(a, b Size) (SizeChange, error) {
	c := SizeChange{Kind: a.Kind, Size: a.Size}
	if a.Kind == Stream {
		c.Bandwidth = compareBandwidth(a, b)
		return c, nil
	}
	ha, err := measure.Decode(a.Histogram)
	if err != nil {
		return c, err
	}
	hb, err := measure.Decode(b.Histogram)
	if err != nil {
		return c, err
	}
	c.Quantiles = map[string]QuantileChange{}
	for _, q := range quantiles {
		if min(ha.N(), hb.N()) < q.n {
			continue
		}
		d := measure.Compare(ha, hb, q.q)
		c.Quantiles[q.name] = QuantileChange{
			A: int64(d.A), B: int64(d.B), Low: int64(d.Low), High: int64(d.High), By: d.By(), Shown: d.Shown(),
		}
	}
	return c, nil
}

// compareBandwidth compares the stretches of the two timelines by the Mann-Whitney U
// test, which assumes no distribution. With too few of them nothing is shown.
func compareBandwidth(a, b Size) *BandwidthChange {
	c := &BandwidthChange{A: a.Bandwidth, B: b.Bandwidth, P: 1}
	if a.Bandwidth > 0 {
		c.By = float64(b.Bandwidth-a.Bandwidth) / float64(a.Bandwidth)
	}
	ratesA, ratesB := a.rates(), b.rates()
	if min(len(ratesA), len(ratesB)) < minStretches {
		return c
	}
	test := benchmath.AssumeNothing.Compare(
		benchmath.NewSample(ratesA, &benchmath.DefaultThresholds), benchmath.NewSample(ratesB, &benchmath.DefaultThresholds))
	c.P, c.Shown = test.P, test.P < test.Alpha
	return c
}

// minStretches is how many stretches of a timeline are worth a test.
const minStretches = 8

// rates are the bandwidths of the stretches of z's timeline, in bytes per second.
func (z Size) rates() []float64 {
	var out []float64
	for _, p := range z.Timeline {
		if p.Took > 0 {
			out = append(out, float64(p.N)*float64(z.Size)/p.Took.Seconds())
		}
	}
	return out
}

// verdict sums the sizes up, and refuses to where only one kind was measured: a hint
// trades one for the other.
func verdict(sizes []SizeChange) string {
	latency, bandwidth := tally{}, tally{}
	for _, s := range sizes {
		if s.Bandwidth != nil {
			bandwidth.add(s.Bandwidth.Shown, s.Bandwidth.By > 0)
		}
		for _, q := range s.Quantiles {
			latency.add(q.Shown, q.By < 0)
		}
	}
	switch {
	case bandwidth.n == 0:
		return "one-sided: latency: " + latency.text() + "; bandwidth was not measured, so there is no overall verdict"
	case latency.n == 0:
		return "one-sided: bandwidth: " + bandwidth.text() + "; latency was not measured, so there is no overall verdict"
	}
	return "latency: " + latency.text() + "; bandwidth: " + bandwidth.text()
}

// A tally counts shown differences by direction.
type tally struct{ n, better, worse int }

func (t *tally) add(shown, better bool) {
	t.n++
	switch {
	case shown && better:
		t.better++
	case shown:
		t.worse++
	}
}

func (t tally) text() string {
	switch {
	case t.better == 0 && t.worse == 0:
		return "no difference shown"
	case t.worse == 0:
		return fmt.Sprintf("better in %d of %d, no difference shown in the rest", t.better, t.n)
	case t.better == 0:
		return fmt.Sprintf("worse in %d of %d, no difference shown in the rest", t.worse, t.n)
	}
	return fmt.Sprintf("better in %d and worse in %d of %d", t.better, t.worse, t.n)
}
