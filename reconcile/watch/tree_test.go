package watch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// heard asserts that do is heard as a change of the spec's root.
func heard(t *testing.T, w *Watcher, root, what string, do func()) {
	t.Helper()
	do()
	await(t, w, what, Spec, is("change", root))
	settle(t, w)
}

// settle takes the events that are on their way, those up to one that it makes, so that
// the next is of what comes next. It returns them.
func settle(t *testing.T, w *Watcher) []Event {
	t.Helper()
	dir := t.TempDir()
	w.spec.mu.Lock()
	roots := w.spec.roots
	w.spec.mu.Unlock()
	must(t, w.SetSpec(append(roots[:len(roots):len(roots)], dir)))
	write(t, filepath.Join(dir, "x"), "x")
	_, before := await(t, w, "mark", Spec, is("change", dir))
	must(t, w.SetSpec(roots))
	return before
}

func TestSpecFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.hcl")
	w := listen(t, Config{Spec: []string{path}})
	heard(t, w, path, "made later", func() { write(t, path, "1") })
	heard(t, w, path, "written in place", func() { write(t, path, "2") })
	heard(t, w, path, "renamed over", func() {
		write(t, filepath.Join(dir, "tmp"), "3")
		must(t, os.Rename(filepath.Join(dir, "tmp"), path))
	})
	heard(t, w, path, "written in place again", func() { write(t, path, "4") })
	heard(t, w, path, "removed", func() { must(t, os.Remove(path)) })
	heard(t, w, path, "its directory removed", func() { must(t, os.Remove(dir)) })
	heard(t, w, path, "both made again", func() {
		must(t, os.Mkdir(dir, 0o755))
		write(t, path, "5")
	})
	heard(t, w, path, "and written", func() { write(t, path, "6") })
	heard(t, w, path, "another directory in its place", func() {
		other := filepath.Join(filepath.Dir(dir), "other")
		must(t, os.Mkdir(other, 0o755))
		write(t, filepath.Join(other, "node.hcl"), "7")
		must(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), "old")))
		must(t, os.Rename(other, dir))
	})
	heard(t, w, path, "written there", func() { write(t, path, "8") })

	write(t, filepath.Join(dir, "unrelated"), "x")
	write(t, filepath.Join(filepath.Dir(dir), "unrelated"), "x")
	for _, e := range settle(t, w) {
		if e.Subject == path {
			t.Errorf("heard of another file: %+v", e)
		}
	}
}

func TestSpecDirectory(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "etc", "rdmatune")
	file := filepath.Join(dir, "node.hcl")
	w := listen(t, Config{Spec: []string{dir}})
	heard(t, w, dir, "made later", func() { must(t, os.MkdirAll(dir, 0o755)) })
	heard(t, w, dir, "a file", func() { write(t, file, "1") })
	heard(t, w, dir, "as git does it", func() {
		must(t, os.Remove(file))
		write(t, file, "2")
	})
	heard(t, w, dir, "no longer readable", func() { must(t, os.Chmod(file, 0)) })
	target := filepath.Join(base, "elsewhere.hcl")
	heard(t, w, dir, "a link", func() { must(t, os.Symlink(target, filepath.Join(dir, "link.hcl"))) })
	heard(t, w, dir, "its target made", func() { write(t, target, "1") })
	heard(t, w, dir, "its target written", func() { write(t, target, "2") })
	heard(t, w, dir, "a checkout without it", func() { must(t, os.RemoveAll(filepath.Join(base, "etc"))) })
	heard(t, w, dir, "a checkout with it", func() {
		must(t, os.MkdirAll(dir, 0o755))
		write(t, file, "3")
	})
	heard(t, w, dir, "written", func() { write(t, file, "4") })
}

