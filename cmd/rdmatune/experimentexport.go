package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/experiment"
	htmlreport "github.com/rdmatune/rdmatune/experiment/report"
	"github.com/rdmatune/rdmatune/param"
)

// whole returns the experiments that ids name, or, without any, those that f chooses.
func (o *options) whole(cmd *cobra.Command, ids []string, f *filterFlags) ([]experiment.Experiment, error) {
	if len(ids) == 0 {
		list, err := o.chosen(cmd, f)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
	}
	return o.find(cmd, ids...)
}

// output calls write with the file of the flag, which is replaced only by a whole one,
// or with standard output.
func output(name string, write func(io.Writer) error) error {
	if name == "" || name == "-" {
		return write(os.Stdout)
	}
	if err := replaceable(name); err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o644))
	if err != nil {
		return asked(name, err)
	}
	defer f.Cleanup()
	if err := write(f); err != nil {
		return asked(name, err)
	}
	return asked(name, f.CloseAtomicallyReplace())
}

// replaceable refuses to put a file in the place of a spec, or of something that is no
// regular file: a device, a pipe, a link to elsewhere.
func replaceable(name string) error {
	if strings.HasSuffix(name, ".hcl") {
		return fmt.Errorf("write %s: the name of a spec; give the file another", name)
	}
	switch st, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return asked(name, err)
	case !st.Mode().IsRegular():
		return fmt.Errorf("write %s: it is there and is no regular file", name)
	}
	return nil
}

// asked is err with the name of the file that was asked for, in place of the one that is
// written until it is whole.
func asked(name string, err error) error {
	if err == nil {
		return nil
	}
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return fmt.Errorf("write %s: %w", name, err)
}

func newExperimentsExport(o *options) *cobra.Command {
	var format, out string
	f := &filterFlags{}
	cmd := &cobra.Command{
		Use:   "export [ID...]",
		Short: "Write experiments for other programs",
		Long: `Write experiments as JSON (whole, for import), CSV (one row for each experiment and
size) or OpenMetrics text. Without ids, all that the filters choose.`,
		Example: `  rdmatune experiments export --out node7.json
  rdmatune experiments export --format csv --workload allreduce --since 2026-01-01
  rdmatune experiments export --format openmetrics 20260102-150405-a1b2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := map[string]func(io.Writer, []experiment.Experiment) error{
				"json": experiment.WriteJSON, "csv": experiment.WriteCSV, "openmetrics": experiment.WriteOpenMetrics,
			}[format]
			if !ok {
				return fmt.Errorf("--format %q: it must be json, csv or openmetrics", format)
			}
			list, err := o.whole(cmd, args, f)
			if err != nil {
				return err
			}
			return output(out, func(w io.Writer) error { return write(w, list) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&format, "format", "json", "`format`: json, csv or openmetrics")
	cmd.Flags().StringVar(&out, "out", "", "`file` to write instead of standard output")
	completeWords(cmd, "format", "json", "csv", "openmetrics")
	cmd.ValidArgsFunction = o.completeIDs
	return cmd
}

func newExperimentsImport(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE...",
		Short: "Add the experiments of other nodes' exports",
		Long: `Add the experiments of JSON exports, to build one archive of several nodes. A file is
imported whole or not at all; experiments that are there already stay as they are.`,
		Example: `  rdmatune experiments import node7.json node8.json
  ssh node9 rdmatune experiments export | rdmatune experiments import -`,
		Args: arguments(1, many, "one FILE or more is"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			db, err := o.writableDatabase(cmd)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			for _, name := range args {
				if err := importFile(cmd, db, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func importFile(cmd *cobra.Command, db *experiment.DB, name string) error {
	in, origin := io.Reader(os.Stdin), "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in, origin = f, filepath.Base(name)
	}
	added, known, err := db.Import(cmd.Context(), in, origin)
	if err != nil {
		return fmt.Errorf("%s: %w", origin, err)
	}
	printf(os.Stdout, "%s: %s added, %d there already.\n", origin, param.Count(added, "experiment"), known)
	return nil
}

func newExperimentsReport(o *options) *cobra.Command {
	var out string
	f := &filterFlags{}
	cmd := &cobra.Command{
		Use:   "report [ID...]",
		Short: "Write one HTML page about experiments",
		Long: fmt.Sprintf(`Write one HTML page, which needs neither a network nor a script: latency by size and
hint, distributions, latency over time with every change of path, bandwidth, what
differs between the experiments, and the hardware. Without ids, the newest that the
filters choose. A page shows at most %d.`, htmlreport.MaxExperiments),
		Example: `  rdmatune experiments report 20260102-150405-a1b2 --out report.html
  rdmatune experiments report --workload allreduce --since 24h --out today.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := o.whole(cmd, args, f)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return fmt.Errorf("%w like that", experiment.ErrNotFound)
			}
			if len(args) == 0 && len(list) > htmlreport.MaxExperiments {
				printf(os.Stderr, "Only the newest %d of %d experiments are on the page.\n", htmlreport.MaxExperiments, len(list))
				list = list[:htmlreport.MaxExperiments]
			}
			return output(out, func(w io.Writer) error { return htmlreport.Write(w, list) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&out, "out", "", "`file` to write instead of standard output")
	return cmd
}

func newExperimentsPlot(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "plot ID",
		Short: "Draw an experiment's latencies or bandwidths in the terminal",
		Long: `Draw one bar for each size and series, in plain characters: latency from P50 (where
the bar of = ends) to P99 (where that of - ends) on a logarithmic scale, and bandwidth
on a linear one.`,
		Example: "  rdmatune experiments plot 20260102-150405-a1b2",
		Args:    arguments(1, 1, "one ID is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := o.find(cmd, args[0])
			if err != nil {
				return err
			}
			return plot(os.Stdout, found[0])
		},
	}
}

