// Package report renders experiments as one HTML page that needs nothing else: no
// script, no network, no font. It can be read on a phone, printed, and mailed.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// MaxExperiments bounds how many experiments one page shows.
const MaxExperiments = 20

// A sheet is what the template shows.
type sheet struct {
	Title       string
	Colours     [colours]struct{} // one for each class of lines and bars
	Simulated   bool
	Experiments []section
	Differs     table // settings and facts that are not the same in all
	Hardware    table
}

// A section is one experiment.
type section struct {
	experiment.Experiment
	When   string
	Took   string
	Charts []chart
	Sizes  table
	Worst  table
	Notes  []string
}

// A table has a head and rows of text.
type table struct {
	Head []string
	Rows [][]string
}

// Write writes a page about the experiments, in the order given.
func Write(w io.Writer, list []experiment.Experiment) error {
	if len(list) == 0 || len(list) > MaxExperiments {
		return fmt.Errorf("%d experiments; a page shows 1 to %d", len(list), MaxExperiments)
	}
	s := sheet{Title: title(list), Hardware: hardware(list), Differs: differs(list)}
	for _, e := range list {
		s.Simulated = s.Simulated || e.Simulated
		sec, err := newSection(e)
		if err != nil {
			return fmt.Errorf("experiment %s: %w", e.ID, err)
		}
		s.Experiments = append(s.Experiments, sec)
	}
	return page.Execute(w, s)
}

func title(list []experiment.Experiment) string {
	if len(list) == 1 {
		return string(list[0].Kind) + " of " + list[0].Workload
	}
	return fmt.Sprintf("%d experiments", len(list))
}

func newSection(e experiment.Experiment) (section, error) {
	s := section{
		Experiment: e, When: e.Time.UTC().Format("2006-01-02 15:04:05 UTC"), Took: e.Duration.Round(time.Millisecond).String(),
		Sizes: sizes(e), Worst: worst(e), Notes: e.Detail.Notes,
	}
	if e.Simulated {
		s.Notes = append([]string{"Measured on a simulated device: it says nothing of hardware."}, s.Notes...)
	}
	if e.Node.Virtualised != "" {
		s.Notes = append(s.Notes, "Virtual machine ("+e.Node.Virtualised+"): a hypervisor may take a setting and not pass it on.")
	}
	var err error
	s.Charts, err = charts(e)
	return s, err
}

// sizes is the table of everything that was measured.
func sizes(e experiment.Experiment) table {
	t := table{Head: []string{"Series", "Measured", "Size", "Tier", "n", "P50 µs", "P99 µs", "P99.9 µs", "Max µs", "MiB/s", "Lost", "Duplicated", "Reordered", "Corrupted", "Queue full"}}
	for _, z := range e.Sizes {
		bandwidth := ""
		if z.Bandwidth > 0 {
			bandwidth = fmt.Sprintf("%.1f", float64(z.Bandwidth)/(1<<20))
		}
		t.Rows = append(t.Rows, []string{
			seriesName(z.Series), strings.ReplaceAll(z.Kind, "_", " "), param.FormatBytes(z.Size), z.Tier, fmt.Sprint(z.N), micros(z.P50), micros(z.P99),
			micros(z.P999), micros(z.Max), bandwidth, fmt.Sprint(z.Lost), fmt.Sprint(z.Duplicated), fmt.Sprint(z.Reordered),
			fmt.Sprint(z.Corrupted), fmt.Sprint(z.FullEvents),
		})
	}
	return t
}

// worstShown is how many of the longest messages of a size are listed.
const worstShown = 3

func worst(e experiment.Experiment) table {
	t := table{Head: []string{"Series", "Size", "Message", "Seconds into the run", "µs"}}
	for _, z := range e.Sizes {
		for _, s := range z.Worst[:min(len(z.Worst), worstShown)] {
			t.Rows = append(t.Rows, []string{
				seriesName(z.Series), param.FormatBytes(z.Size), fmt.Sprint(s.Index + 1), fmt.Sprintf("%.3f", s.At.Seconds()), micros(int64(s.Latency)),
			})
		}
	}
	return t
}

func seriesName(name string) string {
	if name == "" {
		return "as set"
	}
	return name
}

// micros writes nanoseconds as microseconds; 0 is a number that is not there.
func micros(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(ns)/1e3)
}

// described is everything that an experiment says of where and with what it ran.
func described(e experiment.Experiment) map[string]string {
	m := map[string]string{
		"device": e.Device, "hostname": e.Node.Hostname, "kernel": e.Node.Kernel, "virtualised": e.Node.Virtualised,
		"nic.driver": e.Node.Driver, "nic.firmware": e.Node.Firmware, "rdmatune": e.Version, "node": e.Node.Ref,
		"spec digest": e.SpecDigest, "git commit": e.GitCommit,
	}
	maps.Copy(m, e.Explain)
	return m
}

// hardware lists the facts of all experiments.
func hardware(list []experiment.Experiment) table {
	return facts(list, described, func([]string) bool { return true })
}

// differs lists the settings that are not the same in all experiments.
func differs(list []experiment.Experiment) table {
	if len(list) < 2 {
		return table{}
	}
	return facts(list, func(e experiment.Experiment) map[string]string {
		m := described(e)
		for _, s := range e.Settings {
			m[s.Address+" "+s.Attr] = s.Value
		}
		for _, s := range e.Series {
			m["hint of "+seriesName(s.Name)] = s.HintText()
		}
		return m
	}, func(values []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return v != values[0] })
	})
}

// facts makes one row of each name whose values keep takes, with one column for each
// experiment.
func facts(list []experiment.Experiment, of func(experiment.Experiment) map[string]string, keep func([]string) bool) table {
	t := table{Head: []string{""}}
	names := map[string]bool{}
	all := make([]map[string]string, len(list))
	for i, e := range list {
		t.Head = append(t.Head, e.ID)
		all[i] = of(e)
		for name, value := range all[i] {
			if value != "" {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		values := make([]string, len(list))
		for i := range all {
			values[i] = all[i][name]
		}
		if keep(values) {
			t.Rows = append(t.Rows, append([]string{name}, values...))
		}
	}
	return t
}
