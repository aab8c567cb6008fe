package reconcile

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/reconcile/watch"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

func newLoop(t *testing.T, c Config) *Loop {
	t.Helper()
	w, err := watch.New(t.Context(), watch.Config{RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	c.Watcher = w
	return New(c)
}

// TestRelevant: starts of processes that belong to no workload lead to no look at the
// node, and keep no other reason from leading to one.
func TestRelevant(t *testing.T) {
	started := func(l *Loop) { l.hear(watch.Event{Source: watch.Processes, What: "exec", PID: 4711, When: time.Now()}) }
	heard := func(s watch.Source, what string) func(*Loop) {
		return func(l *Loop) { l.hear(watch.Event{Source: s, What: what, When: time.Now()}) }
	}
	due := func(why Trigger) func(*Loop) { return func(l *Loop) { l.schedule(why, 0) } }
	for _, test := range []struct {
		name  string
		match bool
		steps []func(*Loop)
		want  bool
		why   Trigger
	}{
		{"a start", false, []func(*Loop){started}, false, OnEvent},
		{"a start of a workload's", true, []func(*Loop){started}, true, OnEvent},
		{"a start, then a signal", false, []func(*Loop){started, due(OnSignal)}, true, OnSignal},
		{"a signal, then a start", false, []func(*Loop){due(OnSignal), started}, true, OnSignal},
		{"a start, then what was to wait", false, []func(*Loop){started, due(OnTimer)}, true, OnEvent},
		{"what was to wait, then a start", false, []func(*Loop){due(OnTimer), started}, true, OnEvent},
		{"what is to wait, and a start before its time", false, []func(*Loop){func(l *Loop) { l.schedule(OnTimer, time.Hour) }, started}, false, OnEvent},
		{"what was to wait", false, []func(*Loop){due(OnTimer)}, true, OnTimer},
		{"a start, then a sweep", false, []func(*Loop){started, due(OnSweep)}, true, OnSweep},
		{"a start and a write", false, []func(*Loop){started, heard(watch.Writes, "write")}, true, OnEvent},
		{"the spec and a start", false, []func(*Loop){heard(watch.Spec, "change"), started}, true, OnSpec},
		{"starts that were lost", false, []func(*Loop){heard(watch.Processes, "lost")}, true, OnEvent},
		{"more starts than are remembered", false, []func(*Loop){func(l *Loop) {
			for pid := range maxPIDs + 1 {
				l.hear(watch.Event{Source: watch.Processes, What: "exec", PID: pid + 1, When: time.Now()})
			}
		}}, true, OnEvent},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLoop(t, Config{Matches: func(*spec.Resolved, []int) bool { return test.match }})
			l.resolved = &spec.Resolved{}
			for _, s := range test.steps {
				s(l)
			}
			l.ripen(time.Now().Add(time.Minute))
			if got := l.relevant(); got != test.want || l.why != test.why {
				t.Errorf("relevant %v because of %q, want %v, %q", got, l.why, test.want, test.why)
			}
			if l.why != OnTimer && l.next().IsZero() {
				t.Error("nothing is due")
			}
		})
	}
}

// TestHeed: new processes are heard while a workload is about some, and who was started
// before that is looked for.
func TestHeed(t *testing.T) {
	l := newLoop(t, Config{})
	matched := spec.Workload{Match: param.Match{Comm: "train"}}
	named := spec.Workload{Wants: []spec.Want{{Kind: param.IRQ}, {Kind: param.Pinning}}}
	device := spec.Workload{Wants: []spec.Want{{Kind: param.IRQ}, {Kind: param.Frequency}}}
	for _, step := range []struct {
		workloads []spec.Workload
		deaf, due bool
	}{
		{[]spec.Workload{device, matched}, false, false},
		{[]spec.Workload{device}, true, false},
		{nil, true, false},
		{[]spec.Workload{named}, false, true},
		{[]spec.Workload{device, named}, false, false},
	} {
		l.resolved, l.due = &spec.Resolved{Workloads: step.workloads}, time.Time{}
		l.heed()
		if l.deaf != step.deaf || l.due.IsZero() == step.due {
			t.Errorf("%+v: deaf %v, another look %v; want %v, %v", step.workloads, l.deaf, !l.due.IsZero(), step.deaf, step.due)
		}
	}
}

// TestFactsAreForgotten: what the kernel has changed is found again.
func TestFactsAreForgotten(t *testing.T) {
	for _, test := range []struct {
		source watch.Source
		what   string
		kept   bool
	}{
		{watch.Writes, "write", true}, {watch.Processes, "exec", true}, {watch.Transports, "add", true}, {watch.Ethtool, "change", true},
		{watch.Kernel, "online", false}, {watch.Links, "up", false}, {watch.Writes, "lost", false}, {watch.Processes, "lost", false},
	} {
		l := newLoop(t, Config{})
		l.facts = &node.Facts{}
		l.hear(watch.Event{Source: test.source, What: test.what, When: time.Now()})
		if (l.facts != nil) != test.kept {
			t.Errorf("%s %s: facts kept %v, want %v", test.source, test.what, l.facts != nil, test.kept)
		}
	}
}

