package state

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/param"
)

// compare looks into values, and not at a document's look-up table.
var compare = cmp.Options{
	cmpopts.IgnoreUnexported(Document{}),
	cmp.Comparer(func(a, b param.Value) bool { return a == b }),
}

func change(name string, id param.ID, old, new param.Value) param.Change {
	return param.Change{Workload: "w", Target: param.Target{Kind: param.IRQ, Name: name, Incarnation: "1", Label: "label"}, ID: id, Old: old, New: new}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	d, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.SpecRoot = "/etc/rdmatune"
	d.Generations["w"] = Generation{Counter: 3, Follows: "x"}
	d.Wrote("boot", change("b", param.IRQCPUs, param.Text("0-3"), param.Text("1")))
	d.Wrote("boot", change("a", param.IRQCPUs, param.Absent(), param.Int(0)))
	d.Wrote("boot", change("c", param.IRQCPUs, param.Unknown("unreadable"), param.Text("1")))
	if err := d.Reserve(dir, 10); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	back, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, back, compare); diff != "" {
		t.Errorf("-saved +loaded\n%s", diff)
	}
	if back.Serial != 2 || back.Lineage == "" {
		t.Errorf("serial %d, lineage %q", back.Serial, back.Lineage)
	}
	if len(back.Entries) != 2 || back.Entries[0].Target.Name != "a" || !back.Entries[0].Original.IsAbsent() {
		t.Errorf("entries: %+v", back.Entries)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("the directory holds %v, %v; want the document alone", names, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a later version": `{"version": 99}`,
		"no version":      `{}`,
		"not JSON":        `{`,
		"another type":    `{"version": 1, "entries": 3}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, documentName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := Load(dir); err == nil {
			t.Errorf("%s: loaded as %+v", name, d)
		}
	}
}

func TestWroteKeepsTheFirstOriginal(t *testing.T) {
	d := &Document{}
	d.Wrote("boot", change("a", param.IRQCPUs, param.Text("0-3"), param.Text("1")))
	c := change("a", param.IRQCPUs, param.Text("1"), param.Text("2"))
	c.Workload = "another"
	d.Wrote("boot", c)
	d.Wrote("later boot", c)
	if len(d.Entries) != 2 {
		t.Fatalf("%d entries", len(d.Entries))
	}
	e := d.Find("boot", Key{c.Target.Key(), param.IRQCPUs, ""})
	if e.Original != param.Text("0-3") || e.Written != param.Text("2") || strings.Join(e.Workloads, " ") != "another w" {
		t.Errorf("first boot: %+v", e)
	}
	if e := d.Find("later boot", Key{c.Target.Key(), param.IRQCPUs, ""}); e.Original != param.Text("1") {
		t.Errorf("later boot: %+v", e)
	}
	c.Target.Incarnation = "2"
	if e := d.Find("boot", Key{c.Target.Key(), param.IRQCPUs, ""}); e != nil {
		t.Errorf("another incarnation has %+v", e)
	}
	d.Forget("boot", Key{change("a", param.IRQCPUs, param.Value{}, param.Value{}).Target.Key(), param.IRQCPUs, ""})
	if len(d.Entries) != 1 || d.Entries[0].BootID != "later boot" {
		t.Errorf("after Forget: %+v", d.Entries)
	}
}

func TestJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if r, err := ReadJournal(dir); err != nil || r != nil {
		t.Fatalf("no journal: %v, %v", r, err)
	}
	j := OpenJournal(dir)
	g := Generation{Counter: 4, Follows: "y"}
	want := []Record{
		{Run: "r", BootID: "boot", Workload: "w", Generation: &g},
		{Run: "r", BootID: "boot", Changes: []param.Change{change("a", param.IRQCPUs, param.Text("0-3"), param.Text("1"))}},
	}
	for _, r := range want {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range want[1].Changes {
		want[1].Changes[i].Target.Label = "" // labels are for people, and not kept
	}
	got, err := ReadJournal(dir)
	if diff := cmp.Diff(want, got, compare); err != nil || diff != "" {
		t.Errorf("%v\n-want +got\n%s", err, diff)
	}

	// A crash in the middle of Append leaves a torn line: it is ignored, and the next
	// record does not become part of it.
	name := filepath.Join(dir, journalName)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(name, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := ReadJournal(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		j := OpenJournal(dir)
		if err := j.Append(want[0]); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := ReadJournal(dir)
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("cut at %d: %d records, then %d, %v", cut, len(before), len(after), err)
		}
	}
	if err := j.Remove(); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadJournal(dir); err != nil || r != nil {
		t.Errorf("after Remove: %v, %v", r, err)
	}
}

func TestRecover(t *testing.T) {
	text := param.Text
	tests := []struct {
		name    string
		before  *Entry // original 0-3, written as given
		changes []param.Change
		want    Entry
	}{
		{"a new setting keeps its original", nil,
			[]param.Change{change("a", param.IRQCPUs, text("0-3"), text("1"))},
			Entry{Original: text("0-3"), Written: text("0-3"), Maybe: ptr(text("1"))}},
		{"what was restored and forgotten keeps its original", nil,
			[]param.Change{restored(change("a", param.IRQCPUs, text("1"), text("0-3")))},
			Entry{Original: text("0-3"), Written: text("1"), Maybe: ptr(text("0-3"))}},
		{"what may be restored keeps its original", &Entry{Original: text("0-3"), Written: text("1")},
			[]param.Change{restored(change("a", param.IRQCPUs, text("1"), text("0-3")))},
			Entry{Original: text("0-3"), Written: text("1"), Maybe: ptr(text("0-3"))}},
		{"a managed one may have either value", &Entry{Original: text("0-3"), Written: text("1")},
			[]param.Change{change("a", param.IRQCPUs, text("1"), text("2"))},
			Entry{Original: text("0-3"), Written: text("1"), Maybe: ptr(text("2"))}},
		{"two crashes in a row", &Entry{Original: text("0-3"), Written: text("1")},
			[]param.Change{change("a", param.IRQCPUs, text("1"), text("2")), change("a", param.IRQCPUs, text("2"), text("3"))},
			Entry{Original: text("0-3"), Written: text("2"), Maybe: ptr(text("3"))}},
		{"drift is not ours", &Entry{Original: text("0-3"), Written: text("1")},
			[]param.Change{change("a", param.IRQCPUs, text("7"), text("1"))},
			Entry{Original: text("0-3"), Written: text("1"), Maybe: ptr(text("1"))}},
	}
	for _, tt := range tests {
		d := &Document{Generations: map[string]Generation{"w": {Counter: 2}}}
		key := Key{tt.changes[0].Target.Key(), param.IRQCPUs, ""}
		if tt.before != nil {
			e := *tt.before
			e.BootID, e.Target, e.ID, e.Workloads = "boot", key.Target, key.ID, []string{"w"}
			d.Put(e)
		}
		var records []Record
		for _, c := range tt.changes {
			records = append(records, Record{BootID: "boot", Changes: []param.Change{c}})
		}
		records = append(records, Record{Workload: "w", Generation: &Generation{Counter: 1}}, Record{Workload: "v", Generation: &Generation{Counter: 5}})
		d.Recover(records)
		got := *d.Find("boot", key)
		tt.want.BootID, tt.want.Target, tt.want.ID, tt.want.Workloads = "boot", key.Target, key.ID, []string{"w"}
		if diff := cmp.Diff(tt.want, got, compare); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
		if d.Generations["w"].Counter != 2 || d.Generations["v"].Counter != 5 {
			t.Errorf("%s: generations %v: they may only rise", tt.name, d.Generations)
		}
	}
}

// TestRecoverRejection: a rollback that was interrupted is one all the same, and a copy of
// the document has what was rejected for itself.
func TestRecoverRejection(t *testing.T) {
	d := &Document{}
	want := Rejection{Spec: "digest", Kinds: []param.Kind{param.Hint, param.IRQ}}
	d.Recover([]Record{{Workload: "w", Rejection: &Rejection{Spec: "before"}}, {Workload: "w", Rejection: &want}})
	if diff := cmp.Diff(map[string]Rejection{"w": want}, d.Rejections); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	delete(d.Clone().Rejections, "w")
	if len(d.Rejections) != 1 {
		t.Error("a copy shares what was rejected")
	}
}

func restored(c param.Change) param.Change {
	c.Action = param.Restore
	return c
}

func ptr(v param.Value) *param.Value { return &v }

// TestLock checks that a lock excludes another process, names its owner, and ends
// with it.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	if os.Getenv("STATE_TEST_LOCK") != "" {
		_, err := Acquire(os.Getenv("STATE_TEST_LOCK"), Owner{PID: os.Getpid(), Command: "child"})
		var locked *LockedError
		switch {
		case err == nil:
			os.Exit(0)
		case errors.As(err, &locked) && locked.Owner.Command == "rdmatune apply" && strings.Contains(err.Error(), "rdmatune apply"):
			os.Exit(7)
		}
		os.Exit(8)
	}
	child := func() int {
		cmd := exec.Command(os.Args[0], "-test.run=TestLock$")
		cmd.Env = append(os.Environ(), "STATE_TEST_LOCK="+dir, "TMPDIR="+t.TempDir())
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	l, err := Acquire(dir, Owner{PID: os.Getpid(), Command: "rdmatune apply"})
	if err != nil {
		t.Fatal(err)
	}
	if code := child(); code != 7 {
		t.Errorf("with the lock held the child ends with %d, want 7", code)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if code := child(); code != 0 {
		t.Errorf("with the lock free the child ends with %d", code)
	}
	// The child is dead and never released its lock.
	if l, err = Acquire(dir, Owner{}); err != nil {
		t.Errorf("after its owner's death the lock is not free: %v", err)
	} else if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	// A directory that cannot hold files stands for a full disk: both fail at the
	// first write.
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Document{}).Save(dir); err == nil {
		t.Error("Save wrote into a file")
	}
	if err := (&Document{}).Reserve(dir, 1); err == nil {
		t.Error("Reserve wrote into a file")
	}
	if err := OpenJournal(dir).Append(Record{}); err == nil {
		t.Error("Append wrote into a file")
	}
}

func TestDaemonLock(t *testing.T) {
	dir := t.TempDir()
	if err := Daemon(dir); err != nil {
		t.Fatalf("without a daemon: %v", err)
	}
	l, err := AcquireDaemon(dir, Owner{PID: 4711, Command: "rdmatune reconcile", Spec: "/etc/rdmatune"})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, daemonName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock's file: %v, %v; whoever may open it may lock it", info.Mode(), err)
	}
	for _, err := range []error{Daemon(dir), func() error { _, err := AcquireDaemon(dir, Owner{}); return err }()} {
		d, ok := errors.AsType[*DaemonError](err)
		if !ok || d.Owner.PID != 4711 || d.Owner.Spec != "/etc/rdmatune" || !strings.Contains(err.Error(), "pid 4711") {
			t.Errorf("with a daemon: %v", err)
		}
	}
	if node, err := Acquire(dir, Owner{}); err != nil {
		t.Errorf("the node's own lock is another: %v", err)
	} else if err := node.Release(); err != nil {
		t.Error(err)
	}
	if err := l.Held(); err != nil {
		t.Errorf("held: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, daemonName)); err != nil {
		t.Fatal(err)
	}
	if err := l.Held(); err == nil {
		t.Error("held although its file is gone")
	}
	other, err := AcquireDaemon(dir, Owner{PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Held(); err == nil {
		t.Error("held although another has it")
	}
	for _, l := range []*Lock{l, other} {
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if err := Daemon(dir); err != nil {
		t.Errorf("after the daemon: %v", err)
	}
	// What is no file is no lock, and nothing waits for it.
	if err := os.Remove(filepath.Join(dir, daemonName)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, daemonName), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Daemon(dir); err != nil {
		t.Errorf("a FIFO: %v", err)
	}
}

// TestTornFilesGo: what a killed writer left does not stay, and nothing else is removed.
func TestTornFilesGo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir()) // on the same file system, and not to be used
	d := &Document{}
	if err := d.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".state.json123", ".state.reserve7", ".profile", "state.json.bak"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Reserve(dir, 1); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{".profile", "state.json", "state.json.bak"}, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
