package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/internal/natural"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// restore plans what the state remembers and nobody wants any more: put back the
// original, where the value is still what rdmatune wrote.
func (m *maker) restore() {
	now := map[param.Target]param.Observed{}
	for _, o := range m.in.Observed {
		for _, f := range o.Found {
			now[f.Target.Key()] = f
		}
	}
	for _, f := range m.in.Remembered {
		now[f.Target.Key()] = f
	}
	drop := map[state.Key]bool{}
	restored := map[param.Target]string{} // target -> workload, of those with a restore
	var right []state.Entry               // that have their original already
	for _, e := range slices.Clone(m.plan.Base.Entries) {
		key := e.Key()
		if _, wanted := m.claimed[key]; wanted {
			continue
		}
		if m.in.frozen(e.Workloads, e.Target.Kind) {
			continue
		}
		workload := ""
		if len(e.Workloads) > 0 {
			workload = e.Workloads[0]
		}
		if err := m.in.Unreadable[key.Target]; err != nil {
			m.note(&m.plan.Unreadable, workload, e.Target.Kind, e.Target.Name, "its original is kept: %v", err)
			continue
		}
		found, there := now[key.Target]
		have, has := param.Setting{}, false
		if there {
			if i := slices.IndexFunc(found.Settings, func(s param.Setting) bool { return s.ID == e.ID && s.Index == e.Index }); i >= 0 {
				have, has = found.Settings[i], true
			}
		}
		if !has && there && unobservable(found) { // it does not answer: nothing says that this is gone
			m.note(&m.plan.Unreadable, workload, e.Target.Kind, e.Target.Name, "its original is kept: the value is not observable")
			continue
		}
		if !has { // the target, the thread or the connection is gone, and its original with it
			drop[key] = true
			continue
		}
		original, waits := m.attainable(e.ID, e.Original, have.Value)
		switch {
		case have.Value == original:
			drop[key] = true
			right = append(right, e)
		case e.Original.IsAbsent() && e.Target.Kind != param.Hint:
			drop[key] = true
			m.note(&m.plan.Notes, workload, e.Target.Kind, e.Target.Name, "%s stays %s: it was unset before, and the kernel takes no unset value back", attr(e.ID), param.Format(e.ID, have.Value))
		case !have.Value.IsKnown():
			m.note(&m.plan.Unreadable, workload, e.Target.Kind, e.Target.Name, "its original is kept: the value is not observable (%s)", have.Value.Reason())
		case !m.ours(e, have.Value) && !m.in.Force:
			m.plan.LeftAlone++
			m.note(&m.plan.Notes, workload, e.Target.Kind, e.Target.Name, "left alone: somebody has changed %s to %s since rdmatune wrote %s; --force restores the original %s",
				attr(e.ID), param.Format(e.ID, have.Value), param.Format(e.ID, e.Written), param.Format(e.ID, e.Original))
		case waits != "":
			m.note(&m.plan.Pending, workload, e.Target.Kind, e.Target.Name, "%s -> %s: %s", attr(e.ID)+" "+param.Format(e.ID, have.Value), param.Format(e.ID, original), waits)
		default:
			m.restoreTo(workload, found.Target, have, original)
			restored[key.Target] = workload
		}
	}
	// What is right may become wrong by the restoring of the others: a limit that somebody
	// has asked for is only hidden as long as another one is below it.
	for _, e := range right {
		if _, changes := restored[e.Target.Key()]; changes && e.Target.Kind == param.Frequency {
			o := m.plan.Orders[e.Target.Key()]
			o.Want = append(slices.Clip(o.Want), param.Setting{ID: e.ID, Index: e.Index, Value: e.Original})
			m.plan.Orders[e.Target.Key()] = o
		}
	}
	m.plan.Base.Keep(func(e state.Entry) bool { return !drop[e.Key()] })
	for _, c := range m.plan.Changes {
		// Of a workload that is no longer there, what can be restored is: one refused
		// write must not bring back all the rest.
		if _, there := m.plan.Policies[c.Workload]; !there {
			m.plan.Policies[c.Workload] = Policy{Continue: true}
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(restored), func(a, b param.Target) int { return cmp.Compare(a.Name, b.Name) }) {
		m.restoreBornAfter(restored[t], now[t])
		if t.Kind == param.Hint {
			m.release(restored[t], t)
		}
	}
}

// unobservable reports whether a target's settings could not be read.
func unobservable(found param.Observed) bool {
	return slices.ContainsFunc(found.Settings, func(s param.Setting) bool { return !s.Value.IsKnown() && !s.Fixed })
}

func (m *maker) restoreTo(workload string, t param.Target, have param.Setting, to param.Value) {
	c := Change{Change: param.Change{
		Workload: workload, Target: t, ID: have.ID, Index: have.Index, Action: param.Restore,
		Old: have.Value, New: to, Disrupt: param.None, Reason: "no longer in the spec",
	}}
	if t.Kind == param.Hint && have.Index != "" {
		c.Disrupt = param.Pause
	}
	m.plan.Changes = append(m.plan.Changes, c)
}

// restoreBornAfter plans threads and connections that came after the last apply
// and have what it wrote, since they inherited it.
func (m *maker) restoreBornAfter(workload string, found param.Observed) {
	t := found.Target.Key()
	for _, s := range found.Settings {
		key := state.Key{Target: t, ID: s.ID, Index: s.Index}
		if s.Index == "" || m.in.State.Find(m.in.BootID, key) != nil || s.ID != param.PinCPUs && s.ID != param.HintSize {
			continue
		}
		if _, wanted := m.claimed[key]; wanted {
			continue
		}
		inherited := false
		for _, e := range m.in.State.Entries {
			if e.Target.Key() == t && e.ID == s.ID && e.Written == s.Value {
				inherited = true
				break
			}
		}
		original := param.Absent()
		if t.Kind == param.Pinning {
			original, _ = m.processOriginal(t)
		}
		original, waits := m.attainable(s.ID, original, s.Value)
		if inherited && original.IsKnown() && original != s.Value && waits == "" {
			m.restoreTo(workload, found.Target, s, original)
		}
	}
}

// release raises the generation of a workload that no longer wants a hint: its
// connections go back with a switch like any other.
func (m *maker) release(workload string, t param.Target) {
	g := m.plan.Generations[workload]
	if g.Follows != "" {
		g = state.Generation{Counter: g.Counter + 1}
		m.plan.Generations[workload] = g
	}
	o := param.Order{Workload: workload, Generation: g.Counter, Release: true}
	if e := m.in.State.Find(m.in.BootID, state.Key{Target: Published(workload), ID: param.DrainTimeout}); e != nil {
		if ms, ok := e.Written.AsInt(); ok {
			o.Drain = time.Duration(ms) * time.Millisecond
		}
	}
	m.plan.Orders[t] = o
}

func attr(id param.ID) string {
	row, _ := param.Lookup(id)
	return row.Attr
}

// sort puts the plan into apply order: kinds as param.Kinds has them, and within
// one kind workload, target and setting. What future processes will find comes
// before what live ones are told, so that one that starts in between misses nothing.
func (m *maker) sort() {
	rank := map[param.ID]int{}
	for i, r := range param.Table {
		rank[r.ID] = i
	}
	published := func(t param.Target) int {
		if isPublished(t) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(m.plan.Changes, func(a, b Change) int {
		return cmp.Or(
			cmp.Compare(a.Target.Kind.Rank(), b.Target.Kind.Rank()),
			natural.Compare(a.Workload, b.Workload),
			cmp.Compare(published(a.Target), published(b.Target)),
			natural.Compare(a.Target.Name, b.Target.Name),
			cmp.Compare(a.Target.Incarnation, b.Target.Incarnation),
			cmp.Compare(rank[a.ID], rank[b.ID]),
			natural.Compare(a.Index, b.Index))
	})
	for _, list := range []*[]Note{&m.plan.Pending, &m.plan.Notes, &m.plan.Unreadable} {
		slices.SortFunc(*list, func(a, b Note) int {
			return cmp.Or(natural.Compare(a.Address, b.Address), cmp.Compare(a.Reason, b.Reason))
		})
		*list = slices.Compact(*list)
	}
}
