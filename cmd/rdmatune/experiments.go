package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// experimentsVersion is the version of the experiments' JSON.
const experimentsVersion = "1.0"

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
	cmd.AddCommand(newExperimentsList(o), newExperimentsShow(o))
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

func newExperimentsList(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List experiments, newest first",
		Example: "  rdmatune experiments list --json | jq '.experiments[0].id'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := o.database(cmd)
			if err != nil {
				return err
			}
			list := []experiment.Experiment{}
			if db != nil {
				defer db.Close()
				all, err := db.List(cmd.Context(), experiment.Filter{})
				if err != nil {
					return err
				}
				list = append(list, all...)
			}
			if asJSON {
				return writeJSON(map[string]any{"format_version": experimentsVersion, "experiments": list})
			}
			if len(list) == 0 {
				printf(os.Stdout, "No experiments yet: apply and bench write them.\n")
				return nil
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			printf(w, "ID\tTIME\tKIND\tWORKLOAD\tSTATUS\tMEASURED\n")
			for _, e := range list {
				printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Time.Local().Format(time.DateTime), e.Kind, short(e.Workload), e.Status, measured(e))
			}
			return w.Flush()
		},
	}
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
	if len(e.Sizes) == 0 {
		return "-"
	}
	s := e.Sizes[0]
	text := fmt.Sprintf("%s p50 %s p99 %s", param.FormatBytes(s.Size), micros(s.P50), micros(s.P99))
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

func newExperimentsShow(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one experiment whole",
		Long:  "Show one experiment whole. The beginning of an id is enough where it is unambiguous.",
		Example: `  rdmatune experiments show 20260102-150405-a1b2
  rdmatune experiments show 20260102-15 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := o.database(cmd)
			if err != nil {
				return err
			}
			if db == nil {
				return fmt.Errorf("%w: %q", experiment.ErrNotFound, args[0])
			}
			defer db.Close()
			e, err := db.Show(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(map[string]any{"format_version": experimentsVersion, "experiment": e})
			}
			return writeExperiment(e)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func writeExperiment(e experiment.Experiment) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			printf(w, "%s\t%s\n", name, value)
		}
	}
	row("experiment", e.ID)
	row("time", e.Time.Local().Format(time.RFC3339))
	row("kind", string(e.Kind))
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
	if len(e.Settings) > 0 {
		printf(w, "\nSETTING\tATTRIBUTE\tBEFORE\tREAD BACK\n")
		for _, s := range foldThreads(e.Settings) {
			printf(w, "%s\t%s\t%s\t%s\n", s.Address, s.Attr, s.Before, s.Value)
		}
	}
	if len(e.Sizes) > 0 {
		printf(w, "\nROUND TRIP\tWARM-UP\tN\tP50\tP99\tMAX\tLOST\tDUPLICATED\tREORDERED\tCORRUPTED\n")
		for _, s := range e.Sizes {
			printf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", param.FormatBytes(s.Size), s.Warmup, s.N,
				micros(s.P50), micros(s.P99), micros(s.Max), s.Lost, s.Duplicated, s.Reordered, s.Corrupted)
		}
	}
	if len(e.Switches) > 0 {
		printf(w, "\nSWITCH\tCONNECTION\tGENERATION\tOUTCOME\tPAUSE\tDRAINED\tHELD\n")
		for _, s := range e.Switches {
			printf(w, "%s pid %d\t%s\t%d\t%s\t%s\t%d\t%d\n", s.Workload, s.PID, s.Connection, s.Generation, s.Outcome,
				micros(s.Pause.Nanoseconds()), s.Drained, s.Held)
		}
	}
	return w.Flush()
}

// foldThreads makes one row of the threads of a process that went the same way.
func foldThreads(settings []experiment.Setting) []experiment.Setting {
	var out []experiment.Setting
	count := map[experiment.Setting]int{}
	for _, s := range settings {
		if attr, _, indexed := strings.Cut(s.Attr, "["); indexed && strings.Contains(s.Attr, "@") {
			s.Attr = attr
		}
		if count[s]++; count[s] == 1 {
			out = append(out, s)
		}
	}
	for i, s := range out {
		if n := count[s]; n > 1 {
			out[i].Attr = fmt.Sprintf("%s (%d threads)", s.Attr, n)
		}
	}
	return out
}

func writeJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
