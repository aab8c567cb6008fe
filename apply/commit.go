package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// commit makes the state durable and ends the journal. The journal stays when
// something could not be put back, and when the state could not be saved: it then
// is the only place that knows the originals.
func (a *run) commit() error {
	a.doc.Generations = maps.Clone(a.plan.Generations)
	if len(a.result.RolledBack) > 0 && a.result.Done == (plan.Summary{}) && (a.owned || len(a.doc.Entries) == 0) {
		// Nothing of this spec was made: the node is still the earlier one's. Where that
		// has left nothing, what was right already before this run is this spec's.
		a.doc.SpecRoot, a.doc.SpecDigest, a.doc.GitCommit = a.before[0], a.before[1], a.before[2]
	}
	if err := a.doc.Save(a.StateDir); err != nil {
		return fmt.Errorf("%w; the originals are safe in the journal, and the next apply or destroy takes them from there", errors.Join(err, a.journal.Close()))
	}
	a.event(Event{Step: Committed})
	if len(a.result.Unrestored) > 0 {
		return a.journal.Close()
	}
	return a.journal.Remove()
}

// commitQuietly saves what follows from a plan without changes, if that is
// anything: who wants what, values that were right already, a recovered journal.
func (a *run) commitQuietly(before *state.Document) error {
	a.doc.Generations = maps.Clone(a.plan.Generations)
	records, err := state.ReadJournal(a.StateDir)
	if err != nil {
		return err
	}
	if len(records) == 0 && same(before, a.doc) {
		return nil
	}
	if err := a.doc.Save(a.StateDir); err != nil {
		return err
	}
	return a.journal.Remove()
}

func same(a, b *state.Document) bool {
	x, y := a.Clone(), b.Clone()
	x.Sort()
	y.Sort()
	return reflect.DeepEqual(x, y)
}

// close completes the experiment's record.
func (a *run) close(ctx context.Context, fatal error) error {
	e := a.Experiment
	e.Duration = time.Since(a.began)
	e.Status = experiment.Done
	switch {
	case fatal == nil && a.result.Interrupted:
		e.Status = experiment.Interrupted
	case len(a.result.RolledBack) > 0 && len(a.result.Unrestored) == 0:
		e.Status = experiment.RolledBack
	case fatal != nil || a.result.ExitCode() != ExitDone:
		e.Status = experiment.Failed
	}
	var messages []string
	for _, err := range slices.Concat(a.result.Failures, a.result.Unrestored) {
		messages = append(messages, err.Error())
	}
	if fatal != nil {
		messages = append(messages, fatal.Error())
	}
	e.Error = strings.Join(messages, "\n")
	for _, t := range a.targets {
		for _, c := range t.changes {
			s := setting(t, c)
			e.Settings = append(e.Settings, s)
			if tried := param.Format(c.ID, c.New); t.touched && tried != s.Value {
				e.Tried = append(e.Tried, experiment.Tried{Address: s.Address, Attr: s.Attr, Value: tried})
			}
		}
	}
	if a.Switches != nil {
		seen := map[string]bool{}
		for _, t := range a.targets {
			if t.target.Kind == param.Hint && !seen[t.workload] {
				seen[t.workload] = true
				e.Switches = append(e.Switches, a.Switches(ctx, t.workload, a.plan.Generations[t.workload].Counter)...)
			}
		}
	}
	if err := a.DB.Finish(context.WithoutCancel(ctx), e); err != nil {
		return err
	}
	a.event(Event{Step: Closed, Detail: e.ID})
	return nil
}

// setting is one change as it was read back.
func setting(t *target, c param.Change) experiment.Setting {
	row, _ := param.Lookup(c.ID)
	s := experiment.Setting{Address: plan.Address(t.workload, t.target), Attr: row.Attr, Before: param.Format(c.ID, c.Old), Value: "(not written)"}
	if c.Index != "" {
		s.Attr += "[" + c.Index + "]"
	}
	for _, f := range t.inForce {
		if f.ID == c.ID && f.Index == c.Index {
			s.Value = param.Format(f.ID, f.Value)
		}
	}
	return s
}

// describe is a target's changes in one line, "cpus 0-3 -> 1"; many threads that go
// the same way are one.
func describe(cs []param.Change) string {
	var parts []string
	seen := map[string]bool{}
	for _, c := range cs {
		row, _ := param.Lookup(c.ID)
		text := fmt.Sprintf("%s %s -> %s", row.Attr, param.Format(c.ID, c.Old), param.Format(c.ID, c.New))
		if c.Target.Kind == param.Hint && c.Index != "" {
			text = "connection " + c.Index + " " + text
		}
		if !seen[text] {
			seen[text] = true
			parts = append(parts, text)
		}
	}
	if len(parts) > 4 {
		parts = append(parts[:4], fmt.Sprintf("and %d more", len(parts)-4))
	}
	return strings.Join(parts, ", ")
}

func join(names []string) string { return strings.Join(names, ", ") }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
