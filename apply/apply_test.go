package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/coalesce"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

const tuned = `
workload "w" {
  device = "mlx5_0"
  cpu_pinning { cpus = "1,5" }
  frequency_lock {
    frequency = "2600MHz"
    governor  = "performance"
  }
  irq_affinity { cpus = "2-3" }
  coalescing { rx_usecs = 64 }
  hint { size = "16KiB" }
}
`

// settings is tuned without its hint.
var settings = strings.Replace(tuned, "  hint { size = \"16KiB\" }\n", "", 1)

// A bed is a simulated node with a spec, the host drivers and a scripted transport.
type bed struct {
	t     testing.TB
	node  *node.Node
	set   drivers.Set
	hints *fakeHints
	boot  string
	meter func(context.Context, plan.Guard) (Measurement, error)
}

func newBed(t testing.TB, dir string) *bed {
	t.Helper()
	n, err := node.Open("sim:small", dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.Adopt(node.Process{PID: 4711, Start: 99, Comm: "app", Cmdline: []string{"app"}, Workload: "w", Threads: []int{4712}}); err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, node: n, hints: newFakeHints()}
	if b.boot, err = n.BootID(); err != nil {
		t.Fatal(err)
	}
	named := func(context.Context, string) ([]int, error) { return nil, nil }
	b.set = drivers.NewSet(pinning.New(n, named), cpufreq.New(n.FS()), irq.New(n.FS()), coalesce.New(n), b.hints)
	return b
}

// inject makes writes fail from now on; nil ends that.
func (b *bed) inject(f *sysfs.Faults) {
	b.node.InjectFaults(f)
	named := func(context.Context, string) ([]int, error) { return nil, nil }
	b.set = drivers.NewSet(pinning.New(b.node, named), cpufreq.New(b.node.FS()), irq.New(b.node.FS()), coalesce.New(b.node), b.hints)
}