// TestSpecVolume does what Kubernetes does to a volume of a ConfigMap.
func TestSpecVolume(t *testing.T) {
	mount := t.TempDir()
	version := func(name, text string) {
		must(t, os.Mkdir(filepath.Join(mount, name), 0o755))
		write(t, filepath.Join(mount, name, "node.hcl"), text)
		must(t, os.Symlink(name, filepath.Join(mount, "..data_tmp")))
		must(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
	}
	version("..2026_1", "1")
	path := filepath.Join(mount, "node.hcl")
	must(t, os.Symlink("..data/node.hcl", path))
	for _, root := range []string{path, mount} {
		w := listen(t, Config{Spec: []string{root}})
		name := "..2026_" + filepath.Base(root)
		heard(t, w, root, "switched", func() { version(name, "2") })
		heard(t, w, root, "written behind the links", func() { write(t, filepath.Join(mount, name, "node.hcl"), "3") })
	}
}

func TestSpecLinks(t *testing.T) {
	base := t.TempDir()
	a, b, link := filepath.Join(base, "a"), filepath.Join(base, "b"), filepath.Join(base, "link")
	must(t, os.Mkdir(a, 0o755))
	must(t, os.Mkdir(b, 0o755))
	must(t, os.Symlink("../"+filepath.Base(base)+"/./a", link))
	root := filepath.Join(link, "node.hcl")
	w := listen(t, Config{Spec: []string{root}})
	heard(t, w, root, "made behind a link", func() { write(t, filepath.Join(a, "node.hcl"), "1") })
	heard(t, w, root, "the link switched", func() {
		must(t, os.Symlink(b, link+".tmp"))
		must(t, os.Rename(link+".tmp", link))
	})
	heard(t, w, root, "made behind the new one", func() { write(t, filepath.Join(b, "node.hcl"), "2") })
	heard(t, w, root, "a link to itself", func() {
		must(t, os.Remove(link))
		must(t, os.Symlink("link", link))
	})
	heard(t, w, root, "a whole one again", func() {
		must(t, os.Remove(link))
		must(t, os.Symlink(a, link))
	})
	heard(t, w, root, "made behind that", func() { write(t, filepath.Join(a, "node.hcl"), "3") })
	settle(t, w)
	w.spec.mu.Lock()
	defer w.spec.mu.Unlock()
	for _, d := range w.spec.dirs {
		if d.path == b {
			t.Errorf("%s is still watched", b)
		}
	}
}

func TestSetSpec(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.hcl"), filepath.Join(dir, "sub", "b.hcl")
	must(t, os.Mkdir(filepath.Dir(b), 0o755))
	w := listen(t, Config{Spec: []string{a}})
	must(t, w.SetSpec([]string{b}))
	write(t, a, "1")
	write(t, b, "1")
	if _, others := await(t, w, "the new one", Spec, is("change", b)); len(others) > 0 {
		t.Errorf("heard of the old one: %v", others)
	}
	must(t, w.SetSpec(nil))
	w.spec.mu.Lock()
	defer w.spec.mu.Unlock()
	if len(w.spec.dirs) > 0 {
		t.Errorf("%d directories are watched for no spec", len(w.spec.dirs))
	}
}

// TestLostSpec holds that a reader who is late for inotify is told.
func TestLostSpec(t *testing.T) {
	w := &Watcher{q: newQueue()}
	tr, err := w.openTree(Spec, func(happened) { t.Error("told of an event that has none") })
	must(t, err)
	defer tr.close()
	must(t, tr.events(inotifyEvent(-1, 1<<14, "", 0)))
	if e, ok := w.q.take(); !ok || e.What != "lost" || e.Source != Spec {
		t.Errorf("%+v", e)
	}
	if err := tr.events([]byte{1}); err == nil {
		t.Error("half an event is taken")
	}
}

type service struct{}

func (service) Describe() control.Process { return control.Process{} }
func (service) Order(context.Context, control.Order) (control.Result, error) {
	return control.Result{}, control.ErrConflict
}

// TestTransports holds that a process's control socket is heard where package control has
// it.
func TestTransports(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	w := listen(t, Config{RunDir: run})
	serve := func() *control.Server {
		s, err := control.Serve(t.Context(), run, service{})
		must(t, err)
		return s
	}
	s := serve() // makes the directories
	// Whoever looks at each event finds the socket in the end, however the two race.
	await(t, w, "a socket in a new directory", Transports, func(Event) bool {
		found, err := filepath.Glob(filepath.Join(run, socketsDir, "*.sock"))
		return err == nil && len(found) == 1
	})
	s.Close()

	w = listen(t, Config{RunDir: run})
	s = serve()
	e, _ := await(t, w, "a socket", Transports, func(e Event) bool { return e.What == "add" })
	s.Close()
	if !strings.HasPrefix(e.Subject, filepath.Join(run, socketsDir)+"/") {
		t.Errorf("%+v", e)
	}
	await(t, w, "its end", Transports, is("remove", e.Subject))
}
