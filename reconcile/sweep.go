package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/interrupts"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile/watch"
	"github.com/rdmatune/rdmatune/state"
)

// sweep looks at what is managed and asks for a pass if something is not as it was left.
// It is cheap: files are kept open and compared with what they were, the other settings
// are read from the kernel or their process. Once in a while, and where there is no such
// short way, it is a whole pass.
func (l *Loop) sweep(ctx context.Context) {
	l.swept++
	l.update(func(s *Status) { s.Sweeps++ })
	l.table.offer(l.irqs) // to one that was started since
	if !l.on(watch.Spec) {
		if l.reload() {
			l.schedule(OnSpec, 0)
			return
		}
	}
	if l.swept >= l.whole || !l.on(watch.Kernel) || !l.on(watch.Processes) {
		l.swept, l.facts = 0, nil
		l.schedule(OnSweep, 0)
		return
	}
	different, err := l.c.Watcher.Files().Changed()
	if err != nil {
		l.log.Debug("kept files", "error", err)
	}
	if len(different) > 0 || err != nil || l.drifted(ctx) || l.paid() {
		l.log.Debug("sweep", "files", len(different))
		l.schedule(OnSweep, 0)
	}
}

// learn sets how soon the next whole pass comes that nothing leads to: where the last ones
// have found nothing, later, since a look at a large node takes a second of a processor.
func (l *Loop) learn(p *Pass) {
	switch {
	case p.Changed > 0 || len(p.Drifts) > 0 || p.Err != "" || p.Trigger == OnSpec || p.Trigger == OnSignal:
		l.whole = wholeFirst
	case p.Trigger == OnSweep:
		l.whole = min(2*l.whole, wholeLast)
	}
}

// on reports whether a source works.
func (l *Loop) on(s watch.Source) bool {
	return slices.ContainsFunc(l.c.Watcher.Statuses(), func(x watch.Status) bool { return x.Source == s && x.On })
}

// drifted reports whether a managed setting that is in no file is not as it was written,
// or its target is gone.
func (l *Loop) drifted(ctx context.Context) bool {
	for t, entries := range l.unfiled {
		o, there, err := l.c.Drivers.Reread(ctx, t)
		if err != nil || !there {
			return true
		}
		for _, e := range entries {
			s, ok := drivers.Lookup(o.Settings, e.ID, e.Index)
			if !ok || s.Value != e.Written {
				return true
			}
		}
		if slices.ContainsFunc(o.Settings, func(s param.Setting) bool { return s.Index != "" && !l.seen[t][s.Index] }) {
			return true // a thread or a connection that no pass has seen
		}
	}
	return false
}

// remember notes which threads and connections a pass has seen of each target.
func (l *Loop) remember(in plan.Input) {
	l.seen = map[param.Target]map[string]bool{}
	note := func(o param.Observed) {
		var indices map[string]bool
		for _, s := range o.Settings {
			if s.Index == "" {
				continue
			}
			if indices == nil {
				indices = map[string]bool{}
			}
			indices[s.Index] = true
		}
		l.seen[o.Target.Key()] = indices
	}
	for _, o := range in.Observed {
		for _, f := range o.Found {
			note(f)
		}
	}
	for _, f := range in.Remembered {
		note(f)
	}
}

// there tells of which things, whatever their incarnation, the last pass has seen a target.
func (l *Loop) there() func(param.Kind, string) bool {
	type thing struct {
		kind param.Kind
		name string
	}
	all := sync.OnceValue(func() map[thing]bool {
		m := make(map[thing]bool, len(l.seen))
		for t := range l.seen {
			m[thing{t.Kind, t.Name}] = true
		}
		return m
	})
	return func(k param.Kind, name string) bool { return all()[thing{k, name}] }
}

