package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile/watch"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// Config is what a loop works with. Node, Drivers, BootID, Owner, Load, Watcher and
// Describe are needed.
type Config struct {
	Node    *node.Node
	Drivers drivers.Set
	BootID  string
	Version string
	// Owner is written into the node's lock while a pass holds it.
	Owner state.Owner
	// Load reads the spec; what it says is wrong keeps the last good one.
	Load func() (*spec.Spec, hcl.Diagnostics)
	// Attended: somebody sees it start, and can mend a spec that is invalid. Else a daemon
	// that has something to keep waits for it to become valid.
	Attended bool
	// Replace takes the node over from another spec.
	Replace bool
	// DryRun looks, judges and tells, and changes nothing.
	DryRun  bool
	Watcher *watch.Watcher
	// Before is called under the lock before each look; nil does nothing.
	Before func(ctx context.Context) error
	// Describe fills in the record of a run as far as it is known before it.
	Describe func(kind experiment.Kind, sp *spec.Spec, doc *state.Document, facts *node.Facts) experiment.Experiment
	// Switches reports the switches of a workload's generation; nil reports none.
	Switches func(ctx context.Context, workload string, generation uint64) []experiment.Switch
	// Meter returns what measures the guards of a plan that is about to be made; nil can
	// measure none.
	Meter func(ctx context.Context, p *plan.Plan, facts *node.Facts) func(context.Context, plan.Guard) (apply.Measurement, error)
	// Negotiate makes irqbalance leave the interrupts with these numbers alone and says
	// what was agreed; with none it takes that back. Nil does nothing.
	Negotiate func(ctx context.Context, irqs []int) (string, error)
	// Leave is called before Run returns and waits for what irqbalance still has to answer:
	// some versions end when nobody hears them. Nil waits for nothing.
	Leave func(ctx context.Context) error
	// Rivals names other programs that may tune the same; nil knows none.
	Rivals func() []string
	// Matches reports whether one of the processes may be a workload's; nil takes any.
	Matches func(sp *spec.Resolved, pids []int) bool
	// Sound says why the daemon must not go on, such as a lock that it has lost; nil is never.
	// It is asked with every sweep.
	Sound func() error
	// OnPass hears of every pass, OnAlive many times a minute while the loop is sound, from
	// several goroutines.
	OnPass  func(Pass)
	OnAlive func()
	Log     *slog.Logger
}

// How long the loop lets events of a source gather before it looks, so that a driver that
// comes up with hundreds of vectors costs one pass.
var settleTimes = map[watch.Source]time.Duration{
	watch.Writes: 10 * time.Millisecond, watch.Ethtool: 20 * time.Millisecond, watch.Transports: 20 * time.Millisecond,
	watch.Processes: 50 * time.Millisecond, watch.Kernel: 100 * time.Millisecond, watch.Links: 100 * time.Millisecond,
	watch.Spec: 200 * time.Millisecond,
}

// Rhythm of the loop.
const (
	beat        = 5 * time.Second        // between two signs of life
	fullEvery   = 60                     // sweeps of which one is a whole pass
	minGap      = 50 * time.Millisecond  // between two passes
	maxGap      = 2 * time.Second        // so much at most is a long pass followed by, to bound the load
	followUp    = time.Second            // after a pass that wrote, to see that it stays
	lockedRetry = 500 * time.Millisecond // after another has held the node's lock
	lockedLong  = 10 * time.Second
	failedRetry = time.Second // after a pass that could not be made; it doubles
	failedMost  = time.Minute
	maxPIDs     = 1024 // new processes that are looked at one by one
	stopTime    = 2 * time.Minute
	leaveTime   = 15 * time.Second // longer than irqbalance's usual round of 10 s
)

// A Loop keeps one node. Run is its only writer; Status may be asked at any time.
type Loop struct {
	c     Config
	log   *slog.Logger
	judge *judge

	spec     *spec.Spec // the last good one
	settings spec.Reconcile
	resolved *spec.Resolved                   // of the last pass
	facts    *node.Facts                      // found in the last pass, nil when they may have changed
	fresh    bool                             // they were found in this pass
	grown    bool                             // a pass since the memory was given back
	seen     map[param.Target]map[string]bool // threads and connections of the last pass
	frozen   string                           // workloads that could not be judged, for the log
	doc      *state.Document
	swept    int

	due      time.Time // of the next pass because of what was heard; zero for none
	later    time.Time // of the next pass because of what was to wait; zero for none
	why      Trigger
	events   int  // since the last pass
	must     bool // the pass is for more than new processes
	reread   bool // the spec's files
	pids     map[int]bool
	anyPID   bool // more than could be remembered
	causes   causes
	unhealed map[subject]Drift
	irqs     []int // of the last pass, and the files that hold each target's settings
	files    map[param.Target]map[param.ID]string
	muted    map[string]time.Time // files of settings that wait, and until when
	table    *table
	lastEnd  time.Time
	lastTook time.Duration
	failures int // passes in a row that could not be made

	mu     sync.Mutex
	status Status // guarded by mu
}