// plan plans text, or the restoring of everything for "".
func (b *bed) plan(text string) (*plan.Plan, *state.Document) {
	b.t.Helper()
	ctx := context.Background()
	doc, err := state.Load(b.node.StateDir())
	if err != nil {
		b.t.Fatal(err)
	}
	records, err := state.ReadJournal(b.node.StateDir())
	if err != nil {
		b.t.Fatal(err)
	}
	doc.Recover(records)
	in := plan.Input{Spec: &spec.Resolved{}, State: doc, BootID: b.boot, Destroy: text == "", Unreadable: map[param.Target]error{}}
	if in.Online, in.Present, err = b.node.CPUs(); err != nil {
		b.t.Fatal(err)
	}
	if text != "" {
		name := filepath.Join(b.t.TempDir(), "node.hcl")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
		sp, diags := spec.Load(name, spec.Options{})
		if diags.HasErrors() {
			b.t.Fatal(diags)
		}
		facts, err := b.node.Facts(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		if in.Spec, diags = sp.Resolve(facts); diags.HasErrors() {
			b.t.Fatal(diags)
		}
	}
	known := map[param.Target]bool{}
	for _, w := range in.Spec.Workloads {
		for _, want := range w.Wants {
			o := b.set.Observe(ctx, want.Kind, w.Scope(want.Kind))
			for _, f := range o.Found {
				known[f.Target.Key()] = true
			}
			in.Observed = append(in.Observed, o)
		}
	}
	for _, e := range doc.Entries {
		if t := e.Target.Key(); !known[t] {
			known[t] = true
			o, ok, err := b.set.Reread(ctx, t)
			if err != nil {
				b.t.Fatal(err)
			}
			if ok {
				in.Remembered = append(in.Remembered, o)
			}
		}
	}
	return plan.Make(in), doc
}

// apply plans and carries out.
func (b *bed) apply(ctx context.Context, text string, progress func(Event)) (Result, error) {
	b.t.Helper()
	p, doc := b.plan(text)
	if p.Errored() {
		b.t.Fatal(p.Diags)
	}
	db, err := experiment.Open(context.Background(), b.node.StateDir())
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	now := time.Now()
	r := &Runner{Drivers: b.set, StateDir: b.node.StateDir(), DB: db, Progress: progress, Measure: b.meter,
		Experiment: experiment.Experiment{ID: experiment.NewID(now), Time: now, Kind: experiment.Apply, Version: "test", SpecRoot: "/spec"}}
	return r.Run(ctx, p, doc)
}

// inForce is everything that the spec is about, as the drivers read it.
func (b *bed) inForce() string {
	b.t.Helper()
	var out strings.Builder
	targets := map[param.Kind][]string{param.Coalescing: {"ens1f0np0"}}
	for i := range 5 {
		targets[param.IRQ] = append(targets[param.IRQ], fmt.Sprintf("0000:01:00.0/%d", i))
		targets[param.Frequency] = append(targets[param.Frequency], fmt.Sprintf("policy%d", i%4))
	}
	for _, k := range param.Kinds() {
		o := b.set.Observe(context.Background(), k, param.Scope{Workload: "w", Device: "mlx5_0", Targets: targets[k]})
		if o.Err != nil {
			b.t.Fatal(o.Err)
		}
		for _, f := range o.Found {
			for _, s := range f.Settings {
				fmt.Fprintf(&out, "%s %s %s%s = %s\n", k, f.Target.Name, s.ID, s.Index, s.Value)
			}
		}
	}
	return out.String()
}

func (b *bed) wantEmptyState(when string) {
	b.t.Helper()
	doc, err := state.Load(b.node.StateDir())
	if err != nil || len(doc.Entries) != 0 {
		b.t.Errorf("%s the state still has %d entries, %v: %+v", when, len(doc.Entries), err, doc.Entries)
	}
	if r, err := state.ReadJournal(b.node.StateDir()); err != nil || len(r) != 0 {
		b.t.Errorf("%s there is a journal: %v, %v", when, r, err)
	}
}

func (b *bed) wantNoChanges(text string) {
	b.t.Helper()
	if p, _ := b.plan(text); !p.Empty() || p.Errored() {
		b.t.Errorf("a plan right after has %d changes, %v: %+v", len(p.Changes), p.Diags, p.Changes)
	}
}

func TestApplyPlanDestroy(t *testing.T) {
	b := newBed(t, t.TempDir())
	before := b.inForce()
	res, err := b.apply(t.Context(), tuned, nil)
	if err != nil || res.ExitCode() != ExitDone || res.Done.Replace != 1 {
		t.Fatalf("apply: %+v, %v", res, err)
	}
	after := b.inForce()
	for _, want := range []string{"governor = performance", "min_khz = 2600000", "irq_affinity.cpus = 2", "rx_usecs = 64", "cpus4712@99 = 1,5", "size1 = 16384"} {
		if !strings.Contains(after, want) {
			t.Errorf("%q is not in force:\n%s", want, after)
		}
	}
	b.wantNoChanges(tuned)
	if b.hints.opened != 1 {
		t.Errorf("%d switches, want 1", b.hints.opened)
	}

	// A second apply, of a narrower spec, restores the rest; the first original counts.
	if res, err := b.apply(t.Context(), strings.Replace(tuned, "2-3", "4", 1), nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("second apply: %+v, %v", res, err)
	}
	if res, err := b.apply(t.Context(), "workload \"w\" {\n  hint { size = \"16KiB\" }\n}", nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("third apply: %+v, %v", res, err)
	}
	if b.hints.opened != 1 {
		t.Errorf("%d switches after the hint stayed the same, want 1", b.hints.opened)
	}
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("destroy: %+v, %v", res, err)
	}
	if diff := cmp.Diff(before, b.inForce()); diff != "" {
		t.Errorf("destroy did not restore: -before +after\n%s", diff)
	}
	b.wantEmptyState("after destroy")
}

