package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/param"
)

// charts draws what an experiment measured.
func charts(e experiment.Experiment) ([]chart, error) {
	var out []chart
	for _, k := range [][2]string{{experiment.RoundTrip, "Round trip by message size"}, {experiment.AllReduce, "All-reduce by size of the data"}} {
		if c, ok := latencyBySize(e, k[0], k[1]); ok {
			out = append(out, c)
		}
	}
	distributions, err := distributions(e)
	if err != nil {
		return nil, err
	}
	out = append(out, distributions...)
	out = append(out, timelines(e)...)
	if c, ok := bandwidthBySize(e); ok {
		out = append(out, c)
	}
	return out, nil
}

// names are the series that have a measurement of a kind, in their order.
func names(e experiment.Experiment, kind string) []string {
	var out []string
	for _, z := range e.Sizes {
		if z.Kind == kind && z.N > 0 && !slices.Contains(out, z.Series) {
			out = append(out, z.Series)
		}
	}
	order := func(name string) int {
		return slices.IndexFunc(e.Series, func(s experiment.Series) bool { return s.Name == name })
	}
	slices.SortStableFunc(out, func(a, b string) int { return order(a) - order(b) })
	return out
}

func latencyBySize(e experiment.Experiment, kind, title string) (chart, bool) {
	c := chart{Title: title, XLabel: "size", YLabel: "µs"}
	var xs, ys []float64
	for _, z := range e.Sizes {
		if z.Kind == kind && z.N > 0 {
			xs = append(xs, float64(max(z.Size, 1)))
			ys = append(ys, float64(max(z.P50, 1))/1e3, float64(max(z.P50, z.P99, 1))/1e3)
		}
	}
	if len(xs) == 0 {
		return c, false
	}
	x, y := newScale(xs, true, left, width-right), newScale(ys, true, height-bottom, top)
	c.XTicks, c.YTicks = sizeTicks(xs, x), y.ticks(6, true)
	for i, name := range names(e, kind) {
		for _, q := range []struct {
			name  string
			class string
			of    func(experiment.Size) int64
		}{
			{"P50", "", func(z experiment.Size) int64 { return z.P50 }},
			{"P99", " dashed", func(z experiment.Size) int64 { return z.P99 }},
		} {
			var points []point
			for _, z := range e.Sizes {
				if v := q.of(z); z.Series == name && z.Kind == kind && v > 0 {
					points = append(points, point{float64(max(z.Size, 1)), float64(max(v, 1)) / 1e3, fmt.Sprintf(
						"%s, %s, %s: %s µs (n %d)", seriesName(name), param.FormatBytes(z.Size), q.name, micros(v), z.N)})
				}
			}
			if len(points) == 0 {
				continue // no size has enough samples for it
			}
			l := line{Series: seriesName(name) + " " + q.name, Class: class(i) + q.class}
			l.Path, l.Dots = path(points, x, y)
			c.Lines = append(c.Lines, l)
			c.Legend = append(c.Legend, legend{l.Class, l.Series})
		}
	}
	return c, true
}

// sizeTicks are the sizes themselves, thinned out so that their texts do not overlap.
func sizeTicks(sizes []float64, x scale) []tick {
	sorted := slices.Compact(slices.Sorted(slices.Values(sizes)))
	var out []tick
	last := math.Inf(-1)
	for _, v := range sorted {
		if at := x.at(v); at-last >= 58 {
			out = append(out, tick{place(at), param.FormatBytes(int64(v))})
			last = at
		}
	}
	return out
}

// maxDistributions bounds how many sizes have a distribution drawn.
const maxDistributions = 6

