package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// A step is one pass of a judge: who is behind the change, or "" for no change in the
// plan, and what is ruled. What is healed is reported with the step's outcome.
type step struct {
	after   time.Duration // since the step before
	by      string        // "app", "kernel", "spec" (nobody: it was never written)
	want    Verdict
	outcome outcome
}

func vector(drift bool, incarnation string) plan.Change {
	return plan.Change{Drift: drift, Change: param.Change{Workload: "w", ID: param.IRQCPUs, Action: param.Update, Disrupt: param.None,
		Target: param.Target{Kind: param.IRQ, Name: "x/0", Incarnation: incarnation}, Old: param.Text("7"), New: param.Text("1")}}
}

func TestJudge(t *testing.T) {
	second, minute := time.Second, time.Minute
	repeat := func(n int, s step) []step {
		out := make([]step, n)
		for i := range out {
			out[i] = s
		}
		return out
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"what the spec wants is made at once", []step{{0, "spec", Heal, done}, {second, "", "", done}}},
		{"one rewrite is healed at once", []step{{0, "spec", Heal, done}, {minute, "app", Heal, done}}},
		{"the second waits, and is then healed without being counted again", []step{
			{0, "app", Heal, done}, {second / 10, "app", Wait, done}, {second / 10, "app", Wait, done}, {second, "app", Heal, done}}},
		{"the fifth within the window is contested, and stays so", append(repeat(4, step{10 * second, "app", Heal, done}),
			step{10 * second, "app", Contested, done}, step{minute, "app", Contested, done}, step{30 * minute, "app", Contested, done})},
		{"after a quiet hour a contested setting is tried again", append(repeat(4, step{10 * second, "app", Heal, done}),
			step{10 * second, "app", Contested, done}, step{61 * minute, "app", Heal, done})},
		{"also where it is looked at all the time", append(repeat(4, step{10 * second, "app", Heal, done}), append(
			append([]step{{10 * second, "app", Contested, done}}, repeat(3, step{20 * minute, "app", Contested, done})...),
			step{20 * minute, "app", Heal, done}, step{minute, "app", Heal, done})...)},
		{"rewrites further apart than the window are healed for ever", repeat(20, step{11 * minute, "app", Heal, done})},
		{"the kernel may reset four times as often", append(append(repeat(19, step{25 * second, "kernel", Heal, done}),
			step{25 * second, "kernel", Contested, done}), step{25 * second, "kernel", Contested, done})},
		{"resets by a driver that is bound again and again count although each is another incarnation",
			append([]step{{0, "spec", Heal, done}}, append(repeat(19, step{25 * second, "rebound", Heal, done}), step{25 * second, "rebound", Contested, done})...)},
		{"a refused write is tried again later and later", []step{
			{0, "spec", Heal, refused}, {second / 2, "spec", Wait, done}, {second, "spec", Heal, refused}, {second, "spec", Wait, done},
			{2 * second, "spec", Heal, refused}, {3 * second, "spec", Wait, done}, {2 * second, "spec", Heal, done}, {second, "", "", done}}},
		{"but at least every five minutes", append(repeat(12, step{6 * minute, "spec", Heal, refused}), step{4 * minute, "spec", Wait, refused}, step{2 * minute, "spec", Heal, refused})},
		{"what was undone since another failed is tried again at once", []step{{0, "spec", Heal, rolledBack}, {second / 10, "spec", Heal, done}}},
		{"what was not there when it was to be written is tried again, and is no second rewrite", []step{
			{0, "spec", Heal, done}, {minute, "app", Heal, skipped}, {second / 2, "app", Wait, done}, {second, "app", Heal, done}, {minute, "app", Heal, done}}},
		{"what a guard undid is not tried again", []step{{0, "spec", Heal, breached}, {minute, "spec", Rejected, done}, {30 * minute, "spec", Rejected, done}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newJudge(5, 10*time.Minute, nil)
			now := time.Unix(1_000_000, 0)
			for i, s := range test.steps {
				now = now.Add(s.after)
				p, before := &plan.Plan{}, &state.Document{}
				if s.by != "" {
					incarnation := "a"
					if s.by == "rebound" {
						incarnation = fmt.Sprint(i)
					}
					p.Changes = []plan.Change{vector(s.by == "app" || s.by == "kernel", incarnation)}
				}
				rulings := j.rule(now, p, before, func(plan.Change) cause {
					return cause{writer: s.by, kernel: s.by != "app", when: now}
				})
				if len(rulings) != len(p.Changes) {
					t.Fatalf("step %d: %d rulings of %d changes", i, len(rulings), len(p.Changes))
				}
				for _, r := range rulings {
					if r.verdict != s.want {
						t.Fatalf("step %d: %s (%s), want %s", i, r.verdict, r.reason, s.want)
					}
					if r.verdict != Heal && r.reason == "" {
						t.Errorf("step %d: no reason for %s", i, r.verdict)
					}
					if (r.verdict == Wait) != r.until.After(now) {
						t.Errorf("step %d: %s until %v", i, r.verdict, r.until)
					}
					if r.verdict == Heal {
						j.note(now, r.Change, p, s.outcome)
					}
				}
			}
		})
	}
}