// TestEveryWriteFails lets each write of an apply fail in turn, and expects the
// node to be as it was.
func TestEveryWriteFails(t *testing.T) {
	for n := 1; ; n++ {
		b := newBed(t, t.TempDir())
		before := b.inForce()
		b.inject((&sysfs.Faults{}).FailWrite("/", n, unix.EBUSY))
		res, err := b.apply(t.Context(), tuned, nil)
		if err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		if res.ExitCode() == ExitDone {
			if n < 10 {
				t.Fatalf("only %d writes were tried", n-1)
			}
			return
		}
		if res.ExitCode() != ExitRolledBack || len(res.Failures) != 1 || !errors.Is(res.Failures[0], unix.EBUSY) {
			t.Errorf("write %d: %+v", n, res)
		}
		if diff := cmp.Diff(before, b.inForce()); diff != "" {
			t.Errorf("write %d: not rolled back: -before +after\n%s", n, diff)
		}
		b.wantEmptyState(fmt.Sprintf("after write %d failed", n))
		if t.Failed() {
			return
		}
	}
}

func TestContinue(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.inject((&sysfs.Faults{}).FailWrite("/proc/irq", 1, unix.ENOSPC))
	text := strings.Replace(tuned, `device =`, "on_failure = \"continue\"\n  device =", 1)
	res, err := b.apply(t.Context(), text, nil)
	if err != nil || res.ExitCode() != ExitError || len(res.Failures) != 1 || len(res.RolledBack) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if after := b.inForce(); !strings.Contains(after, "rx_usecs = 64") || !strings.Contains(after, "governor = performance") {
		t.Errorf("the other changes did not stay:\n%s", after)
	}
	b.inject(nil)
	p, _ := b.plan(text)
	if len(p.Changes) != 1 || p.Changes[0].Target.Kind != param.IRQ {
		t.Errorf("the failed change alone should be left: %+v", p.Changes)
	}
}

// TestUnavailable: a vector that turns out to be the kernel's own is a note, and the
// plan right after has no changes.
func TestUnavailable(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.inject((&sysfs.Faults{}).FailWrite("/proc/irq", 2, unix.EPERM))
	res, err := b.apply(t.Context(), tuned, nil)
	if err != nil || res.ExitCode() != ExitDone || len(res.Skipped) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	b.inject(nil)
	b.wantNoChanges(tuned)
	if p, _ := b.plan(tuned); len(p.Notes) != 1 || !strings.Contains(p.Notes[0].Reason, "left alone") {
		t.Errorf("notes: %+v", p.Notes)
	}
}

func TestRollbackThatFails(t *testing.T) {
	b := newBed(t, t.TempDir())
	before := b.inForce()
	// The third write to an interrupt fails, and so does every one after it: what was
	// written before cannot be put back.
	f := &sysfs.Faults{}
	for n := 3; n < 50; n++ {
		f.FailWrite("/proc/irq", n, unix.ENOSPC)
	}
	b.inject(f)
	res, err := b.apply(t.Context(), tuned, nil)
	if err != nil || res.ExitCode() != ExitUnrestored || len(res.Unrestored) == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if r, err := state.ReadJournal(b.node.StateDir()); err != nil || len(r) == 0 {
		t.Errorf("the journal is gone: %v", err)
	}
	b.inject(nil)
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("destroy: %+v, %v", res, err)
	}
	if diff := cmp.Diff(before, b.inForce()); diff != "" {
		t.Errorf("destroy did not restore: -before +after\n%s", diff)
	}
	b.wantEmptyState("after destroy")
}

