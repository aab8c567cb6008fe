package bench

import (
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/measure"
)

// A Point is what was measured in a stretch of time.
type Point struct {
	At   time.Duration // since the start of the run: the end of the stretch
	Took time.Duration // how long it was
	N    int64         // messages
	P50  time.Duration // latency; 0 in a stream
	Max  time.Duration
}

// A timeline is a series of stretches: at first every firstStretch long; as the run
// gets longer, two are made one, so that there are never more than maxPoints.
type timeline struct {
	points  []Point
	stretch time.Duration
	since   time.Duration // start of the open stretch
	open    *measure.Histogram
}

const (
	firstStretch = 10 * time.Millisecond
	maxPoints    = 240
)

// record adds a message's latency. It allocates only at the end of a stretch.
func (l *timeline) record(at, took time.Duration) {
	if l.open == nil {
		l.open = measure.New()
		l.stretch = firstStretch
	}
	if l.open.N() == 0 {
		l.since = at - took
	}
	l.open.Record(took)
	if at-l.since >= l.stretch {
		l.close(at)
	}
}

// close ends the open stretch.
func (l *timeline) close(at time.Duration) {
	if l.open == nil || l.open.N() == 0 {
		return
	}
	l.put(Point{At: at, Took: at - l.since, N: l.open.N(), P50: l.open.Quantile(0.5), Max: l.open.Max()})
	l.open.Reset()
}

// add appends a stretch of a stream.
func (l *timeline) add(at time.Duration, n int64, took time.Duration) {
	l.put(Point{At: at, Took: took, N: n})
}

func (l *timeline) put(p Point) {
	l.points = append(l.points, p)
	if len(l.points) < maxPoints {
		return
	}
	l.stretch *= 2
	half := l.points[:0]
	for pair := range slices.Chunk(slices.Clone(l.points), 2) {
		half = append(half, merge(pair))
	}
	l.points = half
}

// merge makes one point of two. Its median is the mean of theirs by their messages.
func merge(pair []Point) Point {
	if len(pair) == 1 {
		return pair[0]
	}
	a, b := pair[0], pair[1]
	m := Point{At: b.At, Took: a.Took + b.Took, N: a.N + b.N, Max: max(a.Max, b.Max)}
	m.P50 = time.Duration((float64(a.P50)*float64(a.N) + float64(b.P50)*float64(b.N)) / float64(m.N))
	return m
}

func (l *timeline) n() int64 {
	total := int64(0)
	for _, p := range l.points {
		total += p.N
	}
	return total
}
