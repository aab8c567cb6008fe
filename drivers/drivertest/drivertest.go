// Package drivertest is the suite that every driver of host settings must pass. It
// holds a driver to the words of the drivers.Driver interface: discovery is stable,
// Apply is idempotent, reads back and tells what is in force even when it fails, and
// what a driver read can be put back.
package drivertest

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// A Subject is a driver on a fresh machine.
type Subject struct {
	Driver drivers.Driver
	Scope  param.Scope // has at least one target
	// Want gives the value that a setting is to be changed to; ok is false for one that
	// the suite is to leave alone. All values must differ from those on the machine.
	Want func(param.Target, param.Setting) (param.Value, bool)
	// Read reads a file of the machine; of a drivers.Filer it is needed.
	Read func(path string) ([]byte, error)
	// Inject makes the driver's writes fail as f says.
	Inject func(f *sysfs.Faults)
}

// Run runs the suite. fresh returns a new machine each time.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, Subject){
		"discover":   testDiscover,
		"apply":      testApply,
		"idempotent": testIdempotent,
		"restore":    testRestore,
		"gone":       testGone,
		"cancelled":  testCancelled,
		"files":      testFiles,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
	t.Run("every write fails in turn", func(t *testing.T) { testFailures(t, fresh) })
}

// testFiles holds a drivers.Filer to naming, for each setting that is changed, the file
// that changes with it.
func testFiles(t *testing.T, s Subject) {
	filer, ok := s.Driver.(drivers.Filer)
	if !ok {
		return // its settings are no files
	}
	targets := discover(t, s)
	for i, files := range filer.Files(targets) {
		target := targets[i]
		cs := changes(t, s, target)
		before := map[string]string{}
		for _, path := range files {
			b, err := s.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			before[path] = string(b)
		}
		mustApply(t, s, target, cs)
		for _, c := range cs {
			path, ok := files[c.ID]
			if !ok {
				t.Fatalf("%s: no file for %s", target.Name, c.ID)
			}
			if b, err := s.Read(path); err != nil || string(b) == before[path] {
				t.Errorf("%s: %s did not change %s (%q, %v)", target.Name, c.ID, path, b, err)
			}
		}
	}
	gone := param.Target{Kind: s.Driver.Kind(), Name: "no such target"}
	if files := filer.Files([]param.Target{gone, targets[0]}); len(files) != 2 || files[0] != nil || files[1] == nil {
		t.Errorf("files of a target that is not there, and of one that is: %v", files)
	}
}

// values compares settings by what they are, not by what is said of them.
var values = cmp.Comparer(func(a, b param.Setting) bool {
	return a.ID == b.ID && a.Index == b.Index && a.Value.IsKnown() == b.Value.IsKnown() && (a.Value == b.Value || !a.Value.IsKnown())
})

func discover(t *testing.T, s Subject) []param.Target {
	t.Helper()
	targets, err := s.Driver.Discover(t.Context(), s.Scope)
	if err != nil {
		t.Fatalf("Discover: %v", err)
	}
	if len(targets) == 0 {
		t.Fatal("Discover: no target; the suite needs one")
	}
	return targets
}

func read(t *testing.T, s Subject, target param.Target) []param.Setting {
	t.Helper()
	settings, err := s.Driver.Read(t.Context(), target)
	if err != nil {
		t.Fatalf("Read %s: %v", target.Name, err)
	}
	return settings
}

// changes returns the changes that Want asks for on a target.
func changes(t *testing.T, s Subject, target param.Target) []param.Change {
	t.Helper()
	var cs []param.Change
	for _, now := range read(t, s, target) {
		want, ok := s.Want(target, now)
		if !ok {
			continue
		}
		if want == now.Value {
			t.Fatalf("%s: %s %s is %s already; the suite needs a change", target.Name, now.ID, now.Index, want)
		}
		cs = append(cs, param.Change{Target: target, ID: now.ID, Index: now.Index, Action: param.Update, Old: now.Value, New: want})
	}
	if len(cs) == 0 {
		t.Fatalf("%s: nothing to change", target.Name)
	}
	return cs
}

// back returns the changes that undo cs.
func back(cs []param.Change) []param.Change {
	undo := slices.Clone(cs)
	for i := range undo {
		undo[i].Old, undo[i].New, undo[i].Action = undo[i].New, undo[i].Old, param.Restore
	}
	return undo
}

