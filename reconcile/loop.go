package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// Rhythm of the loop.
const (
	beat        = 5 * time.Second        // between two signs of life
	wholeFirst  = 60                     // sweeps of which one is a whole pass
	wholeLast   = 240                    // same, where many in a row have found nothing
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
	loaded   time.Time  // from its files; zero when that is not known
	copied   string     // digest of the spec in the state directory
	uncopied string     // and of the last one that could not be written there
	settings spec.Reconcile
	resolved *spec.Resolved                   // of the last pass
	facts    *node.Facts                      // found in the last pass, nil when they may have changed
	fresh    bool                             // they were found in this pass
	grown    bool                             // a pass since the memory was given back
	usualGC  int                              // what Go collects at, in percent, before the first shrink; 0 before that
	seen     map[param.Target]map[string]bool // threads and connections of the last pass
	frozen   string                           // workloads that could not be judged, for the log
	deaf     bool                             // new processes are not heard, since no workload is about any
	doc      *state.Document
	swept    int // sweeps since the last whole pass for want of a reason
	whole    int // sweeps of which one is a whole pass

	due        time.Time // of the next pass because of what was heard; zero for none
	later      time.Time // of the next pass because of what was to wait; zero for none
	why        Trigger
	events     int  // since the last pass
	must       bool // the pass is for more than new processes
	reread     bool // the spec's files
	pids       map[int]bool
	anyPID     bool // more than could be remembered
	causes     causes
	unhealed   map[subject]Drift
	debts      debts
	irqs       []int // of the last pass, and the files that hold each target's settings
	files      settingFiles
	unfiled    map[param.Target][]state.Entry // what was written that is in no file
	muted      map[string]time.Time           // files of settings that wait, and until when
	table      *table
	archive    *archive
	lastEnd    time.Time
	lastTook   time.Duration
	notInForce []string // what was told to have failed since all was well

	failures int // passes in a row that could not be made

	mu       sync.Mutex
	status   Status    // guarded by mu
	stopping bool      // guarded by mu
	gave     time.Time // guarded by mu; the last sign of life
}

// New returns a loop that has looked at nothing yet.
func New(c Config) *Loop {
	l := &Loop{c: c, log: c.Log, table: newTable(), archive: newArchive(), pids: map[int]bool{}, unhealed: map[subject]Drift{}, debts: debts{}, settings: spec.DefaultReconcile, whole: wholeFirst}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.judge = newJudge(l.settings.ContestedAfter, l.settings.Window, l.bounce)
	l.status = Status{
		FormatVersion: FormatVersion, Version: c.Version, PID: c.Owner.PID, BootID: c.BootID,
		Started: time.Now().UTC().Truncate(time.Second), DryRun: c.DryRun, Sources: c.Watcher.Statuses(), Workloads: []Workload{}, Contested: []Held{}, Waiting: []Held{}, RolledBack: []Held{}, Left: []Held{}, Guards: []Debt{},
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
	given := ctx
	ctx, cancel := context.WithCancel(given)
	defer func() {
		cancel()
		<-l.archive.left
	}()
	go l.prune(ctx)
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
			switch {
			case ok:
				l.hear(e)
			case given.Err() == nil:
				return errors.New("the watcher was closed")
			default: // with given, of which ctx may not have heard yet
				return l.stop(restore(l.restoresOnStop()))
			}
		case <-hup:
			l.signalled()
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
				l.shrink()
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// idleGC is how much may become garbage between passes before it is collected, in percent
// of what is in use.
const idleGC = 25

// shrink gives memory back after a pass, which may have been a large one: between passes a
// daemon should need little. grow lets the next pass use what Go usually does, since to
// collect more often costs time.
func (l *Loop) shrink() {
	debug.FreeOSMemory()
	l.usualGC = debug.SetGCPercent(idleGC)
	if l.usualGC < idleGC { // as the environment has it, perhaps never
		debug.SetGCPercent(l.usualGC)
	}
	l.grown = false
}

func (l *Loop) grow() {
	if !l.grown && l.usualGC != 0 {
		debug.SetGCPercent(l.usualGC)
	}
	l.grown = true
}

// signalled reads the spec anew, and tries again what was given up.
func (l *Loop) signalled() {
	if l.c.OnReload != nil {
		defer l.c.OnReload()()
	}
	l.log.Info("reload", "trigger", OnSignal)
	l.reload()
	l.judge.forget()
	if l.doc != nil {
		l.judge.ask(l.doc)
	}
	l.debts.forget()
	l.facts = nil
	l.schedule(OnSignal, 0)
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
	if l.stopping {
		s.Problems = append([]string{"it is stopping"}, s.Problems...)
	}
	s.Healthy = len(s.Problems) == 0
	return s
}

// stop ends the loop: with restore it puts the originals back first. Who waits for a
// healthy daemon is not to take one that is leaving for that.
func (l *Loop) stop(restore bool) error {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
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
