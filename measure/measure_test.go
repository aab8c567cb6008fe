package measure

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestQuantiles compares with the sorted samples themselves.
func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 99, 100, 101, 12_345} {
		h := New()
		samples := make([]time.Duration, n)
		for i := range samples {
			samples[i] = time.Duration(math.Exp(r.NormFloat64()*2+10)) + 1
			h.Record(samples[i])
		}
		slices.Sort(samples)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
			want := samples[max(0, int(math.Ceil(q*float64(n)))-1)]
			got := h.Quantile(q)
			if got < want || float64(got) > float64(want)*1.001+1 {
				t.Errorf("n %d: quantile %v is %v, the samples say %v", n, q, got, want)
			}
		}
		if h.N() != int64(n) || h.Max() != samples[n-1] {
			t.Errorf("n %d, max %v; want %d, %v", h.N(), h.Max(), n, samples[n-1])
		}
	}
}

func TestEdges(t *testing.T) {
	h := New()
	if s := h.Summary(); s != (Summary{}) {
		t.Errorf("summary of nothing: %+v", s)
	}
	if low, high := h.Interval(0.5); low != 0 || high != 0 {
		t.Errorf("interval of nothing: %v to %v", low, high)
	}
	h.Record(-time.Second)
	h.Record(3 * time.Hour)
	if h.N() != 2 || h.Max() != 3*time.Hour || h.Quantile(0) > time.Nanosecond {
		t.Errorf("n %d, max %v, least %v", h.N(), h.Max(), h.Quantile(0))
	}
	if got := h.Quantile(1); got < time.Hour || got > time.Hour+4*time.Second {
		t.Errorf("a sample over the range counts as %v, want about an hour", got)
	}
	for _, q := range []float64{math.NaN(), math.Inf(-1), -1} {
		if got := h.Quantile(q); got > time.Nanosecond {
			t.Errorf("quantile %v is %v", q, got)
		}
	}
}

// TestSummaryHidesAThinTail: a quantile is shown from as many samples on as tell it.
func TestSummaryHidesAThinTail(t *testing.T) {
	const ms = time.Millisecond
	for n, want := range map[int64]Summary{
		1:               {P50: ms, Max: ms},
		P90Samples - 1:  {P50: ms, Max: ms},
		P90Samples:      {P50: ms, P90: ms, Max: ms},
		P99Samples - 1:  {P50: ms, P90: ms, Max: ms},
		P99Samples:      {P50: ms, P90: ms, P99: ms, Max: ms},
		TailSamples - 1: {P50: ms, P90: ms, P99: ms, Max: ms},
		TailSamples:     {P50: ms, P90: ms, P99: ms, P999: ms, Max: ms},
	} {
		h := New()
		h.RecordN(ms, n)
		if want.N = n; h.Summary() != want {
			t.Errorf("of %d samples: %+v, want %+v", n, h.Summary(), want)
		}
	}
}

// TestInterval checks that the true median lies inside in about 95 % of runs.
func TestInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const runs, n = 400, 500
	inside := 0
	for range runs {
		h := New()
		for range n {
			h.Record(time.Duration(r.Int64N(2_000_000)))
		}
		if low, high := h.Interval(0.5); low <= 1_000_000 && 1_000_000 <= high {
			inside++
		}
	}
	if inside < runs*92/100 || inside > runs*99/100 {
		t.Errorf("the true median was inside in %d of %d runs", inside, runs)
	}
}

func TestMerge(t *testing.T) {
	a, b, both := New(), New(), New()
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		both.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	a.Merge(b)
	if a.Summary() != both.Summary() {
		t.Errorf("merged %+v, recorded together %+v", a.Summary(), both.Summary())
	}
}

func TestEncoding(t *testing.T) {
	h := New()
	for i := range 5000 {
		h.Record(time.Duration(i*i) * time.Nanosecond)
	}
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte("HISTF")) {
		t.Errorf("encoding starts %q, want the V2 compressed cookie", b[:8])
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.N() != h.N() || got.Quantile(0.99) != h.Quantile(0.99) {
		t.Errorf("decoded: n %d, P99 %v; want %d, %v", got.N(), got.Quantile(0.99), h.N(), h.Quantile(0.99))
	}
	got.Merge(h)
	if got.N() != 2*h.N() {
		t.Errorf("n after a merge: %d", got.N())
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":     nil,
		"text":        []byte("no histogram"),
		"too long":    bytes.Repeat([]byte("A"), MaxEncoded+1),
		"other range": otherRange(t),
	} {
		if _, err := Decode(b); err == nil || !strings.HasPrefix(err.Error(), "histogram: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	h := New()
	for i := range 100 {
		h.Record(time.Duration(i) * time.Millisecond)
	}
	b, err := h.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte("HISTFAAAAA=="))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Decode(b)
		if err != nil {
			return
		}
		if s := h.Summary(); s.P50 > s.P99 || s.P99 > s.Max {
			t.Errorf("quantiles out of order: %+v", s)
		}
	})
}
