package experiment

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ExportVersion is the version of the JSON that WriteJSON writes and Import reads: the
// minor number rises when a field is added, the major one when a field changes its
// meaning or goes.
const ExportVersion = "1.1"

// An archive is the JSON document of an export.
type archive struct {
	FormatVersion string       `json:"format_version"`
	Experiments   []Experiment `json:"experiments"`
}

// WriteJSON writes experiments whole, such that Import can read them elsewhere.
func WriteJSON(w io.Writer, list []Experiment) error {
	if list == nil {
		list = []Experiment{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(archive{ExportVersion, list})
}

// csvColumns are the columns of WriteCSV, with what they hold of a size.
var csvColumns = []struct {
	name string
	text func(Experiment, Series, Size) string
}{
	{"experiment", func(e Experiment, _ Series, _ Size) string { return e.ID }},
	{"time", func(e Experiment, _ Series, _ Size) string { return e.Time.UTC().Format(time.RFC3339) }},
	{"workload", func(e Experiment, _ Series, _ Size) string { return e.Workload }},
	{"status", func(e Experiment, _ Series, _ Size) string { return string(e.Status) }},
	{"hostname", func(e Experiment, _ Series, _ Size) string { return e.Node.Hostname }},
	{"device", func(e Experiment, _ Series, _ Size) string { return e.Device }},
	{"simulated", func(e Experiment, _ Series, _ Size) string { return strconv.FormatBool(e.Simulated) }},
	{"series", func(_ Experiment, s Series, _ Size) string { return s.Name }},
	{"hint_bytes", func(_ Experiment, s Series, _ Size) string {
		if s.Hint == nil {
			return ""
		}
		return strconv.FormatInt(*s.Hint, 10)
	}},
	{"measured", func(_ Experiment, _ Series, z Size) string { return z.Kind }},
	{"size_bytes", func(_ Experiment, _ Series, z Size) string { return strconv.FormatInt(z.Size, 10) }},
	{"tier", func(_ Experiment, _ Series, z Size) string { return z.Tier }},
	{"n", func(_ Experiment, _ Series, z Size) string { return strconv.FormatInt(z.N, 10) }},
	{"p50_ns", func(_ Experiment, _ Series, z Size) string { return orEmpty(z.P50, z.P50) }},
	{"p99_ns", func(_ Experiment, _ Series, z Size) string { return orEmpty(z.P99, z.P99) }},
	{"p999_ns", func(_ Experiment, _ Series, z Size) string { return orEmpty(z.P999, z.P999) }},
	{"max_ns", func(_ Experiment, _ Series, z Size) string { return orEmpty(z.Max, z.Max) }},
	{"bandwidth_bytes_per_second", func(_ Experiment, _ Series, z Size) string { return orEmpty(z.Bandwidth, z.Bandwidth) }},
	{"nic_firmware", func(e Experiment, _ Series, _ Size) string { return e.Node.Firmware }},
	{"nic_driver", func(e Experiment, _ Series, _ Size) string { return e.Node.Driver }},
	{"nic_driver_version", func(e Experiment, _ Series, _ Size) string { return e.Explain["nic.driver_version"] }},
	{"topology", func(e Experiment, _ Series, _ Size) string { return e.Explain["topology"] }},
	{"kernel", func(e Experiment, _ Series, _ Size) string { return e.Node.Kernel }},
	{"virtualised", func(e Experiment, _ Series, _ Size) string { return e.Node.Virtualised }},
	{"spec_digest", func(e Experiment, _ Series, _ Size) string { return e.SpecDigest }},
	{"git_commit", func(e Experiment, _ Series, _ Size) string { return e.GitCommit }},
	{"rdmatune", func(e Experiment, _ Series, _ Size) string { return e.Version }},
}

// cell keeps a text that a spreadsheet would take for a formula a text.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// orEmpty is v, or nothing where there was nothing to measure it from.
func orEmpty(given, v int64) string {
	if given == 0 {
		return ""
	}
	return strconv.FormatInt(v, 10)
}

// WriteCSV writes one row for each size that was measured, after a row of names.
func WriteCSV(w io.Writer, list []Experiment) error {
	out := csv.NewWriter(w)
	row := make([]string, len(csvColumns))
	for i, c := range csvColumns {
		row[i] = c.name
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for _, e := range list {
		for _, z := range e.Sizes {
			s := e.seriesOf(z)
			for i, c := range csvColumns {
				row[i] = cell(c.text(e, s, z))
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// seriesOf returns the series that z belongs to; without one, what the measuring
// connection's settings say.
func (e Experiment) seriesOf(z Size) Series {
	for _, s := range e.Series {
		if s.Name == z.Series {
			return s
		}
	}
	return Series{Name: z.Series}
}

// WriteOpenMetrics writes the measurements as OpenMetrics text, which ends with "# EOF".
func WriteOpenMetrics(w io.Writer, list []Experiment) error {
	out := bufio.NewWriter(w)
	family := func(name, unit, help string) {
		fmt.Fprintf(out, "# TYPE %s gauge\n# UNIT %s %s\n# HELP %s %s\n", name, name, unit, name, help)
	}
	family("rdmatune_latency_seconds", "seconds", "Latency by message size; the kind says between which points.")
	each(list, func(e Experiment, z Size, labels string) {
		quantile := func(q string, ns int64) {
			fmt.Fprintf(out, "rdmatune_latency_seconds{%s,quantile=\"%s\"} %g\n", labels, q, float64(ns)/1e9)
		}
		if z.N > 0 && z.Kind == RoundTrip {
			quantile("0.5", z.P50)
			if z.P99 > 0 {
				quantile("0.99", z.P99)
			}
			if z.P999 > 0 {
				quantile("0.999", z.P999)
			}
			quantile("1", z.Max)
		}
	})
	family("rdmatune_bandwidth_bytes_per_second", "bytes_per_second", "Payload received, by message size.")
	each(list, func(e Experiment, z Size, labels string) {
		if z.Bandwidth > 0 {
			fmt.Fprintf(out, "rdmatune_bandwidth_bytes_per_second{%s} %d\n", labels, z.Bandwidth)
		}
	})
	fmt.Fprint(out, "# TYPE rdmatune_messages gauge\n# HELP rdmatune_messages Messages that were timed.\n")
	each(list, func(e Experiment, z Size, labels string) {
		fmt.Fprintf(out, "rdmatune_messages{%s} %d\n", labels, z.N)
	})
	fmt.Fprint(out, "# EOF\n")
	return out.Flush()
}

// each calls f for every size with its labels.
func each(list []Experiment, f func(e Experiment, z Size, labels string)) {
	for _, e := range list {
		for _, z := range e.Sizes {
			s := e.seriesOf(z)
			hint := ""
			if s.Hint != nil {
				hint = strconv.FormatInt(*s.Hint, 10)
			}
			labels := ""
			for _, l := range [][2]string{
				{"experiment", e.ID}, {"workload", e.Workload}, {"hostname", e.Node.Hostname}, {"device", e.Device},
				{"simulated", strconv.FormatBool(e.Simulated)}, {"series", s.Name}, {"hint", hint}, {"kind", z.Kind},
				{"size", strconv.FormatInt(z.Size, 10)},
			} {
				if labels != "" {
					labels += ","
				}
				labels += l[0] + `="` + labelEscape.Replace(l[1]) + `"`
			}
			f(e, z, labels)
		}
	}
}

// labelEscape escapes a label's value as OpenMetrics asks.
var labelEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
