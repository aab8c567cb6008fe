package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/gather"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

// hearing is how long an event takes that tells of what a pass without events may find.
const hearing = 30 * time.Millisecond

// listen hears what has happened by now: it may be the cause of what the pass will find.
func (l *Loop) listen() {
	wait := hearing
	if l.events > 0 || !l.on(watch.Writes) {
		wait = 0
	}
	enough := time.After(wait)
	for {
		select {
		case e, ok := <-l.c.Watcher.Events():
			if !ok {
				return
			}
			l.hear(e)
		case <-enough:
			return
		}
	}
}

// recentDrifts are kept in the status, and of what the last pass found and did as many.
const recentDrifts = 20

// pass looks at the node, decides, and carries out what is to be done now.
func (l *Loop) pass(ctx context.Context) {
	l.ripen(time.Now())
	needed := l.relevant()
	if needed {
		l.listen()
		l.ripen(time.Now())
	}
	p := Pass{Trigger: l.why, Began: time.Now(), Events: l.events}
	reread := l.reread
	l.due, l.why, l.events, l.must, l.anyPID, l.reread = time.Time{}, "", 0, false, false, false
	clear(l.pids)
	if reread {
		l.reload()
	}
	if !needed || l.spec == nil {
		l.lastEnd = time.Now()
		return
	}
	l.later = time.Time{}
	l.grow()
	problems, again, err := l.once(ctx, &p)
	p.Took = time.Since(p.Began)
	l.lastEnd, l.lastTook = time.Now(), p.Took
	switch {
	case err != nil && ctx.Err() != nil:
		return // stopping
	case err != nil:
		p.Err = err.Error()
		problems = append(problems, p.Err)
		l.logFailure(err)
		l.failures++
		l.schedule(OnTimer, min(failedRetry<<min(l.failures-1, 10), failedMost))
	default:
		if l.failures > 0 {
			l.log.Info("passes work again", "failed", l.failures)
		}
		l.failures = 0
		if !again.IsZero() {
			l.schedule(OnTimer, time.Until(again))
		}
	}
	l.learn(&p)
	l.keepLastGood() // if it could not be before
	if p.Experiment != "" {
		l.archive.added(l.settings.Experiments)
	}
	problems = distinct(problems)
	if len(problems) == 0 {
		l.notInForce = nil
	}
	l.tellHealth(problems)
	kept := p.kept()
	l.update(func(s *Status) {
		s.Problems = bounded(problems)
		s.Passes++
		s.LastPass = &kept
		for _, d := range p.Drifts {
			s.Recent = append([]Drift{d}, s.Recent[:min(len(s.Recent), recentDrifts-1)]...)
			s.Drifts++
		}
		s.Heals += uint64(len(p.Heals))
		for _, d := range p.Heals {
			for i := range s.Recent {
				if r := &s.Recent[i]; r.subject == d.subject && r.When.Equal(d.When) {
					r.Healed = d.Healed
				}
			}
		}
	})
	if l.c.OnPass != nil {
		l.c.OnPass(p)
	}
}

// kept is p as a status has it: without all but the first of what may be thousands.
func (p Pass) kept() Pass {
	p.Drifts, p.Heals = first(p.Drifts), first(p.Heals)
	p.Failures, p.Switches = first(p.Failures), first(p.Switches)
	return p
}

// first is the beginning of a list, without what comes after it in memory.
func first[T any](list []T) []T { return slices.Clone(list[:min(len(list), recentDrifts)]) }

