package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
)

func newExperimentsCompare(o *options) *cobra.Command {
	var asJSON, force bool
	cmd := &cobra.Command{
		Use:   "compare A[:SERIES] B[:SERIES]",
		Short: "Say what one experiment shows beside another",
		Long: `Compare the quantiles and bandwidths of two experiments, or of two series of one,
with intervals that hold the difference in 95 of 100 repetitions, and list every
setting, firmware and driver that differs. Where more than one does, the difference is
not attributable to the hint.`,
		Example: `  rdmatune experiments compare 20260102-150405-a1b2 20260102-160203-c3d4
  rdmatune experiments compare "20260102-15:hint 0" "20260102-15:hint 8 KiB"`,
		Args: arguments(2, 2, "two experiments are"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, series := make([]string, 2), make([]string, 2)
			for i, a := range args {
				ids[i], series[i], _ = strings.Cut(a, ":")
			}
			found, err := o.find(cmd, ids...)
			if err != nil {
				return err
			}
			c, err := experiment.Compare(experiment.Side{Experiment: found[0], Series: series[0]}, experiment.Side{Experiment: found[1], Series: series[1]}, force)
			if errors.Is(err, experiment.ErrHardware) {
				return fmt.Errorf("%w; --force compares them all the same", err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(struct {
					FormatVersion string `json:"format_version"`
					A             string `json:"a"`
					B             string `json:"b"`
					experiment.Comparison
				}{experiment.ExportVersion, args[0], args[1], c})
			}
			return writeComparison(c)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().BoolVar(&force, "force", false, "compare experiments of different hardware")
	return cmd
}

func writeComparison(c experiment.Comparison) error {
	side := func(s experiment.Side) string {
		text := s.ID
		if s.Series != "" {
			text += ", " + s.Series
		}
		if s.Simulated {
			text += " (simulated)"
		}
		return text
	}
	printf(os.Stdout, "A: %s\nB: %s\n\n", side(c.A), side(c.B))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	printf(w, "MEASURED\tSIZE\t\tA\tB\tB - A\t95 %% INTERVAL\t\n")
	for _, s := range c.Sizes {
		size := param.FormatBytes(s.Size)
		for _, name := range []string{"p50", "p99", "p99.9"} {
			q, ok := s.Quantiles[name]
			if !ok {
				continue
			}
			printf(w, "%s\t%s\t%s\t%s\t%s\t%+.1f us (%+.1f %%)\t%+.1f to %+.1f us\t%s\n", strings.ReplaceAll(s.Kind, "_", " "), size, name, micros(q.A), micros(q.B),
				float64(q.B-q.A)/1e3, 100*q.By, float64(q.Low)/1e3, float64(q.High)/1e3, shown(q.Shown))
		}
		if b := s.Bandwidth; b != nil {
			printf(w, "%s\t%s\t\t%s\t%s\t%+.1f %%\tp = %.2g\t%s\n", s.Kind, size, mebibytes(b.A), mebibytes(b.B), 100*b.By, b.P, shown(b.Shown))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, u := range c.Unmatched {
		printf(os.Stdout, "Not compared: %s.\n", u)
	}
	if len(c.Differs) > 0 {
		printf(os.Stdout, "\n")
		printf(w, "DIFFERS\tA\tB\t\n")
		for _, d := range c.Differs {
			follows := ""
			if d.Follows {
				follows = "follows from the hint"
			}
			printf(w, "%s\t%s\t%s\t%s\n", d.What, d.A, d.B, follows)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	printf(os.Stdout, "\nVerdict: %s.\nCause: %s.\n", c.Verdict, c.Cause)
	return nil
}

func shown(yes bool) string {
	if yes {
		return ""
	}
	return "no difference shown"
}

func newExperimentsRemove(o *options) *cobra.Command {
	var olderThan string
	var keep int
	cmd := &cobra.Command{
		Use:   "rm [ID...]",
		Short: "Remove experiments for good",
		Long: `Remove experiments by id, or those that retention does not keep. What is running is
never removed.`,
		Example: `  rdmatune experiments rm 20260102-150405-a1b2
  rdmatune experiments rm --older-than 2160h --keep 100`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if (len(args) > 0) == (olderThan != "") {
				return errors.New("give either ids, or --older-than with a time")
			}
			var age time.Duration
			if olderThan != "" {
				if age, err = param.ParseDuration(olderThan); err != nil {
					return fmt.Errorf("--older-than: %w", err)
				}
			}
			if keep < 0 {
				return fmt.Errorf("--keep %d: it must not be negative", keep)
			}
			ids := args
			if len(args) > 0 {
				found, err := o.find(cmd, args...) // a beginning of an id is enough, an unknown one an error
				if err != nil {
					return err
				}
				ids = nil
				for _, e := range found {
					ids = append(ids, e.ID)
				}
			}
			db, err := o.writableDatabase(cmd)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			if olderThan != "" {
				all, err := db.List(cmd.Context(), experiment.Filter{})
				if err != nil {
					return err
				}
				before := time.Now().Add(-age)
				for i, e := range all { // newest first
					if i >= keep && e.Time.Before(before) {
						ids = append(ids, e.ID)
					}
				}
			}
			n, err := db.Remove(cmd.Context(), ids...)
			if err != nil {
				return err
			}
			printf(os.Stdout, "Removed %s.\n", param.Count(n, "experiment"))
			if n < len(ids) {
				printf(os.Stderr, "Still running, and left: %d.\n", len(ids)-n)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "", "remove those older than this `time`, such as 2160h")
	cmd.Flags().IntVar(&keep, "keep", 0, "with --older-than, keep the newest `number` whatever their age")
	return cmd
}
