package report

import (
	"fmt"
	"math"
	"strings"
)

// The drawing area of a chart, in units of its view box. A phone shows the box as wide
// as its screen, so text is large.
const (
	width   = 640.0
	height  = 340.0
	left    = 64.0
	right   = 16.0
	top     = 16.0
	bottom  = 46.0
	colours = 6 // classes c0 to c5 of the page's style
)

// A chart is one drawing with its legend.
type chart struct {
	Title  string
	YLabel string
	XLabel string
	Lines  []line
	Bars   []bar
	Marks  []mark
	XTicks []tick
	YTicks []tick
	Legend []legend
}

// A line joins points.
type line struct {
	Series string // the name of what is drawn, for who looks for it
	Class  string
	Path   string // SVG path data
	Dots   []dot
}

// A dot is a point of a line with what it says when pointed at.
type dot struct {
	X, Y  string
	Title string
}

// A bar stands on the axis.
type bar struct {
	Series              string
	Class               string
	X, Y, Width, Height string
	Title               string
}

// A mark is a moment of which something is to be said.
type mark struct{ X, Title string }

// A tick is a place on an axis.
type tick struct{ At, Text string }

// A legend names a colour.
type legend struct{ Class, Text string }

// A scale maps values to places of an axis.
type scale struct {
	low, high float64 // of the values, in the axis's own measure
	from, to  float64 // of the view box
	log       bool
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log(v)
	}
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// newScale spans values, which are above 0 where the axis is logarithmic.
func newScale(values []float64, log bool, from, to float64) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), from: from, to: to, log: log}
	for _, v := range values {
		if log {
			v = math.Log(v)
		}
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	if margin := (s.high - s.low) * 0.05; margin > 0 && !math.IsInf(margin, 0) {
		s.low, s.high = s.low-margin, s.high+margin
	}
	return s
}

// value is the inverse of the measure.
func (s scale) value(v float64) float64 {
	if s.log {
		return math.Exp(v)
	}
	return v
}

// ticks returns round values within the scale: 1, 2 and 5 times powers of ten, about
// so many.
func (s scale) ticks(about int, vertical bool) []tick {
	low, high := s.value(s.low), s.value(s.high)
	var values []float64
	if s.log {
		for exp := math.Floor(math.Log10(low)); exp <= math.Ceil(math.Log10(high)); exp++ {
			for _, m := range []float64{1, 2, 5} {
				values = append(values, m*math.Pow(10, exp))
			}
		}
	} else {
		step := math.Pow(10, math.Floor(math.Log10(max(high-low, 1e-12)/float64(about))))
		for _, m := range []float64{1, 2, 5, 10} {
			if (high-low)/(step*m) <= float64(about) {
				step *= m
				break
			}
		}
		for v := math.Ceil(low/step) * step; v <= high && len(values) < 100; v += step {
			values = append(values, v)
		}
	}
	var out []tick
	for _, v := range values {
		if v < low*(1-1e-9)-1e-12 || v > high*(1+1e-9) {
			continue
		}
		out = append(out, tick{place(s.at(v)), number(v)})
	}
	if vertical && len(out) > 2*about { // too close to be read: every decade
		kept := out[:0]
		for i, t := range out {
			if i%3 == 0 {
				kept = append(kept, t)
			}
		}
		out = kept
	}
	return out
}

// place writes a coordinate.
func place(v float64) string { return fmt.Sprintf("%.1f", v) }

// number writes a tick's value.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 1e6:
		return fmt.Sprintf("%gM", round(v/1e6))
	case math.Abs(v) >= 1e4:
		return fmt.Sprintf("%gk", round(v/1e3))
	}
	return fmt.Sprintf("%g", round(v))
}

// round keeps three digits.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return math.Round(v/unit) * unit
}

// A point is a value of a line.
type point struct {
	x, y  float64
	title string
}

// path joins points, which are in the order of x.
func path(points []point, x, y scale) (string, []dot) {
	var b strings.Builder
	var dots []dot
	for i, p := range points {
		op := "L"
		if i == 0 {
			op = "M"
		}
		px, py := place(x.at(p.x)), place(y.at(p.y))
		fmt.Fprintf(&b, "%s%s %s", op, px, py)
		if p.title != "" {
			dots = append(dots, dot{px, py, p.title})
		}
	}
	return b.String(), dots
}

func class(i int) string { return fmt.Sprintf("c%d", i%colours) }
