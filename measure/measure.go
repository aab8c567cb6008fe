// Package measure keeps what a benchmark measured: every latency sample in a
// histogram, from which any quantile can be had later, and its summary.
package measure

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of a histogram: from one nanosecond to an hour, with three significant
// digits: a quantile is at most 0.1 % above the sample. It takes 270 KB.
const (
	lowest  = 1
	highest = int64(time.Hour)
	digits  = 3
)

// The number of samples from which a quantile is worth showing. With fewer than 10 and
// 100, P90 and P99 are the longest sample; P99.9 takes 10,000, so that ten samples
// lie above it.
const (
	P90Samples  = 10
	P99Samples  = 100
	TailSamples = 10_000
)

// MaxEncoded bounds what Decode reads, in bytes. The longest encoding of a
// histogram is shorter.
const MaxEncoded = 1 << 20

// A Histogram counts samples by value. One goroutine at a time may use it; to
// measure in several, give each its own and merge.
type Histogram struct {
	h   *hdrhistogram.Histogram
	max time.Duration // exact, where the histogram has three digits
}

// New returns an empty histogram.
func New() *Histogram {
	return &Histogram{h: hdrhistogram.New(lowest, highest, digits)}
}

// Record counts one sample. None is ever dropped: one over an hour counts as an
// hour, though Max keeps it as it is, and one below 1 ns as 0.
func (h *Histogram) Record(d time.Duration) {
	h.max = max(h.max, d)
	// The value is within the histogram's range, so there is no error to have.
	_ = h.h.RecordValue(min(max(int64(d), 0), highest))
}

// N is the number of samples.
func (h *Histogram) N() int64 { return h.h.TotalCount() }

// NFrom is the number of samples of at least d, to the histogram's digits.
func (h *Histogram) NFrom(d time.Duration) int64 {
	n := int64(0)
	for _, b := range h.h.Distribution() {
		if b.From >= int64(d) {
			n += b.Count
		}
	}
	return n
}

// Max is the largest sample, exact unless the histogram was decoded.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the smallest value that at least the fraction q of the samples
// does not exceed, 0 when there are none. A q outside 0 to 1 counts as the nearer.
func (h *Histogram) Quantile(q float64) time.Duration {
	n := float64(h.N())
	if n == 0 || math.IsNaN(q) {
		return 0
	}
	// The library rounds a rank to the nearest, which names the 98th of 99 samples as
	// P99; ours is rounded up. The margin keeps a product such as 0.07*100, which is a
	// little over 7 in binary, at its rank.
	rank := min(max(math.Ceil(q*n-1e-9*n), 1), n)
	return min(time.Duration(h.h.ValueAtQuantile(100*rank/n)), h.max)
}

// Interval returns bounds that enclose the true quantile q in 95 of 100 repetitions
// of the measurement, whatever the distribution: the samples whose ranks are 1.96
// standard deviations of the binomial distribution below and above q. It takes the
// samples as independent, which those of one busy period are not quite.
func (h *Histogram) Interval(q float64) (low, high time.Duration) {
	n := float64(h.N())
	if n == 0 {
		return 0, 0
	}
	q = min(max(q, 0), 1)
	half := 1.96 * math.Sqrt(q*(1-q)/n)
	return h.Quantile(q - half), h.Quantile(q + half)
}

// Merge adds the samples of from.
func (h *Histogram) Merge(from *Histogram) {
	h.max = max(h.max, from.max)
	h.h.Merge(from.h) // same range, so nothing is dropped
}

// Encode returns h in the V2 compressed encoding of HdrHistogram, in base64.
func (h *Histogram) Encode() ([]byte, error) {
	return h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// Decode reads what Encode wrote. Other data, also histograms of another range, is
// an error.
func Decode(b []byte) (*Histogram, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("histogram: %d bytes, more than %d", len(b), MaxEncoded)
	}
	d, err := hdrhistogram.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	h := New()
	if d.LowestTrackableValue() != h.h.LowestTrackableValue() ||
		d.HighestTrackableValue() != h.h.HighestTrackableValue() ||
		d.SignificantFigures() != h.h.SignificantFigures() {
		return nil, errors.New("histogram: not of the range from 1 ns to 1 h with three digits")
	}
	h.h = d
	h.max = time.Duration(d.Max())
	return h, nil
}

// A Summary is what is shown of a histogram.
type Summary struct {
	N    int64
	P50  time.Duration
	P90  time.Duration // 0 when N is below P90Samples
	P99  time.Duration // 0 when N is below P99Samples
	P999 time.Duration // 0 when N is below TailSamples
	Max  time.Duration
}

// Summary summarises every sample of h.
func (h *Histogram) Summary() Summary {
	n := h.N()
	from := func(least int64, q float64) time.Duration {
		if n < least {
			return 0
		}
		return h.Quantile(q)
	}
	return Summary{
		N: n, P50: h.Quantile(0.50), P90: from(P90Samples, 0.90), P99: from(P99Samples, 0.99), P999: from(TailSamples, 0.999), Max: h.Max(),
	}
}

// Reset forgets every sample, keeping the memory.
func (h *Histogram) Reset() {
	h.max = 0
	h.h.Reset()
}

// RecordN counts n samples of d, as Record does.
func (h *Histogram) RecordN(d time.Duration, n int64) {
	if n <= 0 {
		return
	}
	h.max = max(h.max, d)
	_ = h.h.RecordValues(min(max(int64(d), 0), highest), n)
}

// Mean returns the mean of the samples and its standard error, 0 when there are none.
func (h *Histogram) Mean() (mean, standardError time.Duration) {
	n := h.N()
	if n == 0 {
		return 0, 0
	}
	return time.Duration(h.h.Mean()), time.Duration(h.h.StdDev() / math.Sqrt(float64(n)))
}
