package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
)

// tell turns rulings into what the status and the log say of them. whole: they are of all
// that is managed.
func (l *Loop) tell(rulings []ruling, p *Pass, whole bool) *held {
	out := &held{contested: []Held{}, waiting: []Held{}, rolledBack: []Held{}, left: []Held{}}
	given, reasons := 0, map[string]bool{}
	seen := make(map[subject]bool, len(rulings))
	for _, r := range rulings {
		seen[subjectOf(r.Change)] = true
		h := Held{Address: plan.Address(r.Workload, r.Target), Setting: settingName(r.ID, r.Index), Reason: r.reason,
			Rewrites: r.rewrites, Writer: r.cause.writer, Until: r.until}
		if out.add(r.verdict, h) {
			given++
			same := r.verdict == Rejected && reasons[h.Reason] // a rollback is told once
			reasons[h.Reason] = true
			if r.news && !same {
				said := []any{"address", h.Address, "setting", h.Setting, "reason", h.Reason}
				if h.Writer != "" {
					said = append(said, "writer", h.Writer)
				}
				l.log.Log(context.Background(), told(given, slog.LevelWarn), string(r.verdict), said...)
			}
		}
		if !r.fresh {
			continue
		}
		d := Drift{Address: h.Address, Setting: h.Setting, Wrote: param.Format(r.ID, r.New), Found: param.Format(r.ID, r.Old),
			Writer: r.cause.writer, Known: r.cause.known, When: r.cause.when, Ruling: string(r.verdict), subject: subjectOf(r.Change)}
		l.log.Log(context.Background(), told(len(p.Drifts), slog.LevelInfo), "drift", "address", d.Address, "setting", d.Setting, "wrote", d.Wrote, "found", d.Found, "writer", d.Writer, "ruling", d.Ruling)
		if r.verdict != Contested && len(l.unhealed) < maxRecords {
			l.unhealed[d.subject] = d
		}
		p.Drifts = append(p.Drifts, d)
	}
	for s := range l.unhealed {
		// It was put right by somebody else, or is gone, or could not be judged for so long
		// that the judge has forgotten it.
		if !seen[s] && (whole || l.judge.records[s] == nil) {
			delete(l.unhealed, s)
		}
	}
	if n := len(p.Drifts); n > maxTold {
		l.log.Info("drift", "settings", n, "trigger", p.Trigger)
	}
	return out
}

// tellHealth logs when the node ceases to be as wanted, and when it is so again.
func (l *Loop) tellHealth(problems []string) {
	l.mu.Lock()
	was, first, valid := len(l.status.Problems) == 0, l.status.Passes == 0, l.status.Spec.Invalid == ""
	l.mu.Unlock()
	switch is := len(problems) == 0; {
	case is && (!was || first) && valid:
		l.log.Info("healthy")
	case is && (!was || first):
		l.log.Info("as the last good spec wants it")
	case !is && (was || first):
		l.log.Warn("not healthy", "problems", len(problems), "first", problems[0])
	}
}

// maxProblems bounds the problems of a status, which is read by people and by whatever asks
// for the health.
const maxProblems = 100

// bounded is problems, of which only the first are told when there are many.
func bounded(problems []string) []string {
	if len(problems) <= maxProblems {
		return problems
	}
	return append(slices.Clone(problems[:maxProblems]), fmt.Sprintf("and %d more", len(problems)-maxProblems))
}

// maxTold is how many lines of a kind a pass logs; the others are for debugging.
const maxTold = 20

func told(lines int, level slog.Level) slog.Level {
	if lines > maxTold {
		return slog.LevelDebug
	}
	return level
}

// settingName is a parameter's attribute, with the thread or connection that it is of.
func settingName(id param.ID, index string) string {
	row, _ := param.Lookup(id)
	if index == "" {
		return row.Attr
	}
	return row.Attr + "[" + index + "]"
}

func describe(r ruling) string {
	return fmt.Sprintf("%s %s: %s -> %s", plan.Address(r.Workload, r.Target), settingName(r.ID, r.Index), param.Format(r.ID, r.Old), param.Format(r.ID, r.New))
}

// netdevs are those of a PCI function.
func (l *Loop) netdevs(function string) []string {
	if l.facts == nil {
		return nil
	}
	var out []string
	for _, n := range l.facts.Netdevs {
		if n.PCI != nil && strings.EqualFold(*n.PCI, function) {
			out = append(out, n.Name)
		}
	}
	return out
}

// logNotInForce tells of failures once in the time in which something is wrong: each of the
// tries that follow may say the same.
func (l *Loop) logNotInForce(failures []string) {
	for _, text := range failures {
		level := slog.LevelError
		if slices.Contains(l.notInForce, text) {
			level = slog.LevelDebug
		} else if len(l.notInForce) < maxNotes {
			l.notInForce = append(l.notInForce, text)
		}
		l.log.Log(context.Background(), level, "not in force", "error", text)
	}
}
