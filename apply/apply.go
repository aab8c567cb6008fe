package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// A Runner holds what an apply works with. The caller holds the node's lock.
type Runner struct {
	Drivers  drivers.Set
	StateDir string
	// DB records the experiment; Experiment is filled in by the caller as far as it is
	// known before the run (identity of node and spec).
	DB         *experiment.DB
	Experiment experiment.Experiment
	// Switches reports the switches of a generation after the run; nil reports none.
	Switches func(ctx context.Context, workload string, generation uint64) []experiment.Switch
	// Measure measures for a guard after the changes; its error says why it could not. Nil
	// can measure nothing.
	Measure func(ctx context.Context, g plan.Guard) (Measurement, error)
	// Stage is called between the parts of a run, to measure what each did: before the
	// first hint, when the base tuning is in force, and after the last change. Nil is not
	// called.
	Stage func(ctx context.Context, s Stage)
	// Progress hears of every step, in order; nil hears nothing.
	Progress func(Event)
}

// A Step is a point that an apply passes. A crash may come between any two.
type Step string

// The steps of an apply. Target steps come once for every target.
const (
	Opened      Step = "experiment opened"
	Journaled   Step = "intents journaled"
	Writing     Step = "writing"
	Written     Step = "written"
	Deferred    Step = "deferred"
	Skipped     Step = "skipped"
	Failed      Step = "failed"
	RollingBack Step = "rolling back"
	RolledBack  Step = "rolled back"
	Committed   Step = "state committed"
	Measuring   Step = "measuring"
	Measured    Step = "measured"
	Closed      Step = "experiment closed"
)

// A Stage is a part of a run that is over.
type Stage string

// Stages of a run.
const (
	BaseTuned Stage = "base tuning" // everything but hints; not reached without a hint
	Hinted    Stage = "hint"        // everything
)

// An Event is one step of an apply.
type Event struct {
	Step    Step
	Address string // of the target, for target steps
	Detail  string
	Took    time.Duration
	Done    int // targets that are through, of Total
	Total   int
}

// A Result is how an apply went.
type Result struct {
	Done       plan.Summary // targets through, by what the plan said would happen to them
	Pending    []plan.Note  // decided, but deferred
	Skipped    []plan.Note  // gone or not available
	Failures   []error      // of targets that stayed as they were
	RolledBack []string     // workloads
	Guards     []experiment.Guard
	// Unrestored are rollbacks that could not finish: the journal is kept for them.
	Unrestored []error
	// Interrupted is set when the context ended the run early.
	Interrupted bool
}

// Exit codes of an apply.
const (
	ExitDone       = 0
	ExitError      = 1
	ExitRolledBack = 4
	ExitUnrestored = 5
)

// ExitCode is the exit code that r stands for.
func (r Result) ExitCode() int {
	switch {
	case len(r.Unrestored) > 0:
		return ExitUnrestored
	case len(r.RolledBack) > 0:
		return ExitRolledBack
	case len(r.Failures) > 0 || r.Interrupted || r.unmeasured():
		return ExitError
	}
	return ExitDone
}

// unmeasured reports whether a guard has no verdict: such a one never passes.
func (r Result) unmeasured() bool {
	return slices.ContainsFunc(r.Guards, func(g experiment.Guard) bool { return g.Verdict == experiment.GuardNotMeasured })
}

// ErrNothingChanged: the run was given up before its first write.
var ErrNothingChanged = errors.New("nothing was changed")

// CheckRoot refuses a spec that is not the one that the state belongs to: what the
// other spec set would be restored, since this one does not want it.
func CheckRoot(d *state.Document, root string, replace bool) error {
	if replace || d.SpecRoot == "" || d.SpecRoot == root || len(d.Entries) == 0 {
		return nil
	}
	return fmt.Errorf("this node is tuned by the spec %s, and applying %s would restore what that one set and this one does not want; use --replace if that is meant, or rdmatune destroy first", d.SpecRoot, root)
}

// A target is the changes of one target and what became of them.
type target struct {
	workload string
	target   param.Target
	changes  []param.Change
	order    param.Order
	inForce  []param.Setting
	touched  bool // the driver was asked to write
	through  bool // all changes are in force
	partly   bool // what is in force and not as planned is as near as the kernel goes now
}

// run is the state of one apply.
type run struct {
	*Runner
	plan    *plan.Plan
	doc     *state.Document
	journal *state.Journal
	targets []*target
	result  Result
	failed  map[string]bool // workloads that were rolled back
	began   time.Time
	before  [3]string // whose the state was: root, digest and commit of the spec
	owned   bool      // it had something of that spec
}

