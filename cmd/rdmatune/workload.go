package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/audit"
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// workloadFlags are the flags of commands that are about one workload of a spec.
type workloadFlags struct {
	specFlags
	path string
}

func (f *workloadFlags) register(cmd *cobra.Command) {
	f.specFlags.register(cmd)
	cmd.Flags().StringVar(&f.path, "spec", ".", "the spec that has the workload: a `file` or directory")
}

// resolve loads the spec and resolves it for the session's node. What is wrong with it
// is printed.
func (f *workloadFlags) resolve(ctx context.Context, o *options, s *session) (*spec.Resolved, *spec.Spec, error) {
	sp, diags, err := o.load([]string{f.path}, f.specFlags, false)
	if err != nil {
		return nil, nil, err
	}
	facts, err := s.node.Facts(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, more := sp.Resolve(facts)
	if diags = append(diags, more...); diags.HasErrors() {
		if err := o.writeDiagnostics(os.Stderr, sp.Files, diags); err != nil {
			return nil, nil, err
		}
		return nil, nil, exitCode(exitError)
	}
	return r, sp, nil
}

// workload returns the workload of a spec that is called name. A name without an
// instance stands for the only instance whose match block meets environ.
func (f *workloadFlags) workload(ctx context.Context, o *options, s *session, name string, environ []string) (*spec.Workload, error) {
	r, _, err := f.resolve(ctx, o, s)
	if err != nil {
		return nil, err
	}
	return f.pick(r, name, environ)
}

// pick is workload of a spec that is resolved already.
func (f *workloadFlags) pick(r *spec.Resolved, name string, environ []string) (*spec.Workload, error) {
	var names []string
	var instances []*spec.Workload
	for i := range r.Workloads {
		w := &r.Workloads[i]
		if w.Address == name {
			return w, nil
		}
		if base, _, ok := strings.Cut(w.Address, "["); ok && base == name {
			instances = append(instances, w)
		}
		names = append(names, w.Address)
	}
	if len(instances) > 0 {
		return instance(name, instances, environ)
	}
	if isSpec(name) {
		return nil, notWorkload(name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the spec %s has no workload", f.path)
	}
	return nil, fmt.Errorf("the spec %s has no workload %q; it has %s", f.path, name, strings.Join(names, ", "))
}

// instance picks the instance whose match block's environment holds in environ.
func instance(name string, all []*spec.Workload, environ []string) (*spec.Workload, error) {
	env := map[string]string{}
	for _, e := range environ {
		if k, v, ok := strings.Cut(e, "="); ok {
			env[k] = v
		}
	}
	var found []*spec.Workload
	var asked []string
	for _, w := range all {
		holds := len(w.Match.Env) > 0
		for k, pattern := range w.Match.Env {
			v, set := env[k]
			holds = holds && set && v == pattern
			if !slices.Contains(asked, k) {
				asked = append(asked, k)
			}
		}
		if holds {
			found = append(found, w)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	var names []string
	for _, w := range all {
		names = append(names, w.Address)
	}
	slices.Sort(asked)
	return nil, fmt.Errorf("%s has the instances %s; give one of them, or set what their match blocks tell apart (%s)",
		name, strings.Join(names, ", "), cmp.Or(strings.Join(asked, ", "), "they have no env condition"))
}

// hintOf is the hint of a workload, nil when it has none.
func hintOf(w *spec.Workload) *int64 {
	for _, want := range w.Wants {
		if want.Kind != param.Hint {
			continue
		}
		for _, t := range want.Targets {
			for _, s := range t.Settings {
				if n, ok := s.Value.AsInt(); ok && s.ID == param.HintSize {
					return &n
				}
			}
		}
	}
	return nil
}

// textOf is a setting of a workload that is a text, "" when it has none.
func textOf(w *spec.Workload, kind param.Kind, id param.ID) string {
	for _, want := range w.Wants {
		if want.Kind != kind {
			continue
		}
		for _, t := range want.Targets {
			for _, s := range t.Settings {
				if text, ok := s.Value.AsText(); ok && s.ID == id {
					return text
				}
			}
		}
	}
	return ""
}

// hintFlag is ordered or override of a workload's hint, both true where it does not say
// otherwise.
func hintFlag(w *spec.Workload, id param.ID) bool {
	for _, want := range w.Wants {
		for _, t := range want.Targets {
			for _, s := range t.Settings {
				if b, ok := s.Value.AsBool(); ok && want.Kind == param.Hint && s.ID == id {
					return b
				}
			}
		}
	}
	return true
}

// processesOf returns the processes of a workload, and what could not be examined.
func (s *session) processesOf(ctx context.Context, w *spec.Workload) (pids []int, hidden string, err error) {
	driver := pinning.New(s.node, s.named)
	targets, err := driver.Discover(ctx, w.Scope(param.Pinning))
	switch {
	case errors.Is(err, drivers.ErrIncomplete):
		hidden = err.Error()
	case errors.Is(err, drivers.ErrUnavailable):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	for _, t := range targets {
		var pid int
		if _, err := fmt.Sscanf(t.Name, "%d", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, hidden, nil
}

// ownHints tells the hint in force in each process of the transport.
func ownHints(transports []control.Process) map[int]*audit.Own {
	out := map[int]*audit.Own{}
	for _, t := range transports {
		if t.Err != "" {
			continue
		}
		own := &audit.Own{Workload: t.Workload, Size: t.Hint.Size, Origin: t.Hint.Origin}
		for _, l := range t.Hint.Losers {
			c := audit.Candidate{Origin: l.Origin, Why: l.Why}
			if l.Size != nil {
				c.Text = fmt.Sprint(*l.Size)
				c.Parsed = audit.VariableByName("RDMA_LOW_LATENCY_HINT").Read(c.Text)
			}
			own.Losers = append(own.Losers, c)
		}
		out[t.PID] = own
	}
	return out
}

// workloadNames completes the name of a workload.
func (f *workloadFlags) complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	sp, diags := spec.Load(f.path, spec.Options{Vars: f.vars, Environ: os.Environ()})
	if diags.HasErrors() {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return sp.Workloads(), cobra.ShellCompDirectiveNoFileComp
}