// distinct is list without what was in it before.
func distinct(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

// logFailure says that a pass could not be made, once for each series of failures.
func (l *Loop) logFailure(err error) {
	level := slog.LevelError
	if l.failures > 0 {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "pass failed: it is tried again", "error", err)
}

// once makes one pass and fills p in. problems keep the node from being as wanted; at
// again another pass is due, never when it is zero.
func (l *Loop) once(ctx context.Context, p *Pass) (problems []string, again time.Time, err error) {
	lock, err := l.lock(ctx)
	if err != nil {
		return nil, again, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	// What the files say before the look is what the look sees, so that a write after it is
	// found by the sweep also when its event is lost.
	if err := l.c.Watcher.Files().Accept(); err != nil {
		l.log.Debug("kept files", "error", err)
	}
	if l.c.Before != nil {
		if err := l.c.Before(ctx); err != nil {
			return nil, again, err
		}
	}
	if err := l.rescue(); err != nil {
		return nil, again, err
	}
	l.fresh = l.facts == nil
	src := gather.Source{Node: l.c.Node, Drivers: l.c.Drivers, BootID: l.c.BootID, Known: l.facts, Partial: true}
	g, err := src.Gather(ctx, l.spec, false)
	if err != nil {
		return nil, again, err
	}
	if g.Diags.HasErrors() && len(g.Input.Frozen) == 0 {
		return nil, again, fmt.Errorf("the spec does not fit the node: %s", firstError(g.Diags))
	}
	if err := apply.CheckRoot(g.Doc, l.spec.Root, l.c.Replace); err != nil {
		return nil, again, err
	}
	if l.settings != g.Input.Spec.Reconcile {
		l.settings = g.Input.Spec.Reconcile
		l.judge.after, l.judge.window = l.settings.ContestedAfter, l.settings.Window
	}
	in := g.Input
	full := plan.Make(in)
	why := firstError(g.Diags)
	if full.Errored() && len(full.Broken) > 0 {
		why = firstError(full.Diags)
		in = in.Without(full.Broken)
		full = plan.Make(in)
	}
	p.Planned = time.Since(p.Began)
	if full.Errored() {
		return nil, again, fmt.Errorf("the plan has errors: %s", firstError(full.Diags))
	}
	l.remember(in)
	l.resolved, l.doc, l.facts = in.Spec, g.Doc, g.Facts
	l.heed()
	if len(in.Frozen) > 0 {
		var parts []string
		for part := range in.Frozen {
			parts = append(parts, part.String())
		}
		slices.Sort(parts)
		names := strings.Join(parts, ", ")
		problems = append(problems, fmt.Sprintf("left as they are: %s: %s", names, why))
		again = time.Now().Add(frozenFor)
		l.facts = nil // they may fit next time
		if l.frozen != names {
			l.log.Warn("left as they are, since they cannot be judged now", "parts", names, "error", why)
		}
		l.frozen = names
	} else if l.frozen != "" {
		l.log.Info("judged again", "parts", l.frozen)
		l.frozen = ""
	}
	for _, n := range full.Unreadable {
		problems = append(problems, n.Address+": "+n.Reason)
	}
	if full.Deferred {
		again = time.Now().Add(deferredFor)
	}

	l.recall(ctx, full, g.Doc)
	rulings := l.judge.rule(p.Began, full, g.Doc, func(c plan.Change) cause {
		return l.causes.find(p.Began, c, l.files, l.netdevs)
	})
	whole := len(in.Frozen) == 0
	if whole {
		l.judge.righted(p.Began, l.there())
	}
	kept := l.tell(rulings, p, whole)
	problems = append(problems, kept.problems()...)
	if whole {
		l.judge.forgive(rulings)
	}
	for _, h := range kept.waiting {
		again = earlier(again, h.Until)
	}
	chosen, drift, rest := choose(rulings)
	todo := full.Only(g.Doc, func(c plan.Change) bool { return chosen[subjectOf(c)] })
	if drift {
		todo = todo.Independent()
		todo.Guards = nil // what is put back was measured when it was applied
	}
	l.debts.keep(full.Base.Unmeasured)
	todo.Guards = l.debts.choose(p.Began, todo)
	if rest {
		again = time.Now()
		problems = append(problems, "what is new in the spec or on the node is made next, after what was put back")
	}
	if l.c.DryRun {
		for i, r := range rulings {
			problems = append(problems, describe(r)+" (dry run)")
			if r.news {
				l.log.Log(ctx, told(i, slog.LevelInfo), "would change", "address", plan.Address(r.Workload, r.Target), "setting", settingName(r.ID, r.Index),
					"from", param.Format(r.ID, r.Old), "to", param.Format(r.ID, r.New), "ruling", r.verdict)
			}
		}
	} else if problems, err = l.carryOut(ctx, p, todo, g, rulings, problems); err != nil {
		return problems, again, err
	}
	if p.Changed > 0 || len(p.RolledBack) > 0 {
		again = earlier(again, time.Now().Add(followUp))
	}
	again = earlier(again, l.judge.due(time.Now(), todo.Changes)) // what did not work
	again = earlier(again, l.owe(full))
	for _, d := range l.debts.list() {
		problems = append(problems, d.String())
	}
	l.watch()
	l.summarise(ctx, kept, full)
	return problems, again, nil
}

// choose returns what a pass makes of what may be made: when something is put back, that
// alone (drift), since one that is refused then must not undo the others, as it does in a
// change of the spec. rest tells that another pass is to make what is left. A process gets
// its whole order at once: what of a hint is to be put back is made with what is new of it,
// and measured with that.
func choose(rulings []ruling) (chosen map[subject]bool, drift, rest bool) {
	chosen = map[subject]bool{}
	heal := func(r ruling) bool { return r.verdict == Heal }
	ordered := map[param.Target]bool{}
	for _, r := range rulings {
		if heal(r) && !r.Drift && r.Target.Kind == param.Hint {
			ordered[r.Target.Key()] = true
		}
	}
	drifted := func(r ruling) bool { return r.Drift && !ordered[r.Target.Key()] }
	drift = slices.ContainsFunc(rulings, func(r ruling) bool { return heal(r) && drifted(r) })
	for _, r := range rulings {
		switch {
		case !heal(r):
		case drifted(r) == drift:
			chosen[subjectOf(r.Change)] = true
		default:
			rest = true
		}
	}
	return chosen, drift, rest
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
