package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// How long a guard that could not be measured waits for the next try: a measurement loads
// the network, and nothing is healed during one.
const (
	firstRemeasure = 5 * time.Minute // it doubles
	lastRemeasure  = time.Hour
)

// unasked is why a guard that an earlier run owes has no verdict before this one has tried.
const unasked = "it was not measured since the last change"

// A debt is a guard of what is in force that has no verdict yet, or a bad one that undid
// nothing.
type debt struct {
	why      string
	breached bool
	next     time.Time     // it is measured again; zero: with the next pass
	pause    time.Duration // before next
	told     bool
}

// debts are by the guards' addresses. They belong to one goroutine.
type debts map[string]*debt

// keep makes d the debts of these addresses.
func (d debts) keep(addresses []string) {
	for a := range d {
		if !slices.Contains(addresses, a) {
			delete(d, a)
		}
	}
	for _, a := range addresses {
		if d[a] == nil {
			d[a] = &debt{why: unasked}
		}
	}
}

// forget makes all of them due, such as after a signal.
func (d debts) forget() {
	for _, x := range d {
		*x = debt{why: x.why, breached: x.breached}
	}
}

// choose are the guards that are measured after the changes of p: those of what it changes,
// and those that are owed and whose time has come.
func (d debts) choose(now time.Time, p *plan.Plan) []plan.Guard {
	return slices.DeleteFunc(p.GuardsDue(), func(g plan.Guard) bool {
		x := d[g.Address()]
		changed := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Workload == g.Workload && c.Action != param.Restore })
		return !changed && x != nil && now.Before(x.next)
	})
}

// note takes down a verdict on a guard that is still owed after it, and reports whether it
// is news.
func (d debts) note(now time.Time, v experiment.Guard) (news bool) {
	address := plan.Guard{Workload: v.Workload, Name: v.Name}.Address()
	x := d[address]
	if x == nil {
		x = &debt{}
		d[address] = x
	}
	breached := v.Verdict == experiment.GuardBreached
	news = !x.told || breached != x.breached
	x.why, x.breached, x.told = v.Text, breached, true
	x.pause = min(max(2*x.pause, firstRemeasure), lastRemeasure)
	x.next = now.Add(x.pause)
	return news
}

// due is when the first of p's guards that are owed is to be measured, zero for none.
func (d debts) due(p *plan.Plan) (at time.Time) {
	for _, g := range p.Guards {
		if x := d[g.Address()]; x != nil && (at.IsZero() || x.next.Before(at)) {
			at = x.next
		}
	}
	return at
}

// A Debt is a guard of what is in force that has no verdict, or is breached with nothing
// left to undo.
type Debt struct {
	Guard    string    `json:"guard"` // its address
	Breached bool      `json:"breached"`
	Reason   string    `json:"reason"`
	Next     time.Time `json:"next,omitzero"` // it is measured again then; zero: with the next pass, or not in a dry run
}

// String says it for a person.
func (d Debt) String() string {
	if d.Breached {
		return d.Guard + " is breached, and what it is about was changed by an earlier run and stays: " + d.Reason
	}
	return d.Guard + " has no verdict: " + d.Reason
}

// list is the debts for a status.
func (d debts) list() []Debt {
	out := make([]Debt, 0, len(d))
	for a, x := range d {
		out = append(out, Debt{Guard: a, Breached: x.breached, Reason: x.why, Next: x.next})
	}
	slices.SortFunc(out, func(a, b Debt) int { return cmp.Compare(a.Guard, b.Guard) })
	return out
}

// tellGuards says what a run's guards found, and returns what of it keeps the node from
// being as wanted and is no debt. owed are the guards that have no good verdict after it.
func (l *Loop) tellGuards(verdicts []experiment.Guard, rolledBack, owed []string, record string) (problems []string) {
	now := time.Now()
	for _, v := range verdicts {
		address := plan.Guard{Workload: v.Workload, Name: v.Name}.Address()
		said := []any{"guard", v.Name, "workload", v.Workload, "found", v.Text, "experiment", record}
		undone := slices.Contains(rolledBack, v.Workload)
		if v.Verdict == experiment.GuardBreached && undone {
			l.log.Error("guard breached: rolled back", said...)
			problems = append(problems, fmt.Sprintf("guard %q of %s was breached, and the workload was rolled back: %s", v.Name, v.Workload, v.Text))
		}
		switch was := l.debts[address]; {
		case slices.Contains(owed, address):
			news := l.debts.note(now, v)
			said = append(said, "again_in", l.debts[address].pause)
			switch {
			case !news || undone && v.Verdict == experiment.GuardBreached:
			case v.Verdict == experiment.GuardBreached:
				l.log.Error("guard breached: it is about what an earlier run changed, which stays", said...)
			default:
				l.log.Warn("guard not measured: it has no verdict, and nothing is undone", said...)
			}
		case v.Verdict == experiment.GuardPassed && was != nil:
			l.log.Info("guard passed", said...)
		case v.Verdict == experiment.GuardBreached && !undone:
			l.log.Warn("guard breached: it is to be reported alone", said...)
		}
	}
	l.debts.keep(owed)
	return problems
}

// owe is when a pass is to measure what is owed, zero for never.
func (l *Loop) owe(p *plan.Plan) time.Time {
	at := l.debts.due(p)
	if l.c.DryRun || len(l.debts) == 0 {
		return time.Time{}
	}
	return at
}

// paid reports whether another program has measured a guard that is owed.
func (l *Loop) paid() bool {
	if len(l.debts) == 0 {
		return false
	}
	doc, err := state.Load(l.c.Node.StateDir())
	return err == nil && slices.ContainsFunc(slices.Collect(maps.Keys(l.debts)), func(a string) bool { return !slices.Contains(doc.Unmeasured, a) })
}
