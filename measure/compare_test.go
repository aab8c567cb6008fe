package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func lognormal(r *rand.Rand, n int, scale float64) *Histogram {
	h := New()
	for range n {
		h.Record(time.Duration(scale * math.Exp(r.NormFloat64()/2)))
	}
	return h
}

// TestCompareCovers draws pairs whose true difference is known and counts how often
// the interval holds it: 95 of 100, within what 400 draws can tell.
func TestCompareCovers(t *testing.T) {
	const draws = 400
	r := rand.New(rand.NewPCG(3, 4))
	for _, tc := range []struct {
		q      float64
		z      float64 // standard normal quantile of q
		na, nb int
	}{{0.5, 0, 1000, 1000}, {0.99, 2.3263, 2000, 1000}} {
		truth := (11_000 - 10_000) * math.Exp(tc.z/2)
		held := 0
		for range draws {
			d := Compare(lognormal(r, tc.na, 10_000), lognormal(r, tc.nb, 11_000), tc.q)
			if float64(d.Low) <= truth && truth <= float64(d.High) {
				held++
			}
		}
		if share := float64(held) / draws; share < 0.91 || share > 0.995 {
			t.Errorf("q %v: the interval holds the true difference in %.1f %% of the draws", tc.q, 100*share)
		}
	}
}

func TestCompare(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a, b := lognormal(r, 5000, 10_000), lognormal(r, 5000, 20_000)
	if d := Compare(a, b, 0.5); !d.Shown() || d.Low <= 0 || math.Abs(d.By()-1) > 0.1 {
		t.Errorf("twice as slow: %+v, by %.2f", d, d.By())
	}
	if d := Compare(b, a, 0.5); !d.Shown() || d.High >= 0 {
		t.Errorf("twice as fast: %+v", d)
	}
	if d := Compare(a, a, 0.99); d.Shown() || d.By() != 0 {
		t.Errorf("the same: %+v", d)
	}
	for _, d := range []Difference{Compare(New(), a, 0.5), Compare(a, New(), 0.5), Compare(New(), New(), 0.5)} {
		if d.Shown() {
			t.Errorf("nothing measured: %+v", d)
		}
	}
}

func TestOutliers(t *testing.T) {
	h := New()
	for i := range 3100 {
		d := 10 * time.Microsecond
		if i%310 == 309 {
			d = 52 * time.Microsecond
		}
		h.Record(d)
	}
	if o := h.Outliers(); o.N != 10 || math.Abs(o.Factor-5.2) > 0.02 || o.Every != 310 {
		t.Errorf("%+v; want 10 outliers of 5.2 times P50, one every 310", o)
	}
	even := New()
	even.Record(time.Microsecond)
	for _, h := range []*Histogram{New(), even} {
		if o := h.Outliers(); o != (Outliers{}) {
			t.Errorf("%d equal samples have outliers %+v", h.N(), o)
		}
	}
}

// TestWorst compares with sorting everything.
func TestWorst(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{0, 1, WorstKept - 1, WorstKept, WorstKept + 1, 5000} {
		var w Worst
		all := []Sample{}
		for i := range n {
			s := Sample{Index: int64(i), At: time.Duration(i), Latency: time.Duration(r.IntN(1 << 40))}
			all = append(all, s)
			w.Record(s)
		}
		slices.SortFunc(all, func(a, b Sample) int { return int(b.Latency - a.Latency) })
		all = all[:min(n, WorstKept)]
		if got := append([]Sample{}, w.Samples()...); !cmp.Equal(all, got) {
			t.Errorf("n %d: %s", n, cmp.Diff(all, got))
		}
	}
	var w Worst
	w.Record(Sample{})
	if n := testing.AllocsPerRun(100, func() { w.Record(Sample{Latency: 1}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNFrom(t *testing.T) {
	h := New()
	for i := range 1000 {
		h.Record(time.Duration(i) * time.Microsecond)
	}
	for d, want := range map[time.Duration]int64{0: 1000, time.Microsecond: 999, 512 * time.Microsecond: 488, time.Millisecond: 0, time.Hour: 0} {
		if n := h.NFrom(d); n != want {
			t.Errorf("%d samples of at least %v, not %d", n, d, want)
		}
	}
	if n := New().NFrom(0); n != 0 {
		t.Errorf("%d samples in an empty histogram", n)
	}
}