// plotWidth is the characters of the longest bar.
const plotWidth = 48

// plot draws what an experiment measured.
func plot(w io.Writer, e experiment.Experiment) error {
	type bar struct {
		size, series, kind, text string
		first, second            float64 // lengths, of 1
	}
	var bars []bar
	low, high, widest := math.Inf(1), 0.0, 0.0
	for _, s := range e.Sizes {
		if s.Kind != experiment.Stream && s.P50 > 0 {
			low, high = min(low, float64(s.P50)), max(high, float64(s.P50), float64(s.P99))
		}
		widest = max(widest, float64(s.Bandwidth))
	}
	// A decade below the least, so that its bar has a length.
	span := math.Log(max(high/low, 1)) + math.Ln2
	length := func(v int64) float64 { return (math.Log(float64(v)/low) + math.Ln2) / span }
	for _, s := range e.Sizes {
		b := bar{size: param.FormatBytes(s.Size), series: s.Series, kind: s.Kind}
		switch {
		case s.Kind != experiment.Stream && s.P50 > 0:
			b.first, b.second = length(s.P50), length(max(s.P50, s.P99))
			b.text = timed(s.P50) + " / " + timed(s.P99)
		case s.Kind == experiment.Stream && s.Bandwidth > 0:
			b.first = float64(s.Bandwidth) / widest
			b.second = b.first
			b.text = mebibytes(s.Bandwidth)
		default:
			continue
		}
		bars = append(bars, b)
	}
	if len(bars) == 0 {
		return fmt.Errorf("experiment %s measured nothing", e.ID)
	}
	name, size := 0, 0
	for _, b := range bars {
		name, size = max(name, len(b.series)), max(size, len(b.size))
	}
	label := ""
	if e.Simulated {
		label = ", simulated"
	}
	printf(w, "%s: %s on %s%s\n", e.ID, short(e.Workload), e.Device, label)
	slices.SortStableFunc(bars, func(a, b bar) int { return strings.Compare(a.kind, b.kind) })
	kind := ""
	for _, b := range bars {
		if b.kind != kind {
			kind = b.kind
			title := strings.ReplaceAll(kind, "_", " ") + ": = to P50, - to P99"
			if kind == experiment.Stream {
				title = "stream: bandwidth"
			}
			printf(w, "\n%s\n", title)
		}
		first := max(int(b.first*plotWidth+0.5), 1)
		second := max(int(b.second*plotWidth+0.5), first)
		drawn := strings.Repeat("=", first) + strings.Repeat("-", second-first)
		printf(w, "%*s %-*s |%-*s %s\n", size, b.size, name, b.series, plotWidth, drawn, b.text)
	}
	return nil
}
