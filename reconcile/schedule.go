package reconcile

import (
	"maps"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/reconcile/watch"
	"github.com/rdmatune/rdmatune/spec"
)

// How long the loop lets events of a source gather before it looks, so that a driver that
// comes up with hundreds of vectors costs one pass.
var settleTimes = map[watch.Source]time.Duration{
	watch.Writes: 10 * time.Millisecond, watch.Ethtool: 20 * time.Millisecond, watch.Transports: 20 * time.Millisecond,
	watch.Processes: 50 * time.Millisecond, watch.Kernel: 100 * time.Millisecond, watch.Links: 100 * time.Millisecond,
	watch.Spec: 200 * time.Millisecond,
}

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

// heed hears new processes if a workload is about any. Who was started before that is
// found by another look.
func (l *Loop) heed() {
	deaf := !slices.ContainsFunc(l.resolved.Workloads, spec.Workload.AboutProcesses)
	if deaf == l.deaf {
		return
	}
	if err := l.c.Watcher.HearProcesses(!deaf); err != nil {
		l.log.Debug("new processes", "heard", !deaf, "error", err)
		return
	}
	if l.deaf = deaf; !deaf {
		l.schedule(OnSpec, 0)
	}
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