// distributions draws latency by percentile, one chart for each size: the further to
// the right, the rarer.
func distributions(e experiment.Experiment) ([]chart, error) {
	var sizes []int64
	for _, z := range e.Sizes {
		if z.Kind == experiment.RoundTrip && z.N > 0 && len(z.Histogram) > 0 && !slices.Contains(sizes, z.Size) {
			sizes = append(sizes, z.Size)
		}
	}
	slices.Sort(sizes)
	for len(sizes) > maxDistributions { // every other one
		kept := sizes[:0]
		for i, s := range sizes {
			if i%2 == 0 {
				kept = append(kept, s)
			}
		}
		sizes = kept
	}
	var out []chart
	for _, size := range sizes {
		c, err := distribution(e, size)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// rarity is how far right a quantile is: 0 for the least, 1 for P90, 2 for P99.
func rarity(q float64) float64 { return -math.Log10(1 - q) }

func distribution(e experiment.Experiment, size int64) (chart, error) {
	c := chart{Title: "Distribution at " + param.FormatBytes(size), XLabel: "percentile", YLabel: "µs"}
	type curve struct {
		name   string
		points []point
	}
	var curves []curve
	var ys []float64
	rarest := 1.0
	for _, name := range names(e, experiment.RoundTrip) {
		for _, z := range e.Sizes {
			if z.Series != name || z.Size != size || z.Kind != experiment.RoundTrip || len(z.Histogram) == 0 || z.N == 0 {
				continue
			}
			h, err := measure.Decode(z.Histogram)
			if err != nil {
				return c, err
			}
			most := rarity(1 - 1/float64(h.N()+1))
			rarest = max(rarest, most)
			k := curve{name: name}
			for step := 0; step <= 80; step++ {
				r := most * float64(step) / 80
				d := float64(max(h.Quantile(1-math.Pow(10, -r)), 1)) / 1e3
				k.points = append(k.points, point{x: r, y: d})
				ys = append(ys, d)
			}
			curves = append(curves, k)
		}
	}
	x, y := scale{low: 0, high: rarest, from: left, to: width - right}, newScale(ys, true, height-bottom, top)
	c.YTicks = y.ticks(6, true)
	for _, t := range []struct {
		r    float64
		text string
	}{{0, "min"}, {rarity(0.5), "P50"}, {1, "P90"}, {2, "P99"}, {3, "P99.9"}, {4, "P99.99"}, {5, "P99.999"}} {
		if t.r <= rarest {
			c.XTicks = append(c.XTicks, tick{place(x.at(t.r)), t.text})
		}
	}
	for i, k := range curves {
		l := line{Series: seriesName(k.name), Class: class(i)}
		l.Path, _ = path(k.points, x, y)
		c.Lines = append(c.Lines, l)
		c.Legend = append(c.Legend, legend{l.Class, l.Series})
	}
	return c, nil
}

// maxTimelines bounds how many sizes have a timeline drawn.
const maxTimelines = 4

// timelines draws latency over the run, where a change of path shows: only for runs
// that saw one, or that lasted.
func timelines(e experiment.Experiment) []chart {
	var out []chart
	for _, z := range e.Sizes {
		if z.Kind != experiment.RoundTrip || len(z.Timeline) < 8 || len(out) == maxTimelines {
			continue
		}
		c := chart{Title: "Over time: " + param.FormatBytes(z.Size), XLabel: "seconds into the run", YLabel: "µs"}
		if len(e.Series) > 1 {
			c.Title += ", " + seriesName(z.Series)
		}
		var xs, ys []float64
		var middle, longest []point
		for _, p := range z.Timeline {
			at := p.At.Seconds()
			middle = append(middle, point{x: at, y: float64(max(p.P50, 1)) / 1e3})
			longest = append(longest, point{x: at, y: float64(max(p.Max, 1)) / 1e3})
			xs = append(xs, at)
			ys = append(ys, middle[len(middle)-1].y, longest[len(longest)-1].y)
		}
		x, y := newScale(xs, false, left, width-right), newScale(ys, true, height-bottom, top)
		c.XTicks, c.YTicks = x.ticks(8, false), y.ticks(6, true)
		for i, l := range []struct {
			name   string
			points []point
		}{{"P50 of a stretch", middle}, {"longest of a stretch", longest}} {
			drawn := line{Series: l.name, Class: class(i) + " thin"}
			drawn.Path, _ = path(l.points, x, y)
			c.Lines = append(c.Lines, drawn)
			c.Legend = append(c.Legend, legend{drawn.Class, drawn.Series})
		}
		for _, s := range e.Switches {
			if at := s.At.Seconds(); at >= xs[0] && at <= xs[len(xs)-1] {
				c.Marks = append(c.Marks, mark{place(x.at(at)), fmt.Sprintf("%s to generation %d, pause %s µs, %d drained, %d held",
					strings.ReplaceAll(s.Outcome, "_", " "), s.Generation, micros(int64(s.Pause)), s.Drained, s.Held)})
			}
		}
		if len(c.Marks) > 0 {
			c.Legend = append(c.Legend, legend{"mark", "change of path: " + c.Marks[0].Title})
		}
		out = append(out, c)
	}
	return out
}

func bandwidthBySize(e experiment.Experiment) (chart, bool) {
	c := chart{Title: "Bandwidth by message size", XLabel: "message size", YLabel: "MiB/s"}
	series := names(e, experiment.Stream)
	var sizes []int64
	most := 0.0
	for _, z := range e.Sizes {
		if z.Kind != experiment.Stream || z.Bandwidth == 0 {
			continue
		}
		if !slices.Contains(sizes, z.Size) {
			sizes = append(sizes, z.Size)
		}
		most = max(most, float64(z.Bandwidth)/(1<<20))
	}
	if len(sizes) == 0 {
		return c, false
	}
	slices.Sort(sizes)
	y := scale{low: 0, high: most * 1.05, from: height - bottom, to: top}
	c.YTicks = y.ticks(6, true)
	group := (width - left - right) / float64(len(sizes))
	each := group * 0.8 / float64(len(series))
	for si, size := range sizes {
		start := left + group*(float64(si)+0.1)
		c.XTicks = append(c.XTicks, tick{place(start + group*0.4), param.FormatBytes(size)})
		for i, name := range series {
			for _, z := range e.Sizes {
				if z.Series != name || z.Size != size || z.Kind != experiment.Stream {
					continue
				}
				v := float64(z.Bandwidth) / (1 << 20)
				at := y.at(v)
				c.Bars = append(c.Bars, bar{
					Series: seriesName(name), Class: class(i), X: place(start + each*float64(i)), Y: place(at), Width: place(each * 0.92),
					Height: place(height - bottom - at), Title: fmt.Sprintf("%s, %s: %.1f MiB/s", seriesName(name), param.FormatBytes(size), v),
				})
			}
		}
	}
	for i, name := range series {
		c.Legend = append(c.Legend, legend{class(i), seriesName(name)})
	}
	return c, true
}
