package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// tryAgain is how what was rolled back comes into force after all.
const tryAgain = "it is tried again when the spec says something else of the workload, after a SIGHUP, or by rdmatune apply"

// breaches are what a run's guards found against a workload: guard "tail": p99 216µs > 1µs.
func breaches(verdicts []experiment.Guard, workload string) string {
	var out []string
	for _, v := range verdicts {
		if v.Workload == workload && v.Verdict == experiment.GuardBreached {
			out = append(out, fmt.Sprintf("guard %q: %s", v.Name, v.Text))
		}
	}
	return strings.Join(out, "; ")
}

// recall finds out why earlier runs rolled back what p is about, once for each workload.
// What has no record any more stays without a reason.
func (l *Loop) recall(ctx context.Context, p *plan.Plan, doc *state.Document) {
	for _, c := range p.Changes {
		w := c.Workload
		if _, known := l.judge.undone[w]; known || !p.Rejected(c, doc) {
			continue
		}
		why, err := l.undone(ctx, w)
		if err != nil {
			l.log.Debug("why a workload was rolled back is not known", "workload", w, "error", err)
		}
		l.judge.undone[w] = why
	}
}

// undone is why a workload was rolled back last, as the experiments have it.
func (l *Loop) undone(ctx context.Context, workload string) (string, error) {
	db, err := experiment.OpenReadOnly(ctx, l.c.Node.StateDir())
	if err != nil || db == nil { // nil: there are none
		return "", err
	}
	defer db.Close() // it was only read
	list, err := db.List(ctx, experiment.Filter{Workload: workload})
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(list, func(e experiment.Experiment) bool { return e.Status == experiment.RolledBack && e.Origin == "" })
	if at < 0 {
		return "", nil
	}
	e, err := db.Show(ctx, list[at].ID)
	if err != nil {
		return "", err
	}
	return breaches(e.Guards, workload), nil
}

// A held is what a pass leaves as it is, by why it does.
type held struct {
	contested  []Held
	waiting    []Held
	rolledBack []Held // by a guard, or with a write that was refused
	left       []Held // it must not be made, or was tried
}

// add sorts one in; it reports whether its setting is given up.
func (h *held) add(v Verdict, x Held) bool {
	switch v {
	case Heal:
		return false
	case Wait:
		h.waiting = append(h.waiting, x)
		return false
	case Contested:
		h.contested = append(h.contested, x)
	case Rejected:
		h.rolledBack = append(h.rolledBack, x)
	default:
		h.left = append(h.left, x)
	}
	return true
}

// forgive forgets why workloads were rolled back of which nothing is rejected any more.
func (j *judge) forgive(rulings []ruling) {
	for w := range j.undone {
		if !slices.ContainsFunc(rulings, func(r ruling) bool { return r.Workload == w && r.verdict == Rejected }) {
			delete(j.undone, w)
		}
	}
}

// problems says what of it keeps the node from being as wanted. What was rolled back for one
// reason is one problem.
func (h *held) problems() (out []string) {
	for _, x := range slices.Concat(h.contested, h.left) {
		out = append(out, fmt.Sprintf("%s %s is not healed: %s", x.Address, x.Setting, x.Reason))
	}
	for rest := h.rolledBack; len(rest) > 0; {
		first := rest[0]
		n := len(rest)
		rest = slices.DeleteFunc(slices.Clone(rest), func(x Held) bool { return x.Reason == first.Reason })
		more := ""
		if n -= len(rest); n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		out = append(out, fmt.Sprintf("%s %s%s was rolled back: %s", first.Address, first.Setting, more, first.Reason))
	}
	for _, x := range h.waiting {
		out = append(out, fmt.Sprintf("%s %s is not healed yet: %s", x.Address, x.Setting, x.Reason))
	}
	return out
}