func TestSwitchOutcomes(t *testing.T) {
	tests := []struct {
		name     string
		text     string
		err      error
		exit     int
		tunedOn  bool // the base tuning stays
		pending  int
		rejected bool
	}{
		{"refused: the connection stays, the rest too", tuned, fmt.Errorf("peer: %w", drivers.ErrRefused), ExitError, true, 0, false},
		{"refused, all or none", strings.Replace(tuned, `size = "16KiB"`, "size = \"16KiB\"\n on_failure = \"rollback\"\n", 1),
			fmt.Errorf("peer: %w", drivers.ErrRefused), ExitRolledBack, false, 0, true},
		{"deferred is pending", tuned, fmt.Errorf("cooldown, 7m left: %w", drivers.ErrDeferred), ExitDone, true, 1, false},
		{"gone is no failure", tuned, fmt.Errorf("process 4711: %w", drivers.ErrGone), ExitDone, true, 0, false},
		{"another error rolls back", tuned, errors.New("socket closed"), ExitRolledBack, false, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.hints.fail = tt.err
			tt.text = strings.Replace(tt.text, "hint { size = \"16KiB\"\n", "hint {\n size = \"16KiB\"\n", 1)
			res, err := b.apply(t.Context(), tt.text, nil)
			if err != nil || res.ExitCode() != tt.exit || len(res.Pending) != tt.pending {
				t.Fatalf("%+v, %v; want exit %d, %d pending", res, err, tt.exit, tt.pending)
			}
			if on := strings.Contains(b.inForce(), "rx_usecs = 64"); on != tt.tunedOn {
				t.Errorf("base tuning in force: %v, want %v", on, tt.tunedOn)
			}
			doc, err := state.Load(b.node.StateDir())
			if err != nil || doc.Generations["w"].Rejected != tt.rejected {
				t.Errorf("generation %+v, %v; want rejected %v", doc.Generations["w"], err, tt.rejected)
			}
			if r, ok := doc.Rejections["w"]; ok != tt.rejected || ok && (r.Spec == "" || !slices.Equal(r.Kinds, []param.Kind{param.Hint})) {
				t.Errorf("rejected: %+v", doc.Rejections)
			}
			if tt.rejected && b.hints.generation <= 1 {
				t.Errorf("going back had generation %d; it must be higher than the rejected one", b.hints.generation)
			}
			b.hints.fail = nil
			if res, err := b.apply(t.Context(), tuned, nil); err != nil || res.ExitCode() != ExitDone {
				t.Fatalf("the next apply: %+v, %v", res, err)
			}
			if doc, err := state.Load(b.node.StateDir()); err != nil || len(doc.Rejections) > 0 {
				t.Errorf("still rejected after it worked: %+v, %v", doc.Rejections, err)
			}
			b.wantNoChanges(tuned)
		})
	}
}

