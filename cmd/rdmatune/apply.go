package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/irqbalance"
	"github.com/rdmatune/rdmatune/internal/rundir"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// applyFlags are the flags of apply and destroy.
type applyFlags struct {
	autoApprove bool
	asJSON      bool
	replace     bool
	force       bool
	stages      stageFlags
	saved       *plan.Saved // what the plan must still be; nil for none
}

func newApply(o *options) *cobra.Command {
	var f specFlags
	var a applyFlags
	cmd := &cobra.Command{
		Use:   "apply [FILE or DIRECTORY or SAVED PLAN]",
		Short: "Make the node and its connections as a spec wants them",
		Long: `Show the plan, ask, and carry it out: journal the originals, write, read back,
switch live connections once and drained, and record the experiment. When a write
is refused, that workload's changes are rolled back. Without an argument the
directory's *.hcl files are the spec. A plan saved by plan --out is refused when
something that it depends on has moved since.

The guards of what was changed are measured then: a breach rolls the workload back,
and one that could not be measured ends with 1.

With --experiment, messages are measured against a bench serve before, after the base
tuning and after the hint, and what each step did is shown with its confidence.

Exit codes: 0 done or nothing to do, 1 error, 4 rolled back, 5 a rollback that
could not finish.`,
		Example: `  rdmatune apply node.hcl
  rdmatune apply --auto-approve
  rdmatune apply --experiment --peer 10.9.0.1:7471 node.hcl
  rdmatune apply --node sim:small --auto-approve node.hcl`,
		Args:              arguments(0, 1, ""),
		ValidArgsFunction: specFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := openSaved(args)
			if err != nil {
				return err
			}
			var sp *spec.Spec
			if saved == nil {
				var diags hcl.Diagnostics
				if sp, diags, err = o.load(args, f, a.asJSON); err != nil && a.asJSON && diags.HasErrors() {
					return o.jsonError(diags)
				}
			} else if len(f.vars) > 0 {
				return errors.New("--var and --var-file cannot change a saved plan")
			} else {
				a.saved, a.force = saved, saved.Force
				sp, err = o.loadSaved(saved)
			}
			if err != nil {
				return err
			}
			kind := experiment.Apply
			if sp == nil {
				kind = experiment.Destroy
			}
			return o.change(cmd.Context(), sp, kind, a)
		},
	}
	f.register(cmd)
	a.register(cmd)
	a.stages.register(cmd)
	cmd.Flags().BoolVar(&a.replace, "replace", false, "apply also when the node is tuned by another spec, whose settings are then restored")
	return cmd
}

func newDestroy(o *options) *cobra.Command {
	var a applyFlags
	cmd := &cobra.Command{
		Use:   "destroy",
		Short: "Restore every original that apply has changed",
		Long: `Put back the original of everything that rdmatune manages on this node, and
switch connections back. A value that somebody else has changed since is left
alone and reported, unless --force is given.

Exit codes: 0 done or nothing to restore, 1 error; what could not be restored stays
on record for the next one.`,
		Example: `  rdmatune destroy
  rdmatune destroy --auto-approve --force`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd.Context(), nil, experiment.Destroy, a)
		},
	}
	a.register(cmd)
	cmd.Flags().BoolVar(&a.force, "force", false, "restore also what somebody else has changed since")
	return cmd
}

func (a *applyFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.autoApprove, "auto-approve", false, "do not ask")
	cmd.Flags().BoolVar(&a.asJSON, "json", false, "print the result as one JSON document (needs --auto-approve)")
}