// New returns a loop that has looked at nothing yet.
func New(c Config) *Loop {
	l := &Loop{c: c, log: c.Log, table: newTable(), pids: map[int]bool{}, unhealed: map[subject]Drift{}, settings: spec.DefaultReconcile}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.judge = newJudge(l.settings.ContestedAfter, l.settings.Window, l.bounce)
	l.status = Status{
		FormatVersion: FormatVersion, Version: c.Version, PID: c.Owner.PID, BootID: c.BootID,
		Started: time.Now().UTC().Truncate(time.Second), DryRun: c.DryRun, Sources: c.Watcher.Statuses(), Workloads: []Workload{}, Contested: []Held{}, Waiting: []Held{},
		Problems: []string{"the first look is under way"},
	}
	return l
}

// ErrNotBegun: the loop has not looked at the node, and nothing was changed.
var ErrNotBegun = errors.New("nothing was begun")

// Run keeps the node until ctx ends, and then leaves the tuning or restores the originals,
// as restore decides, which is told what the spec says. A signal on hup reads the spec anew
// and tries again what was given up. ready is called after the first look. The error wraps
// ErrNotBegun for a spec that is invalid when nothing is managed yet, another spec that
// tunes the node, and a state that cannot be read; else it is about restoring.
func (l *Loop) Run(ctx context.Context, hup <-chan os.Signal, restore func(fromSpec bool) bool, ready func()) error {
	if l.c.Negotiate != nil && !l.c.DryRun {
		go l.sit(ctx)
	} else {
		close(l.table.left)
	}
	if err := l.begin(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	ready()
	sweep := time.NewTicker(l.settings.Sweep)
	defer sweep.Stop()
	alive := time.NewTicker(beat)
	defer alive.Stop()
	period := l.settings.Sweep
	for {
		if period != l.settings.Sweep {
			period = l.settings.Sweep
			sweep.Reset(period)
		}
		l.alive()
		var due <-chan time.Time
		var timer *time.Timer
		if next := l.next(); !next.IsZero() {
			timer = time.NewTimer(time.Until(next))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return l.stop(restore(l.restoresOnStop()))
		case e, ok := <-l.c.Watcher.Events():
			if ok {
				l.hear(e)
			} else if ctx.Err() == nil {
				return errors.New("the watcher was closed")
			}
		case <-hup:
			l.log.Info("reload", "trigger", OnSignal)
			l.reload()
			l.judge.forget()
			l.facts = nil
			l.schedule(OnSignal, 0)
		case <-sweep.C:
			if l.c.Sound != nil {
				if err := l.c.Sound(); err != nil {
					return err
				}
			}
			l.sweep(ctx)
		case <-due:
			l.pass(ctx)
		case <-alive.C:
			if l.grown && l.next().IsZero() {
				// Between passes a daemon should need little, also after a large one.
				debug.FreeOSMemory()
				l.grown = false
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

func (l *Loop) alive() {
	if l.c.OnAlive != nil {
		l.c.OnAlive()
	}
}

// begin reads the spec and makes the first pass.
func (l *Loop) begin(ctx context.Context) error {
	doc, err := state.Load(l.c.Node.StateDir())
	if err != nil {
		return err
	}
	l.doc = doc
	sp, diags := l.load()
	switch {
	case !diags.HasErrors():
		if err := apply.CheckRoot(doc, sp.Root, l.c.Replace); err != nil {
			return err
		}
		l.adopt(sp)
	case l.managed() == 0 || l.c.Attended:
		return fmt.Errorf("%s", firstError(diags))
	default:
		l.invalid(diags)
		l.update(func(s *Status) { s.Problems = []string{unkept} })
	}
	l.why, l.must = AtStart, true
	l.pass(ctx)
	return nil
}

// unkept is what a loop says that was started with an invalid spec: which spec an earlier run
// kept was in its memory alone.
const unkept = "nothing is healed until the spec is valid: what an earlier run has set stays as it is"

// managed counts the settings that the state has of this boot.
func (l *Loop) managed() int {
	n := 0
	for _, e := range l.doc.Entries {
		if e.BootID == l.c.BootID {
			n++
		}
	}
	return n
}

// schedule asks for a pass after a while; the earliest counts.
func (l *Loop) schedule(why Trigger, in time.Duration) {
	at := time.Now().Add(in)
	if gap := min(max(l.lastTook, minGap), maxGap); at.Before(l.lastEnd.Add(gap)) {
		at = l.lastEnd.Add(gap)
	}
	if why == OnTimer { // it waits for its time, also when a pass for new processes comes before
		if l.later.IsZero() || at.Before(l.later) {
			l.later = at
		}
		return
	}
	l.must = l.must || why != OnEvent
	if l.due.IsZero() || at.Before(l.due) {
		l.due = at
	}
	if triggerRank[why] > triggerRank[l.why] {
		l.why = why
	}
}

// next is when the next pass is due, zero for never.
func (l *Loop) next() time.Time {
	if l.due.IsZero() || !l.later.IsZero() && l.later.Before(l.due) {
		return l.later
	}
	return l.due
}

// ripen makes what was to wait a reason for a pass when its time has come.
func (l *Loop) ripen(now time.Time) {
	if l.later.IsZero() || now.Before(l.later) {
		return
	}
	l.later, l.must = time.Time{}, true
	if l.why == "" {
		l.why = OnTimer
	}
}

// triggerRank orders the triggers: the highest of those that led to a pass is named.
var triggerRank = map[Trigger]int{OnTimer: 1, OnEvent: 2, OnSweep: 3, AtStart: 4, OnSpec: 5, OnSignal: 6}

// hear takes note of an event and asks for a pass if it may matter.
func (l *Loop) hear(e watch.Event) {
	l.log.Debug("event", "source", e.Source, "what", e.What, "subject", e.Subject, "pid", e.PID, "comm", e.Comm)
	l.causes.add(e)
	if e.Source == watch.Writes && e.What != "lost" && time.Now().Before(l.muted[e.Subject]) {
		return // its setting waits for its time, however often it is written meanwhile
	}
	switch e.Source {
	case watch.Spec:
		l.reread = true
	case watch.Kernel, watch.Links:
		l.facts = nil
	case watch.Processes:
		switch {
		case e.What == "lost" || len(l.pids) >= maxPIDs:
			l.anyPID = true
		case e.PID > 0:
			l.pids[e.PID] = true
		}
	}
	if e.What == "lost" {
		l.facts = nil
	}
	l.events++
	l.must = l.must || e.Source != watch.Processes
	trigger := OnEvent
	if e.Source == watch.Spec {
		trigger = OnSpec
	}
	l.schedule(trigger, settleTimes[e.Source])
}

// relevant reports whether what led to a pass can have changed anything: new processes
// that belong to no workload have not.
func (l *Loop) relevant() bool {
	if l.must || l.anyPID || l.resolved == nil || l.c.Matches == nil {
		return true
	}
	return l.c.Matches(l.resolved, slices.Collect(maps.Keys(l.pids)))
}

// update changes the status.
func (l *Loop) update(change func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.status)
}

// Status says how things are. What it returns is the caller's.
func (l *Loop) Status() Status {
	sources := l.c.Watcher.Statuses()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Sources = sources
	s.Problems, s.Recent = slices.Clone(s.Problems), slices.Clone(s.Recent)
	if s.Irqbalance != "" && !s.IrqbalanceAgreed {
		s.Problems = append(s.Problems, "irqbalance: "+s.Irqbalance)
	}
	switch {
	case s.Spec.Invalid == "":
	case s.Spec.Digest == "":
		s.Problems = append([]string{"the spec is invalid: " + s.Spec.Invalid}, s.Problems...)
	default:
		s.Problems = append([]string{"the spec is invalid, and the last good one is kept: " + s.Spec.Invalid}, s.Problems...)
	}
	s.Healthy = len(s.Problems) == 0
	return s
}

// stop ends the loop: with restore it puts the originals back first.
func (l *Loop) stop(restore bool) error {
	<-l.table.left
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	tuning := "left"
	if restore && !l.c.DryRun {
		if err := l.restore(ctx); err != nil {
			return err
		}
		tuning = "restored"
	}
	if l.c.Leave != nil {
		ctx, cancel := context.WithTimeout(ctx, leaveTime)
		defer cancel()
		if err := l.c.Leave(ctx); err != nil {
			l.log.Warn("irqbalance has not answered", "error", err)
		}
	}
	l.log.Info("stopped", "tuning", tuning)
	return nil
}

// lock takes the node's lock, waiting for whoever holds it until ctx ends. A wait that is
// longer than a pass of somebody else should take is told, once.
func (l *Loop) lock(ctx context.Context) (*state.Lock, error) {
	began, told := time.Now(), false
	for {
		lock, err := state.Acquire(l.c.Node.RunDir(), l.c.Owner)
		if _, locked := errors.AsType[*state.LockedError](err); !locked {
			return lock, err
		}
		if !told && time.Since(began) > lockedLong {
			told = true
			l.log.Warn("waiting for the node's lock", "error", err)
			l.update(func(s *Status) {
				s.Problems = append(slices.Clone(s.Problems), "nothing is kept meanwhile: "+err.Error())
			})
		}
		l.alive()
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockedRetry):
		}
	}
}
