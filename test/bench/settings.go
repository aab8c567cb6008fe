package main

import (
	"fmt"
	"slices"
	"strings"
)

// with is the transport with settings, as over-connect's flags.
func with(name string, settings ...string) contestant {
	return contestant{name, func(o options, m measurement) []duel { return []duel{overDuel(o, m, settings...)} }}
}

// Settings that are compared. The first of each is what the others are compared with.
var (
	// byHint has each hint as programs get it.
	byHint = []contestant{
		with("hint 0", "-hint", "0"),
		with("hint 8 KiB", "-hint", "8192"),
		with("hint 64 KiB", "-hint", "65536"),
	}
	// byCause changes one thing at a time: the queue at the same completion mode, what
	// is copied on the same queue, the completion mode on the same queue.
	byCause = []contestant{
		with("hint 0, event", "-hint", "0", "-completion", "event"),
		with("hint 0, busy", "-hint", "0", "-completion", "busy"),
		with("hint 64 KiB, event", "-hint", "65536", "-completion", "event"),
		with("hint 64 KiB, adaptive", "-hint", "65536", "-completion", "adaptive"),
		with("hint 64 KiB, busy", "-hint", "65536", "-completion", "busy"),
		with("hint 64 KiB, busy, 256 B eager", "-hint", "65536", "-completion", "busy", "-eager-max", "256"),
	}
	byLanes = []contestant{
		with("hint 0", "-hint", "0"),
		with("hint 8 KiB, single", "-hint", "8192", "-lanes", "single"),
		with("hint 8 KiB, dual", "-hint", "8192", "-lanes", "dual"),
	}
	byCompletion = []contestant{
		with("event", "-hint", "65536", "-completion", "event", "-costs"),
		with("adaptive", "-hint", "65536", "-completion", "adaptive", "-costs"),
		with("busy", "-hint", "65536", "-completion", "busy", "-costs"),
	}
)

// comparisons are the measurements of the transport's settings.
func comparisons() []measurement {
	var all []measurement
	for _, s := range []struct {
		size, count int
	}{{8, 2000}, {256, 2000}, {1 << 10, 1000}, {4 << 10, 800}, {16 << 10, 400}, {64 << 10, 100}} {
		all = append(all,
			measurement{name: "hint " + sizeName(s.size), size: s.size, count: s.count, settings: byHint},
			measurement{name: "cause " + sizeName(s.size), size: s.size, count: s.count, settings: byCause})
	}
	return append(append(all,
		measurement{name: "lanes 2 MiB", size: 2 << 20, stream: true, count: 16, settings: byLanes},
		measurement{name: "completion 8 B", size: 8, count: 5000, settings: byCompletion},
		bursts, switching), scheduling...)
}

// contestants are those of m: its settings, or else who.
func (m measurement) contestants(who []contestant) []contestant {
	if len(m.settings) > 0 {
		return m.settings
	}
	return who
}

// compared renders the measurements of settings whose names start with prefix: one
// line for each size, with the ratio to the first setting. What was not measured at any
// size has no column.
func (r Results) compared(b *strings.Builder, title, prefix string, settings []contestant, metrics ...string) {
	for _, metric := range metrics {
		var sizes []string
		for _, s := range r.Series {
			size, ok := strings.CutPrefix(s.Measurement, prefix+" ")
			if ok && s.Metric == metric && !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
		if len(sizes) == 0 {
			continue
		}
		settings := slices.DeleteFunc(slices.Clone(settings), func(c contestant) bool {
			return !slices.ContainsFunc(sizes, func(size string) bool { return len(r.runs(prefix+" "+size, c.name, metric)) > 0 })
		})
		unit, scale := "", 1.0
		if metric == metricP50 || metric == metricP99 {
			unit, scale = " (us)", 1e-3
		}
		fmt.Fprintf(b, "\n## %s: %s%s\n\n| size | runs |", title, metric, unit)
		for i, c := range settings {
			fmt.Fprintf(b, " %s |", c.name)
			if i > 0 {
				b.WriteString(" ratio |")
			}
		}
		b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", 2*len(settings)-1) + "\n")
		for _, size := range sizes {
			name := prefix + " " + size
			base := r.runs(name, settings[0].name, metric)
			fmt.Fprintf(b, "| %s | %d |", size, len(base))
			for i, c := range settings {
				runs := r.runs(name, c.name, metric)
				if len(runs) == 0 {
					b.WriteString(strings.Repeat(" - |", min(i, 1)+1))
					continue
				}
				fmt.Fprintf(b, " %s |", number(median(runs)*scale))
				if i > 0 {
					x := compare(runs, base)
					fmt.Fprintf(b, " %.2f (%.2f to %.2f) |", x.value, x.low, x.high)
				}
			}
			b.WriteString("\n")
		}
	}
}