// change plans under the node's lock, asks, and carries the plan out.
func (o *options) change(ctx context.Context, sp *spec.Spec, kind experiment.Kind, a applyFlags) (err error) {
	if a.asJSON && !a.autoApprove {
		return errors.New("--json needs --auto-approve: there is nowhere to ask")
	}
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := rundir.Make(s.node.RunDir()); err != nil {
		return err
	}
	if err := control.MakeRunDir(s.node.RunDir()); err != nil {
		return err
	}
	if err := besideDaemon(s.node.RunDir(), sp); err != nil {
		return err
	}
	lock, err := acquire(ctx, s.node.RunDir(), state.Owner{
		PID: os.Getpid(), BootID: s.bootID, Command: strings.Join(os.Args, " "), Since: time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	p, err := s.makePlan(ctx, sp, a.force)
	if err != nil {
		return err
	}
	if a.replace {
		p.diags = slices.DeleteFunc(p.diags, func(d *hcl.Diagnostic) bool { return d.Summary == anotherSpec })
	}
	if sp != nil {
		if err := apply.CheckRoot(p.doc, sp.Root, a.replace); err != nil {
			return err
		}
	}
	if a.saved != nil && p.plan != nil {
		if err := checkSaved(a.saved, s, p); err != nil {
			return err
		}
	}
	if !a.asJSON || p.plan == nil {
		if err := o.show(p, a.asJSON); err != nil {
			return err
		}
	} else if p.plan.Errored() {
		return o.show(p, true)
	}
	if sp != nil && sp.Empty() && a.autoApprove && a.saved == nil && !p.plan.Empty() {
		return errEmptySpec
	}
	if !p.plan.Empty() && !a.autoApprove {
		if err := confirm(ctx, kind); err != nil {
			return err
		}
	}
	err = o.carryOut(ctx, s, p, kind, a)
	if kind == experiment.Destroy && s.node.Kind() == node.Local {
		// A daemon may have asked irqbalance to leave interrupts alone, and left it at that.
		if releaseErr := irqbalance.NewKeeper(systemRunDir, s.node.RunDir()).Release(ctx); releaseErr != nil {
			err = errors.Join(err, fmt.Errorf("irqbalance still leaves interrupts alone: %w", releaseErr))
		}
	}
	return err
}

// besideDaemon refuses what a running daemon would undo: another spec than the one it
// keeps, the same with other variables, and restoring the originals.
func besideDaemon(runDir string, sp *spec.Spec) error {
	err := state.Daemon(runDir)
	d, running := errors.AsType[*state.DaemonError](err)
	switch {
	case !running:
		return err
	case sp == nil:
		return fmt.Errorf("%w, and would put everything back: stop it first (systemctl stop rdmatune, or a SIGTERM to it)", err)
	case sp.Root != d.Owner.Spec:
		return fmt.Errorf("%w: apply that spec, or stop the daemon first to tune the node by %s", err, sp.Root)
	case sp.Given() != d.Owner.Given:
		return fmt.Errorf("%w, with other variables: give apply what it was given (%s), or stop it first", err, d.Owner.Command)
	}
	return nil
}

// passTime bounds the wait for a pass of the daemon to end.
const passTime = 10 * time.Second

// acquire takes the node's lock, and waits a while for a daemon, which holds it for short
// times only.
func acquire(ctx context.Context, runDir string, o state.Owner) (*state.Lock, error) {
	for deadline := time.Now().Add(passTime); ; {
		lock, err := state.Acquire(runDir, o)
		if _, locked := errors.AsType[*state.LockedError](err); !locked || state.Daemon(runDir) == nil || time.Now().After(deadline) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// confirm asks for a yes on the terminal.
func confirm(ctx context.Context, kind experiment.Kind) error {
	question := "\nDo you want to perform these actions?\n"
	if kind == experiment.Destroy {
		question = "\nDo you want to restore the originals?\n"
	}
	printf(os.Stdout, "%s  Only 'yes' will be accepted to approve.\n\n  Enter a value: ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // an end of input is a no
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
	case text := <-answer:
		if text == "yes" {
			printf(os.Stdout, "\n")
			return nil
		}
	}
	printf(os.Stdout, "\nCancelled. Nothing was changed.")
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		printf(os.Stdout, " Without a terminal, approve with --auto-approve.")
	}
	printf(os.Stdout, "\n")
	return exitCode(exitError)
}

// errEmptySpec: a file that was cut off, by a full disk or an editor, must not undo all that
// is in force when nobody looks.
var errEmptySpec = errors.New("the spec has no workload, and nobody was asked whether everything is to be restored: rdmatune destroy does that")

// carryOut runs the plan and says how it went.
func (o *options) carryOut(ctx context.Context, s *session, p *planning, kind experiment.Kind, a applyFlags) (err error) {
	r := &apply.Runner{Drivers: s.drivers, StateDir: s.node.StateDir(), Experiment: s.describe(kind, p), Switches: s.switches}
	m := &meter{s: s, facts: p.facts}
	m.remember(ctx, p.plan.Guards)
	r.Measure = m.measure
	if !p.plan.Empty() || len(p.plan.GuardsDue()) > 0 {
		if r.DB, err = experiment.OpenSound(ctx, s.node.StateDir(), func(name string, damage error) {
			printf(os.Stderr, "Warning: the experiment database is damaged (%v).\nIt is now %s, and a new one is begun.\n", damage, name)
		}); err != nil {
			err = fmt.Errorf("%w: %w", apply.ErrNothingChanged, err)
			if a.asJSON {
				return errors.Join(writeResult(apply.Result{}, p.plan, r.Experiment.ID, err), err)
			}
			return err
		}
		defer func() { err = errors.Join(err, r.DB.Close()) }()
	}
	if !a.asJSON {
		r.Progress = progress
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var stages *stages
	if a.stages.on && !p.plan.Empty() {
		if stages, err = newStages(ctx, m, p, a.stages, &r.Experiment); err != nil {
			return fmt.Errorf("%w: %w", apply.ErrNothingChanged, err)
		}
		r.Stage = stages.measure
	}
	res, err := r.Run(ctx, p.plan, p.doc)
	if a.asJSON {
		if jsonErr := writeResult(res, p.plan, r.Experiment.ID, err); jsonErr != nil {
			return jsonErr
		}
	} else if err == nil || !errors.Is(err, apply.ErrNothingChanged) {
		report(res, p.plan, kind, r.Experiment.ID)
		stages.report()
	}
	if err == nil {
		err = stages.err()
	}
	if err != nil {
		return err
	}
	if code := res.ExitCode(); code != exitOK {
		return exitCode(code)
	}
	return nil
}

// progress prints what became of each target.
func progress(e apply.Event) {
	switch e.Step {
	case apply.Written:
		printf(os.Stdout, "[%d/%d] %s: %s (%s)\n", e.Done, e.Total, e.Address, e.Detail, e.Took.Round(10*time.Microsecond))
	case apply.Deferred, apply.Skipped:
		printf(os.Stdout, "[%d/%d] %s: %s: %s\n", e.Done, e.Total, e.Address, e.Step, strings.TrimPrefix(e.Detail, string(e.Step)+": "))
	case apply.Failed:
		printf(os.Stderr, "[%d/%d] %s: failed: %s\n", e.Done, e.Total, e.Address, e.Detail)
	case apply.Measuring:
		printf(os.Stdout, "%s: measuring (%s) ...\n", e.Address, e.Detail)
	case apply.Measured:
		printf(os.Stdout, "%s: %s (%s)\n", e.Address, e.Detail, e.Took.Round(time.Millisecond))
	case apply.RollingBack:
		printf(os.Stderr, "%s: rolling back: %s\n", e.Address, e.Detail)
	}
}

// report sums the run up for a person.
func report(r apply.Result, p *plan.Plan, kind experiment.Kind, id string) {
	for _, n := range r.Pending {
		printf(os.Stdout, "Pending: %s: %s\n", n.Address, n.Reason)
	}
	for _, err := range r.Failures {
		printf(os.Stderr, "\nError: %v\n", err)
	}
	for _, g := range r.Guards {
		switch g.Verdict {
		case experiment.GuardBreached:
			printf(os.Stderr, "\nBreached: guard %q of %s: %s\n", g.Name, g.Workload, g.Text)
		case experiment.GuardNotMeasured:
			printf(os.Stderr, "\nError: guard %q of %s was not measured: %s\n", g.Name, g.Workload, g.Text)
		}
	}
	for _, w := range r.RolledBack {
		if len(r.Unrestored) == 0 {
			printf(os.Stderr, "Rolled back: workload.%s is as it was before this run.\n", w)
		}
	}
	for _, err := range r.Unrestored {
		printf(os.Stderr, "\nError: %v\n  The original is kept in the journal. Mend the cause and run rdmatune destroy, or apply again.\n", err)
	}
	if r.Interrupted {
		printf(os.Stderr, "\nInterrupted: what was done stays and is recorded; apply again to go on, or destroy to undo.\n")
	}
	if p.Empty() && len(r.Guards) == 0 {
		return
	}
	done := r.Done
	tail := ""
	if n := len(r.Pending); n > 0 {
		again := "apply"
		if kind == experiment.Destroy {
			again = "destroy"
		}
		tail += fmt.Sprintf(" %d pending: %s again later.", n, again)
	}
	if n := len(r.Skipped); n > 0 {
		tail += fmt.Sprintf(" %d skipped.", n)
	}
	if p.LeftAlone > 0 {
		tail += fmt.Sprintf(" %d left alone, as somebody else has changed them: --force restores them.", p.LeftAlone)
	}
	tail += fmt.Sprintf(" Experiment %s.", id)
	switch {
	case r.ExitCode() != apply.ExitDone:
		s := p.Summary()
		printf(os.Stdout, "\nIncomplete: %d of %s done.%s\n", done.Change+done.Replace+done.Restore, param.Count(s.Change+s.Replace+s.Restore, "target"), tail)
	case kind == experiment.Destroy:
		printf(os.Stdout, "\nDestroy complete! %s restored.%s\n", param.Count(done.Restore, "target"), tail)
	default:
		printf(os.Stdout, "\nApply complete! %d changed, %d replaced, %d restored.%s\n", done.Change, done.Replace, done.Restore, tail)
	}
}

// writeResult prints the result of a run as JSON.
func writeResult(r apply.Result, p *plan.Plan, id string, fatal error) error {
	texts := func(errs []error) []string {
		out := []string{}
		for _, err := range errs {
			out = append(out, err.Error())
		}
		return out
	}
	code := r.ExitCode()
	if fatal != nil {
		r.Failures = append(r.Failures, fatal)
		code = max(code, exitError)
	}
	doc := map[string]any{
		"format_version": plan.FormatVersion, "summary": p.Summary(), "done": r.Done, "applied": r.Done.Change + r.Done.Replace + r.Done.Restore,
		"pending": append([]plan.Note{}, append(p.Pending, r.Pending...)...), "skipped": append([]plan.Note{}, r.Skipped...),
		"failures": texts(r.Failures), "rolled_back": append([]string{}, r.RolledBack...), "unrestored": texts(r.Unrestored),
		"guards":      append([]experiment.Guard{}, r.Guards...),
		"interrupted": r.Interrupted, "exit_code": code, "experiment": nil,
	}
	if !p.Empty() || len(r.Guards) > 0 {
		doc["experiment"] = id
	}
	return writeJSON(doc)
}
