package measure

import (
	"slices"
	"time"
)

// Worst keeps the longest samples, with where and when they were. The zero value is
// ready; it allocates nothing after its first sample.
type Worst struct {
	kept []Sample // a heap would be no faster for so few: the least is found by looking
	min  time.Duration
}

// WorstKept is how many of the longest samples Worst keeps.
const WorstKept = 32

// A Sample is one latency of a series.
type Sample struct {
	Index   int64         `json:"index"` // 0 is the first timed message of the series
	At      time.Duration `json:"at_ns"` // since the start of the run
	Latency time.Duration `json:"latency_ns"`
}

// Record considers one sample.
func (w *Worst) Record(s Sample) {
	if len(w.kept) == WorstKept && s.Latency <= w.min {
		return
	}
	if len(w.kept) < WorstKept {
		if w.kept == nil {
			w.kept = make([]Sample, 0, WorstKept)
		}
		w.kept = append(w.kept, s)
	} else {
		w.kept[w.least()] = s
	}
	w.min = w.kept[w.least()].Latency
}

func (w *Worst) least() int {
	at := 0
	for i := range w.kept {
		if w.kept[i].Latency < w.kept[at].Latency {
			at = i
		}
	}
	return at
}

// Samples returns the kept samples, the longest first.
func (w *Worst) Samples() []Sample {
	out := slices.Clone(w.kept)
	slices.SortFunc(out, func(a, b Sample) int {
		if a.Latency != b.Latency {
			return int(min(max(b.Latency-a.Latency, -1), 1))
		}
		return int(min(max(a.Index-b.Index, -1), 1))
	})
	return out
}