// watch keeps the files of what is managed open and heard, but for those that were given
// up, notes what is in no file, and says which interrupts irqbalance is to leave alone.
func (l *Loop) watch() {
	written := map[param.Kind]map[param.Target][]state.Entry{}
	for _, e := range l.doc.Entries {
		if e.BootID != l.c.BootID {
			continue
		}
		t := e.Target.Key()
		if written[t.Kind] == nil {
			written[t.Kind] = map[param.Target][]state.Entry{}
		}
		written[t.Kind][t] = append(written[t.Kind][t], e)
	}
	var paths []string
	var irqs []int
	l.files, l.muted = make(settingFiles, len(l.doc.Entries)), map[string]time.Time{}
	l.unfiled = map[param.Target][]state.Entry{}
	now := time.Now()
	for kind, targets := range written {
		d, err := l.c.Drivers.Driver(kind)
		if err != nil {
			continue
		}
		f, ok := d.(drivers.Filer)
		if !ok {
			maps.Copy(l.unfiled, targets)
			continue
		}
		ts := slices.Collect(maps.Keys(targets))
		for i, files := range f.Files(ts) {
			held := make([]settingFile, 0, len(files))
			for id, path := range files {
				held = append(held, settingFile{id, path})
				r := l.judge.records[subject{kind, ts[i].Name, id, ""}]
				if r != nil && !r.contested.IsZero() {
					continue // its writer would only be heard in vain
				}
				if r != nil && r.next.After(now) {
					l.muted[path] = r.next
				}
				paths = append(paths, path)
				if n, ok := interrupts.NumberOf(path); ok {
					irqs = append(irqs, n)
				}
			}
			l.files[ts[i]] = held
		}
	}
	slices.Sort(paths)
	if err := l.c.Watcher.Files().Set(slices.Compact(paths)); err != nil {
		l.log.Debug("kept files", "error", err)
	}
	slices.Sort(irqs)
	if !l.settings.Irqbalance {
		irqs = nil
	}
	l.irqs = slices.Compact(irqs)
	l.table.offer(l.irqs)
}

// maxNotes bounds the notes of a status.
const maxNotes = 50

// summarise puts what is managed into the status.
func (l *Loop) summarise(ctx context.Context, kept *held, p *plan.Plan) {
	workloads := make([]Workload, 0, len(l.resolved.Workloads))
	for _, w := range l.resolved.Workloads {
		x := Workload{Address: w.Address, Generation: l.doc.Generations[w.Address].Counter}
		for _, want := range w.Wants {
			if want.Kind != param.Hint || len(want.Targets) == 0 {
				continue
			}
			for _, s := range want.Targets[0].Settings {
				if n, ok := s.Value.AsInt(); ok && s.ID == param.HintSize {
					x.Wanted = &n
				}
			}
		}
		x.Hint = l.published(ctx, w.Address)
		processes := map[string]bool{}
		for _, e := range l.doc.Entries {
			if e.BootID != l.c.BootID || !slices.Contains(e.Workloads, w.Address) {
				continue
			}
			x.Settings++
			if pid, err := strconv.Atoi(e.Target.Name); err == nil && pid > 0 && (e.Target.Kind == param.Pinning || e.Target.Kind == param.Hint) {
				processes[e.Target.Name] = true
			}
			if e.ID == param.HintSize && e.Index != "" {
				x.Connections++
			}
		}
		x.Processes = len(processes)
		workloads = append(workloads, x)
	}
	if l.fresh && l.c.Rivals != nil {
		rivals := l.c.Rivals()
		l.update(func(s *Status) { s.Others = rivals })
	}
	var notes []string
	for _, n := range slices.Concat(p.Pending, p.Notes) {
		if len(notes) < maxNotes {
			notes = append(notes, n.Address+": "+n.Reason)
		}
	}
	l.update(func(s *Status) {
		s.Notes = notes
		s.Workloads, s.Guards = workloads, l.debts.list()
		s.Contested, s.Waiting, s.RolledBack, s.Left = kept.contested, kept.waiting, kept.rolledBack, kept.left
		s.Spec.Commit = l.doc.GitCommit
	})
}

// published is the hint that a workload's processes find at their start, nil for none.
func (l *Loop) published(ctx context.Context, workload string) *int64 {
	o, there, err := l.c.Drivers.Reread(ctx, plan.Published(workload))
	if err != nil || !there {
		return nil
	}
	s, _ := drivers.Lookup(o.Settings, param.HintSize, "")
	if n, ok := s.Value.AsInt(); ok {
		return &n
	}
	return nil
}

// bounce says why a change may not take its link down, "" when it may.
func (l *Loop) bounce(c plan.Change) string {
	if !l.settings.AllowLinkBounce {
		return `it would take the link down for a moment, and the spec does not allow that (reconcile { link_bounce = "allow" })`
	}
	why, err := inUse(c.Target.Name)
	if err != nil {
		return fmt.Sprintf("it would take the link down for a moment, and whether that is in use could not be found out: %v", err)
	}
	return why
}
