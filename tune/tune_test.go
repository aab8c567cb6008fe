package tune

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/measure"
)

func TestMixOf(t *testing.T) {
	got := MixOf(map[int64]uint64{0: 3, 4: 2, 4096: 90, 1 << 20: 5, 1 << 28: 1, 8: 0})
	want := Mix{Sizes: []int64{8, 6144, 3 << 19, bench.MaxSize}, Weights: []float64{5, 90, 5, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]int64{8192, 2 << 20}, got.Hints()); diff != "" {
		t.Errorf("hints: -want +got\n%s", diff)
	}
	many := map[int64]uint64{}
	for i := range 30 {
		many[1<<i] = uint64(i + 1)
	}
	if m := MixOf(many); len(m.Sizes) > maxSizes || m.Sizes[len(m.Sizes)-1] != bench.MaxSize {
		t.Errorf("%d sizes up to %d", len(m.Sizes), m.Sizes[len(m.Sizes)-1])
	}
}

func TestParseObjective(t *testing.T) {
	for s, want := range map[string]Objective{"mean": {}, "p99@8B": {0.99, 8}, "p50@64KiB": {0.5, 65536}} {
		if got, err := ParseObjective(s); err != nil || got != want {
			t.Errorf("%q is %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "mean@8B", "p99", "p98@8B", "p99@", "p99@x"} {
		if got, err := ParseObjective(s); err == nil {
			t.Errorf("%q is %+v", s, got)
		}
	}
}

// latency makes a size with samples around us microseconds.
func latency(us float64) bench.Size {
	h := measure.New()
	for i := range 500 {
		h.Record(time.Duration(us * (900 + float64(i%201)) * float64(time.Nanosecond)))
	}
	return bench.Size{Latency: h}
}

func TestJudge(t *testing.T) {
	mix := Mix{Sizes: []int64{8, 65536}, Weights: []float64{90, 10}}
	cs := []Candidate{{0, "single"}, {8192, "single"}, {8192, "dual"}}
	stream := func(rates ...int64) *bench.Report {
		r := &bench.Report{}
		for _, b := range rates {
			r.Sizes = append(r.Sizes, bench.Size{Bytes: b, Took: time.Second})
		}
		return r
	}
	for name, tc := range map[string]struct {
		us        []float64 // by candidate, then size
		bandwidth *bench.Report
		objective Objective
		floor     int64
		best      int
		err       bool
	}{
		"better in the mean":      {us: []float64{20, 100, 12, 110, 14, 100}, best: 1},
		"no difference":           {us: []float64{20, 100, 20, 100, 20, 100}, best: 0},
		"worse":                   {us: []float64{20, 100, 30, 100, 25, 100}, best: 0},
		"by a quantile":           {us: []float64{20, 100, 12, 110, 11, 200}, objective: Objective{0.99, 8}, best: 2},
		"too little bandwidth":    {us: []float64{20, 100, 10, 100, 13, 100}, bandwidth: stream(100, 40, 90), floor: 80, best: 2},
		"0 has too little":        {us: []float64{20, 100, 30, 100, 25, 100}, bandwidth: stream(10, 90, 90), floor: 80, best: 2},
		"none has enough":         {us: []float64{20, 100, 30, 100, 25, 100}, bandwidth: stream(10, 10, 10), floor: 80, err: true},
		"a size not measured":     {us: []float64{20, 100, 30, 100, 25, 100}, objective: Objective{0.99, 16}, err: true},
		"something is missing":    {us: []float64{20, 100, 30, 100}, err: true},
		"a rare size never drawn": {us: []float64{20, 0, 12, 0, 13, 0}, best: 1},
	} {
		var r bench.Report
		for _, us := range tc.us {
			s := latency(us)
			if us == 0 {
				s = bench.Size{Latency: measure.New()}
			}
			r.Sizes = append(r.Sizes, s)
		}
		got, err := Judge(cs, r, tc.bandwidth, mix, tc.objective, tc.floor)
		if (err != nil) != tc.err || err == nil && (got.Best != tc.best || got.Why == "" || len(got.Tries) != 3) {
			t.Errorf("%s: %+v, %v; want %d", name, got, err, tc.best)
		}
	}
}

// TestJudgeInterrupted: a run that ended early proposes nothing, whatever was measured
// until then.
func TestJudgeInterrupted(t *testing.T) {
	cs := []Candidate{{Hint: 0}, {Hint: 8}, {Hint: 64}}
	mix := Mix{Sizes: []int64{8, 64}, Weights: []float64{9, 1}}
	timed := func(us ...int) (out []bench.Size) {
		for _, x := range us {
			h := measure.New()
			for i := range x * 3 {
				h.Record(time.Duration(x*1000 + i))
			}
			out = append(out, bench.Size{Latency: h})
		}
		return out
	}
	for name, c := range map[string]struct {
		rows      []bench.Size
		bandwidth *bench.Report
		objective Objective
		missing   []bool // by candidate
	}{
		"all":            {rows: timed(20, 90, 10, 90, 14, 90), missing: []bool{false, false, false}},
		"a part":         {rows: timed(20, 0, 10, 0, 0, 0), missing: []bool{false, false, true}},
		"without hint 0": {rows: timed(0, 0, 10, 0, 0, 9), missing: []bool{true, false, false}},
		"another size":   {rows: timed(20, 90, 10, 0, 0, 9), objective: Objective{0.5, 64}, missing: []bool{false, true, false}},
		"nothing":        {rows: timed(0, 0, 0, 0, 0, 0), missing: []bool{true, true, true}},
		"bandwidth":      {rows: timed(20, 90, 10, 90, 14, 90), bandwidth: &bench.Report{Interrupted: true}, missing: []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Judge(cs, bench.Report{Sizes: c.rows, Interrupted: c.bandwidth == nil}, c.bandwidth, mix, c.objective, 1)
			if err != nil || !r.Interrupted || r.Best != -1 || len(r.Tries) != len(cs) {
				t.Fatalf("%+v, %v", r, err)
			}
			for i, try := range r.Tries {
				if missing := try.Out != ""; missing != c.missing[i] || missing != (try.Value == 0) {
					t.Errorf("candidate %d: %+v", i, try)
				}
				if try.Shown && r.Tries[0].Value == 0 {
					t.Errorf("candidate %d: a difference from nothing is shown", i)
				}
			}
		})
	}
}
