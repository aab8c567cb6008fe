package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
)

func writeExperiment(e experiment.Experiment) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			printf(w, "%s\t%s\n", name, value)
		}
	}
	row("experiment", e.ID)
	row("time", e.Time.Local().Format(time.RFC3339))
	row("kind", kindOf(e))
	row("workload", e.Workload)
	row("status", string(e.Status))
	row("took", e.Duration.Round(time.Millisecond).String())
	row("error", strings.ReplaceAll(e.Error, "\n", "\n\t"))
	host := e.Node.Ref
	if e.Node.Hostname != "" && e.Node.Hostname != host {
		host += " (" + e.Node.Hostname + ")"
	}
	row("node", host)
	row("kernel", e.Node.Kernel)
	row("virtualised", e.Node.Virtualised)
	device := e.Device
	if e.Simulated {
		device = strings.TrimSpace(device + " (simulated: says nothing of hardware)")
	}
	row("device", device)
	row("driver", e.Node.Driver)
	row("firmware", e.Node.Firmware)
	row("spec", e.SpecRoot)
	row("spec digest", e.SpecDigest)
	row("git commit", e.GitCommit)
	row("rdmatune", e.Version)
	row("imported from", e.Origin)
	row("note", strings.Join(e.Detail.Notes, "\n\t"))
	if len(e.Settings) > 0 {
		writeSettings(w, e)
	}
	if len(e.Sizes) > 0 {
		writeSizes(w, e)
	}
	if len(e.Switches) > 0 {
		printf(w, "\nSWITCH\tCONNECTION\tGENERATION\tOUTCOME\tPAUSE\tDRAINED\tHELD\n")
		for _, s := range e.Switches {
			printf(w, "%s pid %d\t%s\t%d\t%s\t%s\t%d\t%d\n", s.Workload, s.PID, s.Connection, s.Generation, s.Outcome,
				micros(s.Pause.Nanoseconds()), s.Drained, s.Held)
		}
	}
	for _, g := range e.Guards {
		printf(w, "\nGUARD\t%s of %s\t%s\t%s\n", g.Name, g.Workload, g.Verdict, g.Text)
	}
	for _, s := range e.Series {
		title := "PROFILE"
		if s.Name != "" {
			title = strings.ToUpper(s.Name)
		}
		writeNamed(w, title, s.Profile)
	}
	writeNamed(w, "MEASURED WITH", e.Explain)
	writeNamed(w, "SEEN DURING THE RUN", e.Observed)
	return w.Flush()
}

// writeSizes writes what was measured of each kind.
func writeSizes(w io.Writer, e experiment.Experiment) {
	for _, kind := range []string{experiment.RoundTrip, experiment.AllReduce, experiment.Completion, experiment.Stream} {
		head := false
		for _, s := range e.Sizes {
			if s.Kind != kind {
				continue
			}
			if !head {
				head = true
				if kind == experiment.Stream {
					printf(w, "\nSTREAM\tSERIES\tTIER\tN\tBANDWIDTH\tLOST\tDUPLICATED\tREORDERED\tCORRUPTED\n")
				} else {
					printf(w, "\n%s\tSERIES\tTIER\tN\tP50\tP99\tP99.9\tMAX\tLOST\tDUPLICATED\tREORDERED\tCORRUPTED\n",
						strings.ToUpper(strings.ReplaceAll(kind, "_", " ")))
				}
			}
			series, tier := cmp.Or(s.Series, "-"), cmp.Or(s.Tier, "-")
			faults := fmt.Sprintf("%d\t%d\t%d\t%d", s.Lost, s.Duplicated, s.Reordered, s.Corrupted)
			if kind == experiment.Stream {
				printf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", param.FormatBytes(s.Size), series, tier, s.N, mebibytes(s.Bandwidth), faults)
				continue
			}
			printf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", param.FormatBytes(s.Size), series, tier, s.N,
				timed(s.P50), timed(s.P99), timed(s.P999), timed(s.Max), faults)
		}
	}
}

// writeNamed writes facts by name.
func writeNamed(w io.Writer, title string, facts map[string]string) {
	if len(facts) == 0 {
		return
	}
	printf(w, "\n%s\t\n", title)
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		printf(w, "%s\t%s\n", name, facts[name])
	}
}

// A settingRow is a setting with the value that was tried, where another was read back.
type settingRow struct {
	experiment.Setting
	tried string
}

// writeSettings writes what an experiment's settings were, what was tried and is not there
// any more, and what was read back.
func writeSettings(w io.Writer, e experiment.Experiment) {
	tried := map[[2]string]string{}
	for _, t := range e.Tried {
		tried[[2]string{t.Address, t.Attr}] = t.Value
	}
	var rows []settingRow
	for _, s := range e.Settings {
		rows = append(rows, settingRow{s, tried[[2]string{s.Address, s.Attr}]})
	}
	if len(tried) == 0 {
		printf(w, "\nSETTING\tATTRIBUTE\tBEFORE\tREAD BACK\n")
	} else {
		printf(w, "\nSETTING\tATTRIBUTE\tBEFORE\tTRIED\tREAD BACK\n")
	}
	for _, r := range foldThreads(rows) {
		if len(tried) == 0 {
			printf(w, "%s\t%s\t%s\t%s\n", r.Address, r.Attr, r.Before, r.Value)
		} else {
			printf(w, "%s\t%s\t%s\t%s\t%s\n", r.Address, r.Attr, r.Before, cmp.Or(r.tried, "-"), r.Value)
		}
	}
}

// foldThreads makes one row of the threads of a process that went the same way.
func foldThreads(rows []settingRow) []settingRow {
	var out []settingRow
	count := map[settingRow]int{}
	for _, r := range rows {
		if attr, _, indexed := strings.Cut(r.Attr, "["); indexed && strings.Contains(r.Attr, "@") {
			r.Attr = attr
		}
		if count[r]++; count[r] == 1 {
			out = append(out, r)
		}
	}
	for i, r := range out {
		if n := count[r]; n > 1 {
			out[i].Attr = fmt.Sprintf("%s (%d threads)", r.Attr, n)
		}
	}
	return out
}

func writeJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