// TestJudgeDue: what did not work is due when its patience ends.
func TestJudgeDue(t *testing.T) {
	j := newJudge(5, time.Minute, nil)
	now := time.Unix(1_000_000, 0)
	p := &plan.Plan{Changes: []plan.Change{vector(false, "a")}}
	j.rule(now, p, &state.Document{}, func(plan.Change) cause { return cause{} })
	if at := j.due(now, p.Changes); !at.IsZero() {
		t.Errorf("due at %v before anything failed", at)
	}
	j.note(now, p.Changes[0], p, refused)
	if at := j.due(now, p.Changes); !at.Equal(now.Add(firstRetry)) {
		t.Errorf("after a refusal at %v due at %v", now, at)
	}
	j.note(now, p.Changes[0], p, done)
	if at := j.due(now.Add(firstRetry), p.Changes); !at.IsZero() {
		t.Errorf("due at %v after it worked", at)
	}
}

// TestJudgeForgets: after a change of the spec everything is tried anew.
func TestJudgeForgets(t *testing.T) {
	j := newJudge(1, time.Minute, nil)
	p := &plan.Plan{Changes: []plan.Change{vector(true, "a")}}
	rule := func() Verdict {
		return j.rule(time.Unix(1, 0), p, &state.Document{}, func(plan.Change) cause { return cause{writer: "app"} })[0].verdict
	}
	if v := rule(); v != Contested {
		t.Fatalf("%s, want contested at the first rewrite", v)
	}
	j.forget()
	j.after = 2
	if v := rule(); v != Heal {
		t.Errorf("after a change of the spec: %s", v)
	}
}

// TestJudgeListsOnce: one rewrite of a setting is a fresh one in one ruling alone, whatever
// happens until it is healed, and each further rewrite in one of its own.
func TestJudgeListsOnce(t *testing.T) {
	drift := func() *plan.Plan { return &plan.Plan{Changes: []plan.Change{vector(true, "a")}} }
	heal := func(o outcome) func(*judge, time.Time) {
		return func(j *judge, now time.Time) { p := drift(); j.note(now, p.Changes[0], p, o) }
	}
	forget := func(j *judge, _ time.Time) { j.forget() }
	right := func(there bool) func(*judge, time.Time) {
		return func(j *judge, now time.Time) {
			j.rule(now, &plan.Plan{}, &state.Document{}, nil)
			j.righted(now, func(k param.Kind, name string) bool { return there && k == param.IRQ && name == "x/0" })
		}
	}
	for _, test := range []struct {
		name string
		then []func(*judge, time.Time) // after a rewrite was found, a second apart; then it is found changed again
		want bool                      // that is another rewrite
	}{
		{"nothing was done", nil, false},
		{"healed", []func(*judge, time.Time){heal(done)}, true},
		{"refused", []func(*judge, time.Time){heal(refused)}, false},
		{"its target was gone", []func(*judge, time.Time){heal(skipped)}, false},
		{"rolled back", []func(*judge, time.Time){heal(rolledBack)}, false},
		{"the spec was read again", []func(*judge, time.Time){forget}, false},
		{"healed, and the spec was read again", []func(*judge, time.Time){heal(done), forget}, true},
		{"somebody else has put it right", []func(*judge, time.Time){right(true)}, true},
		{"refused, and right a moment later", []func(*judge, time.Time){heal(refused), right(true)}, true},
		{"it cannot be seen meanwhile", []func(*judge, time.Time){right(false)}, false},
	} {
		j := newJudge(100, time.Hour, nil)
		now := time.Unix(1_000_000, 0)
		heard := now // the one event
		find := func(plan.Change) cause { return cause{writer: "app", when: heard} }
		first := j.rule(now, drift(), &state.Document{}, find)[0]
		if !first.fresh || !first.cause.when.Equal(heard) {
			t.Fatalf("%s: first %+v", test.name, first)
		}
		for _, f := range test.then {
			now = now.Add(time.Second)
			f(j, now)
		}
		now = now.Add(time.Second)
		second := j.rule(now, drift(), &state.Document{}, find)[0]
		if second.fresh != test.want {
			t.Errorf("%s: another rewrite %v, want %v", test.name, second.fresh, test.want)
		}
		if j.records[subjectOf(second.Change)].healed.After(heard) && second.fresh && !second.cause.when.Equal(now) {
			t.Errorf("%s: dated %v, before the heal: want when it was found", test.name, second.cause.when)
		}
	}
}