// Run carries p out. doc is the node's state as loaded under the lock, with what an
// interrupted apply left merged in. The error is for what prevented the run as a
// whole; what happened to single changes is in the result.
func (r *Runner) Run(ctx context.Context, p *plan.Plan, doc *state.Document) (Result, error) {
	if p.Errored() {
		return Result{}, errors.New("the plan has errors and cannot be applied")
	}
	a := &run{Runner: r, plan: p, doc: p.Base.Clone(), journal: state.OpenJournal(r.StateDir), failed: map[string]bool{}, began: time.Now()}
	a.before, a.owned = [3]string{a.doc.SpecRoot, a.doc.SpecDigest, a.doc.GitCommit}, len(doc.Entries) > 0
	a.doc.SpecRoot, a.doc.SpecDigest, a.doc.GitCommit = r.Experiment.SpecRoot, r.Experiment.SpecDigest, r.Experiment.GitCommit
	if p.Destroy {
		a.doc.Destroyed++
	}
	a.collect()
	for _, n := range p.Unreadable {
		a.result.Failures = append(a.result.Failures, fmt.Errorf("%s: %s", n.Address, n.Reason))
	}
	due := p.GuardsDue()
	if len(a.targets) == 0 && len(due) == 0 {
		return a.result, a.commitQuietly(doc)
	}
	r.Experiment.Workload = workloads(a.targets, due)
	if err := r.DB.Begin(context.WithoutCancel(ctx), r.Experiment); err != nil {
		return a.result, fmt.Errorf("%w: %w", ErrNothingChanged, err)
	}
	a.event(Event{Step: Opened})
	if err := a.announce(doc); err != nil {
		err = fmt.Errorf("%w: %w", ErrNothingChanged, err)
		return a.result, errors.Join(err, state.Unreserve(r.StateDir), a.close(ctx, err))
	}
	a.event(Event{Step: Journaled})

	a.carryOut(ctx)
	a.stage(ctx, Hinted)
	a.guard(ctx)

	// Whatever happened, what is known now is committed: the run may have been
	// interrupted, but its writes are real.
	ctx = context.WithoutCancel(ctx)
	err := a.commit()
	return a.result, errors.Join(err, a.close(ctx, err))
}

func (a *run) event(e Event) {
	if a.Progress == nil {
		return
	}
	e.Total = len(a.targets)
	for _, t := range a.targets {
		if t.through {
			e.Done++
		}
	}
	a.Progress(e)
}

// collect groups the plan's changes by target, in plan order.
func (a *run) collect() {
	for _, c := range a.plan.Changes {
		if n := len(a.targets); n > 0 && a.targets[n-1].target.Key() == c.Target.Key() && a.targets[n-1].workload == c.Workload {
			a.targets[n-1].changes = append(a.targets[n-1].changes, c.Change)
			continue
		}
		order := a.plan.Orders[c.Target.Key()]
		order.ID, order.Workload = a.Experiment.ID, c.Workload
		a.targets = append(a.targets, &target{workload: c.Workload, target: c.Target, changes: []param.Change{c.Change}, order: order})
	}
}

// workloads names what the run is about.
func workloads(ts []*target, guards []plan.Guard) string {
	var names []string
	add := func(w string) {
		if !slices.Contains(names, w) {
			names = append(names, w)
		}
	}
	for _, t := range ts {
		add(t.workload)
	}
	for _, g := range guards {
		add(g.Workload)
	}
	return join(names)
}

// announce makes durable what will be written and which generations processes may
// hear of, and makes sure that the state will fit on the disk afterwards.
func (a *run) announce(before *state.Document) error {
	if err := a.doc.Reserve(a.StateDir, len(a.plan.Changes)); err != nil {
		return err
	}
	for _, w := range sorted(a.plan.Generations) {
		g := a.plan.Generations[w]
		if g == before.Generations[w] {
			continue
		}
		if err := a.journal.Append(state.Record{Run: a.Experiment.ID, BootID: a.plan.BootID, Workload: w, Generation: &g}); err != nil {
			return err
		}
	}
	var changes []param.Change
	for _, t := range a.targets {
		changes = append(changes, t.changes...)
	}
	var guards []string
	for _, g := range a.plan.GuardsDue() {
		guards = append(guards, g.Address())
	}
	return a.journal.Append(state.Record{Run: a.Experiment.ID, BootID: a.plan.BootID, Changes: changes, Guards: guards})
}

