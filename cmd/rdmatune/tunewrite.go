package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/tune"
)

// writeTuning shows the tries and the proposal.
func writeTuning(res tune.Result, id string) error {
	if res.Simulated {
		printf(os.Stdout, "Simulated device: this says nothing of a NIC.\n\n")
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	printf(w, "CANDIDATE\t%s\tBESIDE HINT 0\tBANDWIDTH\t\n", strings.ToUpper(res.Objective))
	for i, t := range res.Tries {
		beside, bandwidth, remark := "-", "-", t.Out
		if i > 0 && t.Value > 0 && res.Tries[0].Value > 0 {
			beside = fmt.Sprintf("%+.1f %%", 100*t.By)
			if !t.Shown {
				beside += ", no difference shown"
			}
		}
		if t.Bandwidth > 0 {
			bandwidth = mebibytes(t.Bandwidth)
		}
		if i == res.Best {
			remark = "<- proposed"
		}
		value := "-"
		if t.Value > 0 {
			value = micros(int64(t.Value))
		}
		printf(w, "%s\t%s\t%s\t%s\t%s\n", t.Candidate, value, beside, bandwidth, remark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printf(os.Stdout, "\n%s\n\nExperiment %s.\n", res.Why, id)
	return nil
}

// replaceFile writes a file whole, in the place of one that keeps its owner and mode.
func replaceFile(path string, text []byte) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithExistingPermissions())
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if own, ok := st.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(own.Uid), int(own.Gid)); err != nil {
			return fmt.Errorf("keep the owner of %s: %w", path, err)
		}
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// writeHint puts the proposal into the spec's file, which is replaced whole.
func writeHint(sp *spec.Spec, w spec.Workload, res tune.Result, withLanes bool) error {
	name, _, instance := strings.Cut(w.Address, "[")
	best := res.Tries[res.Best].Candidate
	lanes := ""
	if best.Hint > 0 && withLanes {
		lanes = best.Lanes
	}
	e, err := sp.SetHint(name, best.Hint, lanes)
	if errors.Is(err, spec.ErrSame) {
		printf(os.Stderr, "%s says so already.\n", e.File)
		return nil
	}
	if err != nil {
		return err
	}
	if e.Was != "" && !e.Literal {
		return fmt.Errorf("%s: size = %s is an expression: set %s where its value comes from", e.File, e.Was, e.Is)
	}
	path, err := filepath.EvalSymlinks(e.File)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if string(now) != string(e.Old) {
		return fmt.Errorf("%s has changed since it was read: nothing is written", e.File)
	}
	if err := replaceFile(path, e.New); err != nil {
		return err
	}
	was := e.Was
	if was == "" {
		was = "not written"
	}
	printf(os.Stderr, "%s: size = %s (was %s). rdmatune apply makes it so.\n", e.File, e.Is, was)
	if instance {
		printf(os.Stderr, "The block stands for every instance of %s: all have this hint now.\n", name)
	}
	return nil
}
