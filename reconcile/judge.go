package reconcile

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// A Verdict is what is decided about one planned change.
type Verdict string

// The verdicts.
const (
	Heal      Verdict = "heal"       // now
	Wait      Verdict = "wait"       // later: it was written, or refused, a moment ago
	Contested Verdict = "contested"  // somebody rewrites it again and again: it is left to them
	NoConsent Verdict = "no consent" // it would take a link down, and may not
	Once      Verdict = "once"       // a switch that was tried in this generation already
	Rejected  Verdict = "rejected"   // the generation was rolled back
)

// A cause is who, or what, is behind a change, as far as that can be known.
type cause struct {
	writer string
	known  bool // the kernel named the process
	kernel bool // the kernel's own doing: a driver was bound, a link came up
	when   time.Time
}

// A ruling is a verdict with its reasons.
type ruling struct {
	plan.Change
	verdict  Verdict
	reason   string
	until    time.Time // of Wait; zero for the others
	rewrites int       // by others, within the window
	cause    cause
	fresh    bool // a rewrite that no earlier pass has seen
	news     bool // the verdict is another than the pass before
}

// Bounds of patience.
const (
	firstBackoff = 250 * time.Millisecond // between the first two heals; it doubles with each
	lastBackoff  = 10 * time.Second
	firstRetry   = time.Second // after a refused write; it doubles with each
	lastRetry    = 5 * time.Minute
	deferredFor  = 15 * time.Second // until a switch that a peer put off is asked for again
	frozenFor    = time.Minute      // until workloads that could not be judged are looked at again, without an event
	quietTime    = time.Hour        // without a rewrite, after which a contested setting is tried again
	kernelFactor = 4                // the kernel may reset a setting that much more often
	maxRecords   = 1 << 17
)

// A subject is a setting by what it is called, whatever incarnation has it now: a driver
// that is bound again and again must not look like a new one each time.
type subject struct {
	kind  param.Kind
	name  string
	id    param.ID
	index string
}

func subjectOf(c plan.Change) subject { return subject{c.Target.Kind, c.Target.Name, c.ID, c.Index} }

// A record is what a judge remembers of a setting.
type record struct {
	wrote     param.Value // last, by us
	rewrites  []time.Time // by processes, within the window
	resets    []time.Time // by the kernel, within the window
	writer    string
	next      time.Time // not before
	why       string    // of next
	healed    time.Time // last
	refusals  int       // writes in a row that did not work
	refused   time.Time // the last of them
	contested time.Time // since; zero: it is not
	count     int       // of rewrites when it became contested
	breached  bool      // a guard undid it
	last      Verdict
	pending   bool      // the rewrite was counted, and is not healed yet
	tried     uint64    // generation in which a connection's switch was tried, 0 for none
	seen      time.Time // in a plan
}

// A judge decides which changes of a plan are made. It knows the clock only by what it is
// told, and belongs to one goroutine.
type judge struct {
	after  int           // rewrites within the window that make a setting contested
	window time.Duration // see spec.Reconcile
	// bounce says why the change may not take a link down, "" when it may.
	bounce  func(plan.Change) string
	records map[subject]*record
	// undone says by workload which guards its last rollback was about; "" when that is not
	// known, or it was about none.
	undone map[string]string
	// anew are workloads of which what was rolled back is made again, since somebody asked.
	anew map[string]bool
}

func newJudge(after int, window time.Duration, bounce func(plan.Change) string) *judge {
	return &judge{after: after, window: window, bounce: bounce, records: map[subject]*record{}, undone: map[string]string{}, anew: map[string]bool{}}
}

// forget starts anew, such as after a change of the spec. That a rewrite was counted and is
// not healed yet is remembered: it is no second one.
func (j *judge) forget() {
	for s, r := range j.records {
		if r.pending {
			*r = record{wrote: r.wrote, writer: r.writer, pending: true, seen: r.seen}
		} else {
			delete(j.records, s)
		}
	}
}

// righted takes note of rewrites that whoever made them, or the kernel, has undone: what is
// in no plan of now although its target is there reads right, and what is rewritten next is
// another rewrite.
func (j *judge) righted(now time.Time, there func(param.Kind, string) bool) {
	for s, r := range j.records {
		if r.pending && r.seen.Before(now) && there(s.kind, s.name) {
			r.pending, r.refusals = false, 0
		}
	}
}

// rule decides about every change of p. before is the state that p was made of, and find
// tells who is behind a change.
func (j *judge) rule(now time.Time, p *plan.Plan, before *state.Document, find func(plan.Change) cause) []ruling {
	j.prune(now)
	out := make([]ruling, 0, len(p.Changes))
	for _, c := range p.Changes {
		r := j.records[subjectOf(c)]
		if r == nil {
			r = &record{}
			j.records[subjectOf(c)] = r
		}
		r.seen = now
		one := j.one(now, c, r, p, before, find)
		one.news, r.last = one.verdict != r.last, one.verdict
		out = append(out, one)
	}
	return out
}

