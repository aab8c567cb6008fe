package measure

import (
	"math"
	"time"
)

// A Difference is how far the same quantile of two measurements is apart.
type Difference struct {
	A, B time.Duration // the quantile of each
	// Low and High bound B - A in 95 of 100 repetitions.
	Low, High time.Duration
}

// Shown reports whether a difference is shown: its interval leaves out zero.
func (d Difference) Shown() bool { return d.Low > 0 || d.High < 0 }

// By returns B - A as a fraction of A, 0 when A is 0.
func (d Difference) By() float64 {
	if d.A == 0 {
		return 0
	}
	return float64(d.B-d.A) / float64(d.A)
}

// Compare returns the difference of quantile q from a to b. Its interval is made of
// those of the two quantiles, which need not be symmetric, by the method of variance
// estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008, equation 6):
// each bound adds in squares the distances on the sides that move the difference that
// way. Without samples on both sides it spans everything: nothing is shown.
func Compare(a, b *Histogram, q float64) Difference {
	d := Difference{A: a.Quantile(q), B: b.Quantile(q)}
	if a.N() == 0 || b.N() == 0 {
		d.Low, d.High = math.MinInt64, math.MaxInt64
		return d
	}
	lowA, highA := a.Interval(q)
	lowB, highB := b.Interval(q)
	diff := float64(d.B - d.A)
	d.Low = time.Duration(math.Floor(diff - math.Hypot(float64(d.B-lowB), float64(highA-d.A))))
	d.High = time.Duration(math.Ceil(diff + math.Hypot(float64(highB-d.B), float64(d.A-lowA))))
	return d
}

// OutlierFactor is how many times P50 a sample must be to count as an outlier.
const OutlierFactor = 3

// Outliers are the samples far above the middle.
type Outliers struct {
	N int64
	// Factor is their median in multiples of P50, and Every the messages per outlier.
	Factor float64
	Every  float64
}

// Outliers finds the samples of at least OutlierFactor times P50.
func (h *Histogram) Outliers() Outliers {
	p50 := h.Quantile(0.5)
	n := h.N()
	if n == 0 || p50 == 0 {
		return Outliers{}
	}
	out := Outliers{N: h.NFrom(OutlierFactor * p50)}
	if out.N == 0 {
		return out
	}
	middle := h.Quantile(1 - float64(out.N)/float64(n)/2)
	out.Factor = float64(middle) / float64(p50)
	out.Every = float64(n) / float64(out.N)
	return out
}
