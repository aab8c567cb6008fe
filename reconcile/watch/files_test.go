package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// keep returns a set that may hold files of dir.
func keep(t testing.TB, dir string) *Files {
	f := newFiles(true)
	f.allow = below(dir)
	t.Cleanup(func() { must(t, f.close()) })
	return f
}

func below(dir string) func(path string, fd int) error {
	return func(path string, _ int) error {
		if !strings.HasPrefix(path, dir+"/") {
			return errors.New("not below")
		}
		return nil
	}
}

func changed(t *testing.T, f *Files) string {
	t.Helper()
	paths, err := f.Changed()
	must(t, err)
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return fmt.Sprint(paths)
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "b", "c"} {
		write(t, path(name), name)
	}
	f := keep(t, dir)
	must(t, f.Set([]string{path("c"), path("a"), path("b"), path("a"), path("absent")}))
	if f.Len() != 4 {
		t.Fatalf("%d files, want 4", f.Len())
	}
	check := func(when, want string) {
		t.Helper()
		if got := changed(t, f); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	check("never accepted", "[a absent b c]")
	must(t, f.Accept())
	check("accepted", "[]")
	write(t, path("b"), "other")
	check("written", "[b]")
	check("still", "[b]")
	write(t, path("b"), "b")
	check("written back", "[]")
	write(t, path("absent"), "now here")
	check("made", "[absent]")
	must(t, f.Accept())
	write(t, path("absent"), "other")
	check("made and written", "[absent]")
	must(t, f.Accept())

	// Another file at the same path is the set's when it is set again.
	must(t, os.Remove(path("a")))
	write(t, path("a"), "another a")
	all := []string{path("a"), path("b"), path("c")}
	must(t, f.Set(all))
	check("replaced", "[a]")
	must(t, f.Accept())
	write(t, path("a"), "and again")
	check("the new one written", "[a]")
	must(t, f.Accept())

	must(t, f.Set(all[1:]))
	write(t, path("a"), "no longer kept")
	check("left out", "[]")
	must(t, f.Set(all))
	check("kept again", "[a]")
}

func TestRefusedFiles(t *testing.T) {
	f := newFiles(true)
	defer f.close()
	must(t, f.Set([]string{"/proc/sys/kernel/ostype"}))
	for _, path := range []string{
		"/etc/passwd", "/proc/../etc/passwd", "proc/version", "", "/proc", "/sys/", "/procs/x", "/proc//version", "/dev/null",
	} {
		if err := f.Set([]string{path}); err == nil || !strings.Contains(err.Error(), "below /sys or /proc") {
			t.Errorf("%q: %v", path, err)
		}
	}
	if f.Len() != 1 {
		t.Errorf("a refused set has replaced the one before: %d files", f.Len())
	}
	// A path of procfs that leads out of it.
	out := fmt.Sprintf("/proc/%d/exe", os.Getpid())
	if err := f.Set([]string{out, "/proc/sys/kernel/ostype"}); err == nil || !strings.Contains(err.Error(), "not a file of procfs") {
		t.Errorf("%s: %v", out, err)
	}
	if err := f.Set([]string{"/sys/kernel"}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	many := make([]string, maxFiles+1)
	for i := range many {
		many[i] = fmt.Sprint("/proc/", i)
	}
	if err := f.Set(many); err == nil || !strings.Contains(err.Error(), "the most is 65536") {
		t.Errorf("too many: %v", err)
	}
}

// TestFailures holds that the errors of many files are few.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	f := keep(t, dir)
	f.mark = func(int, bool) error { return unix.ENOSPC }
	var told error
	f.tell = func(err error) { told = err }
	var paths []string
	for i := range 20 {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		write(t, paths[i], "x")
	}
	err := f.Set(paths)
	if !errors.Is(err, unix.ENOSPC) || strings.Count(err.Error(), "\n") != maxFailures || !strings.HasSuffix(err.Error(), "and 12 more like these") {
		t.Errorf("%v", err)
	}
	if f.Len() != 20 || !errors.Is(told, unix.ENOSPC) {
		t.Errorf("%d files, told %v; want 20 and the error", f.Len(), told)
	}
	must(t, f.Accept())
	if got := changed(t, f); got != "[]" {
		t.Errorf("%s", got)
	}
	f.mark = nil
	must(t, f.Set(nil))
	if told != nil {
		t.Errorf("told %v of no files", told)
	}
}

// TestMarks holds which files are marked, whatever happens to them.
func TestMarks(t *testing.T) {
	dir := t.TempDir()
	f := keep(t, dir)
	marked := map[identity]int{}
	f.mark = func(fd int, on bool) error {
		id, err := identify(fd)
		if err != nil {
			return err
		}
		if on {
			marked[id] = 1 // marking again changes nothing
		} else {
			delete(marked, id)
		}
		return nil
	}
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
	write(t, a, "a")
	write(t, b, "b")
	must(t, os.Symlink("a", link))
	check := func(when string, want int) {
		t.Helper()
		if len(marked) != want {
			t.Errorf("%s: %d inodes are marked, want %d", when, len(marked), want)
		}
		for _, k := range f.kept {
			if marked[k.id] == 0 && k.fd >= 0 {
				t.Errorf("%s: %s is not marked", when, k.path)
			}
			if p, ok := f.path(k.id); !ok || p != k.path && k.path != link {
				t.Errorf("%s: %s is known as %q", when, k.path, p)
			}
		}
	}
	must(t, f.Set([]string{a, b, link}))
	check("two files, three paths", 2)
	must(t, f.Set([]string{link, b}))
	check("one path of two gone", 2)
	must(t, os.Rename(b, a))
	write(t, b, "new b")
	must(t, f.Set([]string{a, b}))
	check("replaced", 2)
	must(t, f.Set(nil))
	check("none", 0)
}

// TestSweepAllocates holds that a sweep that finds nothing allocates nothing, however many
// files there are.
func TestSweepAllocates(t *testing.T) {
	f := keep(t, "/proc/sys/kernel")
	paths := kernelFiles(t, "/proc/sys/kernel", 200)
	must(t, f.Set(paths))
	must(t, f.Accept())
	busy, err := f.Changed()
	must(t, err)
	must(t, f.Set(slices.DeleteFunc(paths, func(p string) bool { return slices.Contains(busy, p) || strings.Contains(p, "rand") })))
	if len(f.kept) < 50 {
		t.Fatalf("only %d steady files", len(f.kept))
	}
	if n := testing.AllocsPerRun(20, func() { _, _ = f.Changed() }); n > 2 {
		t.Errorf("%v allocations for %d files", n, len(f.kept))
	}
}

// kernelFiles returns up to most readable files below dir.
func kernelFiles(t testing.TB, dir string, most int) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode()&0o004 != 0 && len(paths) < most {
			paths = append(paths, path)
		}
	}
	return paths
}
