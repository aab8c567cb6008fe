package watch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// inLab says that the tests run as root on a machine of their own, whose settings they may
// change and where every source must work.
var inLab = os.Getenv("RDMATUNE_WATCH_LAB") != ""

// patience bounds every wait. It is for a machine that does nothing else for a while, and
// emulated; it passes only when something is broken.
const patience = 3 * time.Minute

// listen makes a watcher that ends with the test.
func listen(t testing.TB, c Config) *Watcher {
	t.Helper()
	if c.Self == 0 {
		c.Self = os.Getpid()
	}
	w, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// status returns that of a source.
func status(w *Watcher, s Source) Status {
	all := w.Statuses()
	return all[slices.IndexFunc(all, func(x Status) bool { return x.Source == s })]
}

// on is whether a source is heard. Where it is not, its reason must have the word, and it
// may only be so for want of a privilege.
func on(t *testing.T, w *Watcher, s Source, word string) bool {
	t.Helper()
	st := status(w, s)
	if st.On {
		return true
	}
	if inLab || os.Geteuid() == 0 && strings.Contains(st.Reason, "stopped") {
		t.Fatalf("%s: %+v", s, st)
	}
	if !strings.Contains(st.Reason, word) || !strings.Contains(st.Reason, "sweep") {
		t.Errorf("%s is off because of %q, which does not say %q and what stands in", s, st.Reason, word)
	}
	return false
}

// await returns the first event of a source that is as wanted, and its others before it.
func await(t *testing.T, w *Watcher, what string, s Source, wanted func(e Event) bool) (Event, []Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var others []Event
	for {
		select {
		case e, ok := <-w.Events():
			switch {
			case !ok:
				t.Fatalf("%s: the watcher is closed", what)
			case e.Source != s:
			case wanted(e):
				return e, others
			default:
				others = append(others, e)
			}
		case <-ctx.Done():
			t.Fatalf("%s: did not come; the last others: %+v", what, others[max(0, len(others)-10):])
		}
	}
}

// is matches an event by what it says, whoever did it.
func is(what, subject string) func(e Event) bool {
	return func(e Event) bool { return e.What == what && e.Subject == subject }
}

// anything matches every event.
func anything(Event) bool { return true }

// shell runs a command with a name of its own, and returns its process id and output.
func shell(t testing.TB, command string) (pid int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, b)
	}
	return cmd.Process.Pid, string(b)
}

// write writes a file of the test's own.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// must fails the test for an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// descriptors lists what the process has open.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	var all []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "/proc/") { // that of the listing itself
			all = append(all, e.Name()+" "+target)
		}
	}
	return all
}

func TestCloseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	use := func() {
		w, err := New(t.Context(), Config{Local: true, Spec: []string{dir}, RunDir: dir, Self: os.Getpid()})
		must(t, err)
		must(t, w.Files().Set([]string{"/proc/sys/kernel/hostname", "/proc/sys/kernel/ostype"}))
		if n := w.Files().Len(); n != 2 {
			t.Errorf("%d files, want 2", n)
		}
		must(t, w.Close())
		must(t, w.Close())
		if _, ok := <-w.Events(); ok {
			for range w.Events() {
			}
		}
		if err := w.Files().Set(nil); err == nil {
			t.Error("Set after Close: no error")
		}
		if _, err := w.Files().Changed(); err == nil {
			t.Error("Changed after Close: no error")
		}
	}
	use() // the runtime's poller opens its own at the first use
	files, routines := descriptors(t), runtime.NumGoroutine()
	for range 20 {
		use()
	}
	if now := descriptors(t); !slices.Equal(now, files) {
		t.Errorf("open after Close: %v\nbefore: %v", now, files)
	}
	// What has been waited for may still be on its last instruction.
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > routines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, before: %d", runtime.NumGoroutine(), routines)
		}
	}
}

func TestContextCloses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w, err := New(ctx, Config{Spec: []string{t.TempDir()}})
	must(t, err)
	cancel()
	for range w.Events() { // ends when it is closed
	}
	must(t, w.Close())
	if _, err := New(ctx, Config{}); err == nil {
		t.Error("New with a context that has ended: no error")
	}
}

func TestNotLocal(t *testing.T) {
	dir := t.TempDir()
	w := listen(t, Config{Spec: []string{filepath.Join(dir, "node.hcl")}, RunDir: dir})
	for i, st := range w.Statuses() {
		if st.Source != sources[i] {
			t.Errorf("status %d is of %s, want %s", i, st.Source, sources[i])
		}
		if heard := st.Source == Spec || st.Source == Transports; st.On != heard || (st.Reason == "") != heard {
			t.Errorf("%+v", st)
		}
	}
	must(t, w.Files().Set([]string{"/proc/sys/kernel/hostname"}))
	if n := w.Files().Len(); n != 0 {
		t.Errorf("%d files of this machine are kept for another node", n)
	}
	w = listen(t, Config{})
	if st := status(w, Transports); st.On || !strings.Contains(st.Reason, "no run directory") {
		t.Errorf("%+v", st)
	}
}