// mustApply applies cs and checks that what Apply returns is what Read finds.
func mustApply(t *testing.T, s Subject, target param.Target, cs []param.Change) {
	t.Helper()
	got, err := s.Driver.Apply(t.Context(), target, cs, param.Order{ID: "test"})
	if err != nil {
		t.Fatalf("Apply %s: %v", target.Name, err)
	}
	if diff := cmp.Diff(read(t, s, target), got, values); diff != "" {
		t.Errorf("%s: Apply does not return what is in force (-in force +returned):\n%s", target.Name, diff)
	}
	for _, c := range cs {
		now, ok := drivers.Lookup(got, c.ID, c.Index)
		if !ok || now.Value != c.New {
			t.Errorf("%s: %s %s is %s after Apply, want %s", target.Name, c.ID, c.Index, now.Value, c.New)
		}
	}
}

func testDiscover(t *testing.T, s Subject) {
	targets := discover(t, s)
	if diff := cmp.Diff(targets, discover(t, s)); diff != "" {
		t.Errorf("two discoveries differ:\n%s", diff)
	}
	for _, target := range targets {
		if target.Kind != s.Driver.Kind() {
			t.Errorf("%s: kind %s from the driver of %s", target.Name, target.Kind, s.Driver.Kind())
		}
		for _, setting := range read(t, s, target) {
			if row, ok := param.Lookup(setting.ID); !ok || row.Kind != target.Kind {
				t.Errorf("%s: setting %s is not one of %s", target.Name, setting.ID, target.Kind)
			}
			if !setting.Value.IsKnown() && setting.Value.Reason() == "" {
				t.Errorf("%s: setting %s is unknown for no reason", target.Name, setting.ID)
			}
		}
	}
}

func testApply(t *testing.T, s Subject) {
	for _, target := range discover(t, s) {
		mustApply(t, s, target, changes(t, s, target))
	}
}

func testIdempotent(t *testing.T, s Subject) {
	target := discover(t, s)[0]
	cs := changes(t, s, target)
	mustApply(t, s, target, cs)
	s.Inject(new(sysfs.Faults).FailWrite("/", 1, syscall.EIO))
	mustApply(t, s, target, cs) // a write would fail
}

func testRestore(t *testing.T, s Subject) {
	for _, target := range discover(t, s) {
		before := read(t, s, target)
		cs := changes(t, s, target)
		mustApply(t, s, target, cs)
		mustApply(t, s, target, back(cs))
		if diff := cmp.Diff(before, read(t, s, target), values); diff != "" {
			t.Errorf("%s: not as before (-before +now):\n%s", target.Name, diff)
		}
	}
}

func testGone(t *testing.T, s Subject) {
	target := discover(t, s)[0]
	cs := changes(t, s, target)
	target.Incarnation += "1"
	if _, err := s.Driver.Read(t.Context(), target); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("Read of another incarnation: %v, want ErrGone", err)
	}
	if _, err := s.Driver.Apply(t.Context(), target, cs, param.Order{}); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("Apply to another incarnation: %v, want ErrGone", err)
	}
}

func testCancelled(t *testing.T, s Subject) {
	target := discover(t, s)[0]
	before := read(t, s, target)
	cs := changes(t, s, target)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Driver.Apply(ctx, target, cs, param.Order{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: %v, want context.Canceled", err)
	}
	if diff := cmp.Diff(before, read(t, s, target), values); diff != "" {
		t.Errorf("a cancelled Apply has written:\n%s", diff)
	}
}

// testFailures breaks the first write, then the second, and so on until an Apply
// needs no more writes. ENOMEM is what no driver has a special word for.
func testFailures(t *testing.T, fresh func(t *testing.T) Subject) {
	const most = 100
	for nth := 1; nth <= most; nth++ {
		s := fresh(t)
		target := discover(t, s)[0]
		before := read(t, s, target)
		cs := changes(t, s, target)
		s.Inject(new(sysfs.Faults).FailWrite("/", nth, syscall.ENOMEM))
		got, err := s.Driver.Apply(t.Context(), target, cs, param.Order{})
		s.Inject(nil)
		if err == nil {
			if nth == 1 {
				t.Error("Apply made no write")
			}
			return
		}
		if !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("write %d: error %v does not carry the errno", nth, err)
		}
		if diff := cmp.Diff(read(t, s, target), got, values); diff != "" {
			t.Errorf("write %d: Apply does not tell what is in force (-in force +returned):\n%s", nth, diff)
		}
		mustApply(t, s, target, back(cs))
		if diff := cmp.Diff(before, read(t, s, target), values); diff != "" {
			t.Errorf("write %d: not as before after the way back:\n%s", nth, diff)
		}
	}
	t.Errorf("Apply still wrote after %d writes", most)
}