// TestWhole: the less a node's whole looks find, the more seldom they come, to a bound.
func TestWhole(t *testing.T) {
	l := newLoop(t, Config{})
	for i, step := range []struct {
		pass Pass
		want int
	}{
		{Pass{Trigger: AtStart}, wholeFirst},
		{Pass{Trigger: OnEvent}, wholeFirst},
		{Pass{Trigger: OnSweep}, 2 * wholeFirst},
		{Pass{Trigger: OnSweep}, wholeLast},
		{Pass{Trigger: OnSweep}, wholeLast},
		{Pass{Trigger: OnEvent}, wholeLast},
		{Pass{Trigger: OnEvent, Drifts: make([]Drift, 1)}, wholeFirst},
		{Pass{Trigger: OnSweep}, 2 * wholeFirst},
		{Pass{Trigger: OnSweep, Changed: 1}, wholeFirst},
		{Pass{Trigger: OnSweep}, 2 * wholeFirst},
		{Pass{Trigger: OnSpec}, wholeFirst},
		{Pass{Trigger: OnSweep}, 2 * wholeFirst},
		{Pass{Trigger: OnSweep, Err: "the state cannot be read"}, wholeFirst},
	} {
		if l.learn(&step.pass); l.whole != step.want {
			t.Errorf("step %d: one of %d sweeps, want of %d", i, l.whole, step.want)
		}
	}
}

// TestGap: passes come no faster than a long one allows, however many events there are.
func TestGap(t *testing.T) {
	for _, test := range []struct{ took, want time.Duration }{
		{0, minGap}, {10 * time.Millisecond, minGap}, {300 * time.Millisecond, 300 * time.Millisecond}, {time.Hour, maxGap},
	} {
		l := newLoop(t, Config{})
		l.lastEnd, l.lastTook = time.Now(), test.took
		l.schedule(OnEvent, 0)
		if got := l.due.Sub(l.lastEnd); got != test.want {
			t.Errorf("after a pass of %v: %v, want %v", test.took, got, test.want)
		}
		l.schedule(OnSweep, time.Hour)
		if got := l.due.Sub(l.lastEnd); got != test.want {
			t.Errorf("a later pass moves an earlier one to %v", got)
		}
	}
}

// TestInvalidAtStart: what an earlier run has set is kept, and the status does not say that
// a spec is.
func TestInvalidAtStart(t *testing.T) {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	load := func() (*spec.Spec, hcl.Diagnostics) {
		return &spec.Spec{}, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Torn", Detail: "it ends too early"}}
	}
	l := newLoop(t, Config{Node: n, BootID: "b", Load: load})
	if err := l.begin(t.Context()); err == nil {
		t.Error("it begins with neither a spec nor a state")
	}
	doc := &state.Document{}
	doc.Put(state.Entry{BootID: "b", Target: param.Target{Kind: param.IRQ, Name: "0000:01:00.0/0"}, ID: param.IRQCPUs, Original: param.Text("0"), Written: param.Text("1")})
	if err := doc.Save(n.StateDir()); err != nil {
		t.Fatal(err)
	}
	if err := l.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := l.Status()
	if want := []string{"the spec is invalid: Torn: it ends too early", unkept}; s.Healthy || !slices.Equal(s.Problems, want) {
		t.Errorf("healthy %v, problems %q, want %q", s.Healthy, s.Problems, want)
	}
}

// TestUnapplied: a spec that was loaded is not in force before a pass has been made with it.
func TestUnapplied(t *testing.T) {
	l := newLoop(t, Config{})
	l.update(func(s *Status) { s.Problems = nil })
	if s := l.Status(); !s.Healthy {
		t.Fatalf("problems %q", s.Problems)
	}
	l.adopt(&spec.Spec{Root: "/n.hcl", Digest: "d"})
	if s := l.Status(); s.Healthy || s.Spec.Digest != "d" || !slices.Equal(s.Problems, []string{unapplied}) {
		t.Errorf("healthy %v with digest %q, problems %q", s.Healthy, s.Spec.Digest, s.Problems)
	}
}

// TestStopFollowsTheNewSpec: a stop before the first pass with a spec does what that spec
// says, not the one before.
func TestStopFollowsTheNewSpec(t *testing.T) {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"reconcile {\n  on_stop = \"restore\"\n}\n": true,
		"reconcile {}\n": false,
		"workload \"w\" {\n  device = \"no_such\"\n}\nreconcile {\n  on_stop = \"restore\"\n}\n": true,
	} {
		path := filepath.Join(t.TempDir(), "n.hcl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sp, diags := spec.Load(path, spec.Options{})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		l := newLoop(t, Config{Node: n})
		l.settings.RestoreOnStop = !want // the spec before
		l.adopt(sp)
		if got := l.restoresOnStop(); got != want {
			t.Errorf("%q: restores %v", text, got)
		}
		l.resolved = &spec.Resolved{}
		if got := l.restoresOnStop(); got == want {
			t.Errorf("%q: after a pass %v, want what the pass has seen", text, got)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// lateContext is over before those made from it hear of it.
type lateContext struct {
	context.Context
	over atomic.Bool
}

func (*lateContext) Done() <-chan struct{} { return make(chan struct{}) }

func (c *lateContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// TestStopByTheWatcher: a watcher that is closed since everything is to end ends the loop as
// the end itself does, with what is to be restored; one that breaks is an error.
func TestStopByTheWatcher(t *testing.T) {
	for name, over := range map[string]bool{"the end": true, "broken": false} {
		t.Run(name, func(t *testing.T) {
			h := newHeldTest(t)
			l := h.loop()
			l.c.Describe = func(experiment.Kind, *spec.Spec, *state.Document, *node.Facts) experiment.Experiment {
				return experiment.Experiment{}
			}
			ctx := &lateContext{Context: t.Context()}
			asked := false
			err := l.Run(ctx, nil, func(bool) bool { asked = true; return false }, func() {
				ctx.over.Store(over)
				h.must(l.c.Watcher.Close())
			})
			if (err == nil) != over || asked != over {
				t.Errorf("%v, asked whether to restore: %v", err, asked)
			}
			if s := l.Status(); over && (s.Healthy || s.Problems[0] != "it is stopping") {
				t.Errorf("healthy %v, problems %q", s.Healthy, s.Problems)
			}
		})
	}
}