// carryOut applies target after target. The targets of one kind that want to know
// of their order before any of them moves are told first.
func (a *run) carryOut(ctx context.Context) {
	staged := false
	for i, t := range a.targets {
		if a.failed[t.workload] {
			continue
		}
		if t.target.Kind == param.Hint && !staged {
			staged = true
			a.stage(ctx, BaseTuned)
		}
		if ctx.Err() != nil {
			a.result.Interrupted = true
			return
		}
		if i == 0 || a.targets[i-1].target.Kind != t.target.Kind || a.targets[i-1].workload != t.workload {
			a.prepare(ctx, a.targets[i:])
		}
		a.apply(ctx, t)
	}
}

// stage says that a part of the run is over, unless it was interrupted.
func (a *run) stage(ctx context.Context, s Stage) {
	if a.Stage != nil && ctx.Err() == nil && !a.result.Interrupted {
		a.Stage(ctx, s)
	}
}

// count notes in the result that t is through, or with -1 that it is not any more.
func (a *run) count(t *target, n int) {
	switch t.action() {
	case param.Replace:
		a.result.Done.Replace += n
	case param.Restore:
		a.result.Done.Restore += n
	default:
		a.result.Done.Change += n
	}
}

// action is what happens to t as a whole.
func (t *target) action() param.Action {
	for _, c := range t.changes {
		if c.Action == param.Replace {
			return param.Replace
		}
	}
	return t.changes[0].Action
}

// prepare tells the targets of the first one's workload and kind of their order, as
// far as they have the same one. A target that could not be told is found out by
// its own Apply.
func (a *run) prepare(ctx context.Context, ts []*target) {
	d, err := a.Drivers.Driver(ts[0].target.Kind)
	if err != nil {
		return
	}
	p, ok := d.(drivers.Preparer)
	if !ok {
		return
	}
	var targets []param.Target
	for _, t := range ts {
		if t.target.Kind != ts[0].target.Kind || t.workload != ts[0].workload || !reflect.DeepEqual(t.order, ts[0].order) {
			break
		}
		targets = append(targets, t.target)
	}
	_ = p.Prepare(ctx, targets, ts[0].order)
}

func (a *run) apply(ctx context.Context, t *target) {
	addr := plan.Address(t.workload, t.target)
	a.event(Event{Step: Writing, Address: addr, Detail: describe(t.changes)})
	began := time.Now()
	d, err := a.Drivers.Driver(t.target.Kind)
	if err == nil {
		t.touched = true
		// A target that was begun is finished: an interrupt comes between two of them.
		t.inForce, err = d.Apply(context.WithoutCancel(ctx), t.target, t.changes, t.order)
	}
	took := time.Since(began)
	switch {
	case err == nil:
		t.through = true
		a.count(t, 1)
		a.note(t)
		a.event(Event{Step: Written, Address: addr, Detail: describe(t.changes), Took: took})
	case errors.Is(err, drivers.ErrDeferred), errors.Is(err, drivers.ErrPartly):
		t.partly = errors.Is(err, drivers.ErrPartly)
		a.note(t)
		a.result.Pending = append(a.result.Pending, plan.Note{Address: addr, Reason: err.Error()})
		a.event(Event{Step: Deferred, Address: addr, Detail: err.Error(), Took: took})
	case errors.Is(err, drivers.ErrGone), errors.Is(err, drivers.ErrUnavailable):
		a.note(t)
		if errors.Is(err, drivers.ErrUnavailable) {
			a.refuse(t, err)
		}
		a.result.Skipped = append(a.result.Skipped, plan.Note{Address: addr, Reason: err.Error()})
		a.event(Event{Step: Skipped, Address: addr, Detail: err.Error(), Took: took})
	default:
		a.event(Event{Step: Failed, Address: addr, Detail: err.Error(), Took: took})
		a.fail(ctx, t, fmt.Errorf("%s: %w", addr, err))
	}
}

// fail decides what a failed target means for its workload.
func (a *run) fail(ctx context.Context, t *target, err error) {
	policy := a.plan.Policies[t.workload]
	a.result.Failures = append(a.result.Failures, err)
	keepOthers := policy.Continue
	if t.target.Kind == param.Hint && errors.Is(err, drivers.ErrRefused) {
		keepOthers = !policy.AllOrNone
	}
	if keepOthers {
		a.note(t)
		return
	}
	a.rollback(context.WithoutCancel(ctx), t.workload, false)
}