func TestNothingIsChangedWhenTheStateCannotBeKept(t *testing.T) {
	b := newBed(t, t.TempDir())
	before := b.inForce()
	p, doc := b.plan(tuned)
	db, err := experiment.Open(t.Context(), b.node.StateDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, name := range []string{"journal.jsonl", "state.reserve"} {
		// A directory in the place of the file: opening or replacing it fails.
		blocked := filepath.Join(b.node.StateDir(), name)
		if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		r := &Runner{Drivers: b.set, StateDir: b.node.StateDir(), DB: db, Experiment: experiment.Experiment{ID: name, Kind: experiment.Apply}}
		if _, err := r.Run(t.Context(), p, doc); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s blocked: %v", name, err)
		}
		if diff := cmp.Diff(before, b.inForce()); diff != "" {
			t.Errorf("%s blocked: -before +after\n%s", name, diff)
		}
		if e, err := db.Show(t.Context(), name); err != nil || e.Status != experiment.Failed {
			t.Errorf("%s blocked: the experiment is %q, %v", name, e.Status, err)
		}
		if err := os.RemoveAll(blocked); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInterrupt(t *testing.T) {
	b := newBed(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := b.apply(ctx, tuned, func(e Event) {
		if e.Step == Written && e.Done == 2 {
			cancel()
		}
	})
	if err != nil || !res.Interrupted || res.ExitCode() != ExitError || res.Done.Change != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err := b.apply(t.Context(), tuned, nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("the next apply: %+v, %v", res, err)
	}
	b.wantNoChanges(tuned)
}

// TestInterruptWithinATarget: what was begun is finished, and no interrupt is taken for
// a refused write.
func TestInterruptWithinATarget(t *testing.T) {
	for at := 1; at <= 6; at++ {
		b := newBed(t, t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		begun := 0
		res, err := b.apply(ctx, tuned, func(e Event) {
			if e.Step == Writing {
				if begun++; begun == at {
					cancel()
				}
			}
		})
		cancel()
		if err != nil || !res.Interrupted || res.ExitCode() != ExitError || len(res.RolledBack) != 0 || res.Done.Change != at {
			t.Errorf("interrupted in target %d: %+v, %v", at, res, err)
		}
		if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
			t.Errorf("destroy: %+v, %v", res, err)
		}
		b.wantEmptyState("after destroy")
	}
}

// TestDestroyGoesOn: one original that cannot be put back does not keep the others
// away.
func TestDestroyGoesOn(t *testing.T) {
	b := newBed(t, t.TempDir())
	before := b.inForce()
	if res, err := b.apply(t.Context(), tuned, nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	b.inject((&sysfs.Faults{}).FailWrite("/proc/irq", 2, unix.ENOSPC))
	res, err := b.apply(t.Context(), "", nil)
	if err != nil || res.ExitCode() != ExitError || len(res.Failures) != 1 || len(res.RolledBack) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	doc, err := state.Load(b.node.StateDir())
	if err != nil || len(doc.Entries) != 1 || doc.Entries[0].Target.Kind != param.IRQ {
		t.Errorf("the one that failed should be left: %+v, %v", doc.Entries, err)
	}
	b.inject(nil)
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff(before, b.inForce()); diff != "" {
		t.Errorf("not restored: -before +after\n%s", diff)
	}
	b.wantEmptyState("after the second destroy")
}

func TestCheckRoot(t *testing.T) {
	d := &state.Document{SpecRoot: "/a", Entries: []state.Entry{{}}}
	if err := CheckRoot(d, "/a", false); err != nil {
		t.Error(err)
	}
	if err := CheckRoot(d, "/b", false); err == nil || !strings.Contains(err.Error(), "/a") {
		t.Errorf("another root: %v", err)
	}
	if err := CheckRoot(d, "/b", true); err != nil {
		t.Error(err)
	}
	if err := CheckRoot(&state.Document{SpecRoot: "/a"}, "/b", false); err != nil {
		t.Errorf("nothing is managed: %v", err)
	}
}

// TestKilledAtEveryStep kills an apply with SIGKILL at each of its steps, in a
// process of its own, and expects that nothing is lost: an apply finishes the work,
// and a destroy restores every original.
func TestKilledAtEveryStep(t *testing.T) {
	if dir := os.Getenv("APPLY_TEST_DIR"); dir != "" {
		killedApply(t, dir, os.Getenv("APPLY_TEST_TEXT"), os.Getenv("APPLY_TEST_STEP"))
		return
	}
	other := strings.Replace(tuned, "2-3", "4", 1)
	for _, c := range []struct{ first, then string }{
		{"", tuned}, {other, tuned}, // the second changes some of it
		// Hints live in the process that makes them here.
		{settings, ""},     // a destroy
		{settings, pinned}, // most of it is restored
	} {
		for step := 1; ; step++ {
			dir := t.TempDir()
			b := newBed(t, dir)
			before := b.inForce()
			if c.first != "" {
				if res, err := b.apply(t.Context(), c.first, nil); err != nil || res.ExitCode() != ExitDone {
					t.Fatalf("first apply: %+v, %v", res, err)
				}
			}
			cmd := exec.Command(os.Args[0], "-test.run=TestKilledAtEveryStep$")
			cmd.Env = append(os.Environ(), "APPLY_TEST_DIR="+dir, "TMPDIR="+t.TempDir(), "APPLY_TEST_TEXT="+c.then, fmt.Sprintf("APPLY_TEST_STEP=%d", step))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err == nil {
				if step < 15 {
					t.Fatalf("only %d steps were passed:\n%s", step-1, out)
				}
				break
			}
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("step %d: %v\n%s", step, err, out)
			}
			// Every other time the next run finishes the work before the originals return.
			if step%2 == 0 && c.then != "" {
				if res, err := b.apply(t.Context(), c.then, nil); err != nil || res.ExitCode() != ExitDone {
					t.Fatalf("step %d: apply: %+v, %v", step, res, err)
				}
				b.wantNoChanges(c.then)
			}
			if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
				t.Fatalf("step %d: destroy: %+v, %v", step, res, err)
			}
			if diff := cmp.Diff(before, b.inForce()); diff != "" {
				t.Errorf("step %d: destroy did not restore: -before +after\n%s", step, diff)
			}
			b.wantEmptyState(fmt.Sprintf("killed at step %d:", step))
			if t.Failed() {
				return
			}
		}
	}
}

func killedApply(t *testing.T, dir, text, at string) {
	steps := 0
	res, err := newBed(t, dir).apply(t.Context(), text, func(Event) {
		if steps++; fmt.Sprint(steps) == at {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			select {}
		}
	})
	if err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
}

// fakeHints is a transport process of workload w with one connection, and what its
// future processes find.
type fakeHints struct {
	mu         sync.Mutex
	published  map[param.ID]param.Value
	process    map[param.ID]param.Value
	conn       param.Value
	generation uint64
	opened     int
	fail       error // of an order that opens a switch and is not a rollback
}

func newFakeHints() *fakeHints {
	return &fakeHints{published: map[param.ID]param.Value{}, process: map[param.ID]param.Value{}, conn: param.Absent()}
}

func (f *fakeHints) Kind() param.Kind { return param.Hint }

func (f *fakeHints) Discover(context.Context, param.Scope) ([]param.Target, error) {
	return []param.Target{{Kind: param.Hint, Name: "4711", Incarnation: "99", Label: "app"}, {Kind: param.Hint, Name: "published/w"}}, nil
}

func (f *fakeHints) Read(_ context.Context, t param.Target) ([]param.Setting, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read(t), nil
}

func (f *fakeHints) read(t param.Target) []param.Setting {
	m := f.process
	if t.Name == "published/w" {
		m = f.published
	}
	var out []param.Setting
	for _, r := range param.Table {
		if r.Kind != param.Hint {
			continue
		}
		v, ok := m[r.ID]
		if !ok {
			v = param.Absent()
		}
		out = append(out, param.Setting{ID: r.ID, Value: v})
	}
	if t.Name == "4711" {
		out = append(out, param.Setting{ID: param.HintSize, Index: "1", Value: f.conn})
	}
	return out
}

func (f *fakeHints) Apply(_ context.Context, t param.Target, cs []param.Change, o param.Order) ([]param.Setting, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil && t.Name == "4711" && !o.Force {
		return f.read(t), f.fail
	}
	m := f.process
	if t.Name == "published/w" {
		m = f.published
	}
	for _, c := range cs {
		switch {
		case c.Index != "":
			if o.Generation > f.generation || f.conn != c.New {
				f.opened++
			}
			f.conn, f.generation = c.New, o.Generation
		case !slices.ContainsFunc(o.Want, func(s param.Setting) bool { return s.ID == c.ID && s.Value == c.New }) && !c.New.IsAbsent():
			return f.read(t), fmt.Errorf("change of %s is not in the order's settings", c.ID)
		default:
			m[c.ID] = c.New
		}
	}
	f.generation = max(f.generation, o.Generation)
	return f.read(t), nil
}

// TestHiddenLimit: a lower limit that somebody asks for while the upper one is locked below
// it is hidden, and does not come to light when the upper one is restored.
func TestHiddenLimit(t *testing.T) {
	b := newBed(t, t.TempDir())
	const lower = "/sys/devices/system/cpu/cpufreq/policy1/scaling_min_freq"
	ask := func(khz string) {
		t.Helper()
		if err := b.node.FS().WriteFile(lower, khz); err != nil {
			t.Fatal(err)
		}
	}
	ask("2600000") // the original is what the lock wants
	before := b.inForce()
	if res, err := b.apply(t.Context(), settings, nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	ask("3000000")
	b.wantNoChanges(settings)
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff(before, b.inForce()); diff != "" {
		t.Errorf("not restored: -before +after\n%s", diff)
	}
	b.wantEmptyState("in the end")
}

// TestDestroyed: each destroy is counted, also one that finds nothing to restore, and no
// apply takes the count back.
func TestDestroyed(t *testing.T) {
	b := newBed(t, t.TempDir())
	for i, r := range []struct {
		text string
		want uint64
	}{{tuned, 0}, {"", 1}, {"", 2}, {tuned, 2}, {tuned, 2}, {"", 3}} {
		if res, err := b.apply(t.Context(), r.text, nil); err != nil || res.ExitCode() != ExitDone {
			t.Fatalf("run %d: %+v, %v", i, res, err)
		}
		doc, err := state.Load(b.node.StateDir())
		if err != nil || doc.Destroyed != r.want {
			t.Errorf("run %d: destroyed %d times, want %d; %v", i, doc.Destroyed, r.want, err)
		}
	}
}