func (j *judge) one(now time.Time, c plan.Change, r *record, p *plan.Plan, before *state.Document, find func(plan.Change) cause) ruling {
	out := ruling{Change: c, verdict: Heal}
	if c.Target.Kind == param.Hint {
		return j.hint(now, out, r, p, before)
	}
	if c.Disrupt == param.LinkBounce {
		if why := j.bounce(c); why != "" {
			out.verdict, out.reason = NoConsent, why
			return out
		}
	}
	// A setting that was written before and is not as it was left was rewritten, also when
	// it belongs to another incarnation now.
	if !r.contested.IsZero() && now.Sub(r.contested) > quietTime {
		*r = record{wrote: r.wrote, writer: r.writer, seen: now} // another chance
	}
	again := c.Drift || c.Action != param.Restore && r.wrote == c.New
	if again && r.pending && r.refusals > 0 {
		// Somebody who writes faster than the kernel shows what we wrote rewrites, too.
		if by := find(c); by.known && by.when.After(r.refused) {
			r.pending = false
		}
	}
	if again && !r.pending && r.contested.IsZero() {
		out.fresh, r.pending = true, true
		out.cause = find(c)
		if out.cause.when.Before(r.healed) {
			out.cause.when = now // the last thing heard of led to the heal before this rewrite
		}
		r.writer = out.cause.writer
		if out.cause.kernel {
			r.resets = append(r.resets, now)
		} else {
			r.rewrites = append(r.rewrites, now)
		}
		if n := j.count(r); n > 1 {
			j.postpone(r, r.healed, min(firstBackoff<<min(n-2, 20), lastBackoff), fmt.Sprintf("rewritten %d times within %v", n, j.window))
		}
	}
	out.rewrites = j.count(r)
	if out.cause.writer == "" {
		out.cause.writer = r.writer
	}
	switch {
	case r.breached, j.rejected(c, p, before):
		out.verdict, out.reason = Rejected, cmp.Or(j.undone[c.Workload], "a guard was breached with it")+"; "+tryAgain
	case r.contested.IsZero() && (len(r.rewrites) >= j.after || len(r.resets) >= kernelFactor*j.after):
		r.contested, r.count = now, out.rewrites
		fallthrough
	case !r.contested.IsZero():
		out.verdict, out.rewrites = Contested, r.count
		out.reason = fmt.Sprintf("rewritten %d times within %v, last by %s", r.count, j.window, r.writer)
	case now.Before(r.next):
		out.verdict, out.reason, out.until = Wait, r.why, r.next
	}
	return out
}

// rejected reports whether c was rolled back, by whomever, and nobody asked for it since.
func (j *judge) rejected(c plan.Change, p *plan.Plan, before *state.Document) bool {
	return !j.anew[c.Workload] && p.Rejected(c, before)
}

// ask makes what was rolled back be tried again.
func (j *judge) ask(doc *state.Document) {
	for w := range doc.Rejections {
		j.anew[w] = true
	}
}

// count is how often the setting was rewritten, by whomever.
func (j *judge) count(r *record) int { return len(r.rewrites) + len(r.resets) }

func (j *judge) postpone(r *record, from time.Time, by time.Duration, why string) {
	if next := from.Add(by); next.After(r.next) {
		r.next, r.why = next, why
	}
}

// hint decides about what the transport is told. A connection is asked to switch once in
// a generation, whatever came of it, and not at all to one that was rolled back.
func (j *judge) hint(now time.Time, out ruling, r *record, p *plan.Plan, before *state.Document) ruling {
	c := out.Change
	switch {
	case r.breached, j.rejected(c, p, before):
		out.verdict = Rejected
		out.reason = cmp.Or(j.undone[c.Workload], fmt.Sprintf("its last generation was rolled back (now %d)", before.Generations[c.Workload].Counter)) + "; " + tryAgain
	case c.Index != "" && r.tried != 0 && r.tried >= p.Orders[c.Target.Key()].Generation:
		out.verdict = Once
		out.reason = fmt.Sprintf("its connection was asked to switch in generation %d already", r.tried)
	case now.Before(r.next):
		out.verdict, out.reason, out.until = Wait, r.why, r.next
	}
	return out
}

// An outcome is what became of a change that was made.
type outcome uint8

const (
	done       outcome = iota
	deferred           // decided, but put off by a peer or a cooldown
	skipped            // its target was gone, or could not be written at all
	refused            // it did not work
	rolledBack         // it worked, and was undone since another did not
	breached           // it worked, and was undone since a guard was breached
)

// note takes down what became of a change of p.
func (j *judge) note(now time.Time, c plan.Change, p *plan.Plan, o outcome) {
	r := j.records[subjectOf(c)]
	if r == nil {
		return
	}
	if c.Target.Kind == param.Hint && c.Index != "" && o != deferred {
		r.tried = p.Orders[c.Target.Key()].Generation
	}
	switch o {
	case done:
		r.wrote, r.pending, r.refusals, r.healed = c.New, false, 0, now
	case deferred:
		j.postpone(r, now, deferredFor, "put off by a peer or a cooldown")
	case skipped:
		j.retry(r, now, "it was not there when it was to be written")
	case refused:
		j.retry(r, now, "its last write was refused")
	case breached:
		r.breached = true
		delete(j.anew, c.Workload)
	}
}

// retry postpones what did not work, longer each time.
func (j *judge) retry(r *record, now time.Time, why string) {
	j.postpone(r, now, min(firstRetry<<min(r.refusals, 20), lastRetry), why)
	r.refusals++
	r.refused = now
}

// due is when the first of the changes that did not work may be tried again, zero for none.
func (j *judge) due(now time.Time, cs []plan.Change) (at time.Time) {
	for _, c := range cs {
		if r := j.records[subjectOf(c)]; r != nil && r.next.After(now) && (at.IsZero() || r.next.Before(at)) {
			at = r.next
		}
	}
	return at
}

// prune forgets what lies before the window, and settings that have been right for long.
func (j *judge) prune(now time.Time) {
	for s, r := range j.records {
		for _, list := range []*[]time.Time{&r.rewrites, &r.resets} {
			for len(*list) > 0 && now.Sub((*list)[0]) > j.window {
				*list = (*list)[1:]
			}
		}
		idle := now.Sub(r.seen)
		if idle > max(quietTime, j.window) || len(j.records) > maxRecords {
			delete(j.records, s)
		}
	}
}
