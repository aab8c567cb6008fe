package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// resamples is how many times the bootstrap draws: its interval's ends move by less
// than a percent of its width with more.
const resamples = 4000

// A ratio compares the medians of two series of runs.
type ratio struct {
	value     float64
	low, high float64 // 95 of 100 repetitions of the whole lie between
}

// compare returns the median of ours over that of theirs, with its interval by the
// percentile bootstrap over rounds: what slows a round down slows both, so that they
// are drawn together. The draw is the same every time.
func compare(ours, theirs []float64) ratio {
	n := min(len(ours), len(theirs))
	if n == 0 {
		return ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	ours, theirs = ours[:n], theirs[:n]
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := make([]float64, n), make([]float64, n)
	all := make([]float64, resamples)
	for i := range all {
		for j := range n {
			k := rng.IntN(n)
			a[j], b[j] = ours[k], theirs[k]
		}
		all[i] = median(a) / median(b)
	}
	slices.Sort(all)
	return ratio{median(ours) / median(theirs), all[resamples*25/1000], all[resamples*975/1000]}
}

// median returns the middle of v, which it leaves as it is; NaN of nothing.
func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}