// TestJudgeSwitches: a connection is asked once in a generation, whatever came of it.
func TestJudgeSwitches(t *testing.T) {
	target := param.Target{Kind: param.Hint, Name: "4711", Incarnation: "s1"}
	change := plan.Change{Change: param.Change{Workload: "w", Target: target, ID: param.HintSize, Index: "1", Action: param.Replace, Disrupt: param.Pause, Old: param.Int(0), New: param.Int(8192)}}
	for _, test := range []struct {
		name     string
		outcomes []outcome
		gens     []uint64 // generation of each pass
		want     []Verdict
	}{
		{"switched, and below again although nothing changed: the peer flaps", []outcome{done, done}, []uint64{1, 1}, []Verdict{Heal, Once}},
		{"refused", []outcome{refused, refused, refused}, []uint64{1, 1, 1}, []Verdict{Heal, Once, Once}},
		{"put off, and then done", []outcome{deferred, deferred, done}, []uint64{1, 1, 1}, []Verdict{Heal, Wait, Heal}},
		{"a higher generation is another", []outcome{done, done, done}, []uint64{1, 2, 2}, []Verdict{Heal, Heal, Once}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newJudge(5, 10*time.Minute, nil)
			now := time.Unix(1_000_000, 0)
			for i, gen := range test.gens {
				p := &plan.Plan{Changes: []plan.Change{change}, Generations: map[string]state.Generation{"w": {Counter: gen, Follows: "d"}},
					Orders: map[param.Target]param.Order{target.Key(): {Generation: gen}}}
				r := j.rule(now, p, &state.Document{}, func(plan.Change) cause { return cause{} })[0]
				if r.verdict != test.want[i] {
					t.Fatalf("pass %d: %s (%s), want %s", i, r.verdict, r.reason, test.want[i])
				}
				if r.verdict == Heal {
					j.note(now, change, p, test.outcomes[i])
				}
				if now = now.Add(time.Second / 2); r.verdict == Wait {
					now = r.until
				}
			}
		})
	}
	// Refused for good: not even when its time has come.
	j := newJudge(5, 10*time.Minute, nil)
	p := &plan.Plan{Changes: []plan.Change{change}, Orders: map[param.Target]param.Order{target.Key(): {Generation: 3}}}
	none := func(plan.Change) cause { return cause{} }
	now := time.Unix(1_000_000, 0)
	j.rule(now, p, &state.Document{}, none)
	j.note(now, change, p, refused)
	if r := j.rule(now.Add(time.Minute), p, &state.Document{}, none)[0]; r.verdict != Once {
		t.Errorf("a minute after a refusal: %s", r.verdict)
	}
}

// TestJudgeRejected: what was rolled back is not tried again until the spec says something
// else of the workload, or somebody asks.
func TestJudgeRejected(t *testing.T) {
	hint := plan.Change{Change: param.Change{Workload: "w", Target: param.Target{Kind: param.Hint, Name: "published/w"}, ID: param.HintSize, Action: param.Update, Old: param.Absent(), New: param.Int(1)}}
	restore := hint
	restore.Action = param.Restore
	irq := vector(false, "a")
	other := irq
	other.Workload = "v"
	none := func(plan.Change) cause { return cause{} }
	kinds := func(k ...param.Kind) *state.Document {
		return &state.Document{Rejections: map[string]state.Rejection{irq.Workload: {Spec: "d", Kinds: k}}}
	}
	for _, test := range []struct {
		name   string
		change plan.Change
		before *state.Document
		digest string
		asked  bool
		want   Verdict
	}{
		{"the same again", hint, kinds(param.Hint, param.IRQ), "d", false, Rejected},
		{"base tuning", irq, kinds(param.Hint, param.IRQ), "d", false, Rejected},
		{"another spec", hint, kinds(param.Hint), "e", false, Heal},
		{"another kind", irq, kinds(param.Hint), "d", false, Heal},
		{"another workload", other, kinds(param.IRQ), "d", false, Heal},
		{"its restoring", restore, kinds(param.Hint), "d", false, Heal},
		{"somebody asked", irq, kinds(param.IRQ), "d", true, Heal},
		{"nothing was", hint, &state.Document{}, "d", false, Heal},
	} {
		p := &plan.Plan{Changes: []plan.Change{test.change}, Digests: map[string]string{irq.Workload: test.digest, "v": test.digest}}
		j := newJudge(5, time.Minute, nil)
		if test.asked {
			j.ask(test.before)
		}
		if r := j.rule(time.Unix(1, 0), p, test.before, none)[0]; r.verdict != test.want {
			t.Errorf("%s: %s (%s), want %s", test.name, r.verdict, r.reason, test.want)
		}
		if test.asked {
			j.note(time.Unix(2, 0), test.change, p, breached)
			j.forget()
			if r := j.rule(time.Unix(3, 0), p, test.before, none)[0]; r.verdict != Rejected {
				t.Errorf("%s, and it was breached again: %s (%s)", test.name, r.verdict, r.reason)
			}
		}
	}
}

