package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

func newExperiments(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "experiments",
		Aliases: []string{"experiment"},
		Short:   "Look at what was done and measured",
		Long: `Every apply that changes something and every bench writes one experiment to a
database in the state directory.`,
		Example: `  rdmatune experiments list
  rdmatune experiments show 20260102-150405-a1b2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	byID := []*cobra.Command{newExperimentsShow(o), newExperimentsPlot(o), newExperimentsCompare(o), newExperimentsReport(o), newExperimentsRemove(o)}
	for _, c := range byID {
		c.ValidArgsFunction = o.completeIDs
	}
	cmd.AddCommand(byID...)
	cmd.AddCommand(newExperimentsList(o), newExperimentsExport(o), newExperimentsImport(o))
	return cmd
}

// database opens the node's database for reading; nil when there is none yet.
func (o *options) database(cmd *cobra.Command) (*experiment.DB, error) {
	n, err := node.Open(o.node, o.stateDir)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return experiment.OpenReadOnly(cmd.Context(), n.StateDir())
}

// writableDatabase opens the node's database for writing.
func (o *options) writableDatabase(cmd *cobra.Command) (*experiment.DB, error) {
	n, err := node.Open(o.node, o.stateDir)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return experiment.Open(cmd.Context(), n.StateDir())
}

// find returns experiments by their ids, whole.
func (o *options) find(cmd *cobra.Command, ids ...string) (_ []experiment.Experiment, err error) {
	db, err := o.database(cmd)
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, fmt.Errorf("%w: %q", experiment.ErrNotFound, ids[0])
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var out []experiment.Experiment
	for _, id := range ids {
		e, err := db.Show(cmd.Context(), id)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// completeIDs completes the ids of experiments, newest first.
func (o *options) completeIDs(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	list, err := o.chosen(cmd, &filterFlags{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, e := range list {
		if strings.HasPrefix(e.ID, begun) {
			out = append(out, e.ID+"\t"+kindOf(e)+" of "+short(e.Workload))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// filterFlags choose experiments.
type filterFlags struct{ workload, device, kind, hint, since string }

func (f *filterFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.workload, "workload", "", "of this workload, by `address` or name of the block")
	cmd.Flags().StringVar(&f.device, "device", "", "on this RDMA `device`")
	cmd.Flags().StringVar(&f.kind, "kind", "", "of this `kind`: apply, destroy, reconcile or bench; of bench, allreduce and tune can be had alone")
	cmd.Flags().StringVar(&f.hint, "hint", "", "measured with this `hint`, such as 8KiB or none")
	cmd.Flags().StringVar(&f.since, "since", "", "not before this `time`: a date, a moment (2026-01-02T15:04:05Z) or an age (36h)")
}

// Commands that record experiments of the kind bench, each telling apart.
const (
	kindAllreduce = "allreduce"
	kindTune      = "tune"
)

// ofBench reports whether the kind is one of those that are bench in the database.
func (f *filterFlags) ofBench() bool { return f.kind == kindAllreduce || f.kind == kindTune }

// kindOf names what an experiment is of: its kind, and for bench which command's it is.
func kindOf(e experiment.Experiment) string {
	switch {
	case e.Kind != experiment.Bench:
	case slices.ContainsFunc(e.Sizes, func(s experiment.Size) bool { return s.Kind == experiment.AllReduce }):
		return kindAllreduce
	case slices.ContainsFunc(e.Detail.Notes, func(n string) bool { return strings.HasPrefix(n, tuneNote) }):
		return kindTune
	}
	return string(e.Kind)
}

// filter turns the flags into what the database takes.
func (f *filterFlags) filter(now time.Time) (experiment.Filter, error) {
	out := experiment.Filter{Workload: f.workload, Device: f.device, Kind: experiment.Kind(f.kind)}
	if f.ofBench() {
		out.Kind = experiment.Bench
	}
	if out.Kind != "" && !slices.Contains(experiment.Kinds, out.Kind) {
		return out, fmt.Errorf("--kind %q: it must be apply, destroy, reconcile, bench, allreduce or tune", f.kind)
	}
	if f.hint == "none" {
		out.NoHint = true
	} else if f.hint != "" {
		n, err := parseSize("--hint", f.hint)
		if err != nil {
			return out, err
		}
		out.Hint = &n
	}
	if f.since == "" {
		return out, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.ParseInLocation(layout, f.since, time.Local); err == nil {
			out.Since = at
			return out, nil
		}
	}
	age, err := param.ParseDuration(f.since)
	if err != nil {
		return out, fmt.Errorf("--since %q is neither a date, nor a moment, nor an age such as 36h", f.since)
	}
	out.Since = now.Add(-age)
	return out, nil
}

// chosen lists what the filter chooses; nothing when there is no database yet.
func (o *options) chosen(cmd *cobra.Command, f *filterFlags) (_ []experiment.Experiment, err error) {
	filter, err := f.filter(time.Now())
	if err != nil {
		return nil, err
	}
	db, err := o.database(cmd)
	if err != nil || db == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	list, err := db.List(cmd.Context(), filter)
	if f.ofBench() {
		list = slices.DeleteFunc(list, func(e experiment.Experiment) bool { return kindOf(e) != f.kind })
	}
	return list, err
}

func newExperimentsList(o *options) *cobra.Command {
	var asJSON bool
	f := &filterFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List experiments, newest first",
		Example: `  rdmatune experiments list --workload allreduce --since 24h
  rdmatune experiments list --json | jq '.experiments[0].id'`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := o.chosen(cmd, f)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(map[string]any{"format_version": experiment.ExportVersion, "experiments": append([]experiment.Experiment{}, list...)})
			}
			if len(list) == 0 && *f == (filterFlags{}) {
				printf(os.Stdout, "No experiments yet: apply and bench write them.\n")
				return nil
			}
			if len(list) == 0 {
				printf(os.Stdout, "No experiment is like that.\n")
				return nil
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			printf(w, "ID\tTIME\tKIND\tWORKLOAD\tSTATUS\tMEASURED\n")
			for _, e := range list {
				printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Time.Local().Format(time.DateTime), kindOf(e), short(e.Workload), e.Status, measured(e))
			}
			return w.Flush()
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// short makes one name of the instances of a workload.
func short(workloads string) string {
	var names []string
	count := map[string]int{}
	for _, w := range strings.Split(workloads, ", ") {
		name, _, _ := strings.Cut(w, "[")
		if count[name]++; count[name] == 1 {
			names = append(names, name)
		}
	}
	for i, name := range names {
		if count[name] > 1 {
			names[i] = fmt.Sprintf("%s (%d)", name, count[name])
		}
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(names)-3))
	}
	return strings.Join(names, ", ")
}

// measured is what was measured in a few words.
func measured(e experiment.Experiment) string {
	first := slices.IndexFunc(e.Sizes, func(s experiment.Size) bool { return s.N > 0 })
	if first < 0 {
		return "-"
	}
	s := e.Sizes[first]
	text := fmt.Sprintf("%s p50 %s p99 %s", param.FormatBytes(s.Size), timed(s.P50), timed(s.P99))
	if s.Kind == experiment.Stream {
		text = fmt.Sprintf("%s %s", param.FormatBytes(s.Size), mebibytes(s.Bandwidth))
	}
	if n := len(e.Sizes) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	if e.Simulated {
		text += ", simulated"
	}
	return text
}

// micros writes nanoseconds as microseconds.
func micros(ns int64) string { return fmt.Sprintf("%.1f us", float64(ns)/1e3) }

// timed is micros of what was measured, "-" where it was not or of too few samples.
func timed(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return micros(ns)
}

// mebibytes writes a bandwidth.
func mebibytes(perSecond int64) string { return fmt.Sprintf("%.1f MiB/s", float64(perSecond)/(1<<20)) }

func newExperimentsShow(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one experiment whole",
		Long:  "Show one experiment whole. The beginning of an id is enough where it is unambiguous.",
		Example: `  rdmatune experiments show 20260102-150405-a1b2
  rdmatune experiments show 20260102-15 --json`,
		Args: arguments(1, 1, "one ID is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := o.find(cmd, args[0])
			if err != nil {
				return err
			}
			e := found[0]
			if asJSON {
				return writeJSON(map[string]any{"format_version": experiment.ExportVersion, "experiment": e})
			}
			return writeExperiment(e)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