// TestJudgeLinks: a link is taken down only where that was found harmless.
func TestJudgeLinks(t *testing.T) {
	change := vector(false, "a")
	change.Target.Kind, change.ID, change.Disrupt = param.Coalescing, param.RXUsecs, param.LinkBounce
	p := &plan.Plan{Changes: []plan.Change{change}}
	why := ""
	j := newJudge(5, time.Minute, func(plan.Change) string { return why })
	for _, test := range []struct {
		why  string
		want Verdict
	}{{"the default route is through it", NoConsent}, {"", Heal}} {
		why = test.why
		r := j.rule(time.Unix(1, 0), p, &state.Document{}, func(plan.Change) cause { return cause{} })[0]
		if r.verdict != test.want || !strings.Contains(r.reason, test.why) {
			t.Errorf("%q: %s (%s), want %s", test.why, r.verdict, r.reason, test.want)
		}
	}
}

// TestJudgeIsBounded: a machine of a million settings that all come and go.
func TestJudgeIsBounded(t *testing.T) {
	j := newJudge(5, time.Minute, nil)
	now := time.Unix(1_000_000, 0)
	for round := range 3 {
		p := &plan.Plan{}
		for i := range maxRecords {
			c := vector(true, "a")
			c.Index = fmt.Sprint(round*maxRecords + i)
			p.Changes = append(p.Changes, c)
		}
		j.rule(now, p, &state.Document{}, func(plan.Change) cause { return cause{} })
		now = now.Add(time.Second)
	}
	j.prune(now)
	if len(j.records) > maxRecords {
		t.Errorf("%d records", len(j.records))
	}
}

// TestJudgeOutwritten: who always writes before a heal is read back is contested, not only
// refused; a write that the kernel refuses is not.
func TestJudgeOutwritten(t *testing.T) {
	for _, known := range []bool{true, false} {
		j := newJudge(4, 10*time.Minute, nil)
		p := &plan.Plan{Changes: []plan.Change{vector(true, "a")}}
		now, last := time.Unix(1_000_000, 0), Verdict("")
		for range 40 {
			now = now.Add(time.Second)
			r := j.rule(now, p, &state.Document{}, func(plan.Change) cause { return cause{writer: "app", known: known, when: now} })[0]
			if last = r.verdict; last == Heal {
				j.note(now, r.Change, p, refused)
			}
		}
		if (last == Contested) != known {
			t.Errorf("writer known %v: %s", known, last)
		}
	}
}

// TestChoose: what is put back and what is new are not made in one pass.
func TestChoose(t *testing.T) {
	one := func(index string, v Verdict, drift bool) ruling {
		c := vector(drift, "a")
		c.Index = index
		return ruling{Change: c, verdict: v}
	}
	hint := func(index string, process string, drift bool) ruling {
		r := one(index, Heal, drift)
		r.Target = param.Target{Kind: param.Hint, Name: process}
		return r
	}
	for _, test := range []struct {
		name        string
		rulings     []ruling
		chosen      string
		drift, rest bool
	}{
		{"nothing", nil, "", false, false},
		{"new ones", []ruling{one("a", Heal, false), one("b", Heal, false), one("c", Wait, false)}, "ab", false, false},
		{"drift", []ruling{one("a", Heal, true), one("b", Contested, true), one("c", Heal, true)}, "ac", true, false},
		{"both", []ruling{one("a", Heal, false), one("b", Heal, true)}, "b", true, true},
		{"both, of one process", []ruling{hint("a", "7", false), hint("b", "7", true)}, "ab", false, false},
		{"both, of two processes", []ruling{hint("a", "7", false), hint("b", "8", true), hint("c", "7", true)}, "b", true, true},
		{"drift that waits holds up nothing", []ruling{one("a", Heal, false), one("b", Wait, true)}, "a", false, false},
	} {
		chosen, drift, rest := choose(test.rulings)
		names := ""
		for _, r := range test.rulings {
			if chosen[subjectOf(r.Change)] {
				names += r.Index
			}
		}
		if names != test.chosen || drift != test.drift || rest != test.rest {
			t.Errorf("%s: %q, drift %v, rest %v; want %q, %v, %v", test.name, names, drift, rest, test.chosen, test.drift, test.rest)
		}
	}
}
