package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
)

// An Option says how a tree at rest takes writes.
type Option func(*layer)

// WithEmulator makes reads and writes behave as e says.
func WithEmulator(e Emulator) Option { return func(l *layer) { l.emu = e } }

func atRest(t tree, layerDir string, opts []Option) FS {
	l := &layer{dir: layerDir}
	for _, o := range opts {
		o(l)
	}
	return FS{b: rooted{tree: t, layer: l}}
}

// OpenDir opens a directory that holds a captured sys, proc or both, itself or in
// its only subdirectory (what unpacking an archive leaves). Nothing outside it is
// ever read, wherever its links point. Writes go to layerDir.
func OpenDir(dir, layerDir string, over *Mem, opts ...Option) (FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return FS{}, err
	}
	t := newDirTree(root)
	sub, err := captureRoot(t)
	if err != nil {
		return FS{}, errors.Join(fmt.Errorf("%s: %w", dir, err), root.Close())
	}
	if sub != "." {
		inner, err := root.OpenRoot(sub)
		if err = errors.Join(err, root.Close()); err != nil {
			return FS{}, err
		}
		t = newDirTree(inner)
	}
	return atRest(union{over, t}, layerDir, opts), nil
}

// errNoCapture is returned for a tree that holds neither sys nor proc.
var errNoCapture = errors.New("holds neither a sys nor a proc directory, nor one directory that does")

// captureRoot returns where in t the captured root is: "." or a name.
func captureRoot(t tree) (string, error) {
	if isRoot(t, ".") {
		return ".", nil
	}
	names, err := t.list(".")
	if err != nil {
		return "", err
	}
	found := ""
	for _, name := range names {
		if isRoot(t, name) {
			if found != "" {
				return "", errors.New("holds several captured trees; name one of them")
			}
			found = name
		}
	}
	if found == "" {
		return "", errNoCapture
	}
	return found, nil
}

func isRoot(t tree, dir string) bool {
	for _, name := range []string{"sys", "proc"} {
		if mode, err := t.lstat(path.Join(dir, name)); err == nil && mode.IsDir() {
			return true
		}
	}
	return false
}

// dirTree is a directory on disk, entered through os.Root, which no link can leave
// even when the directory changes underneath. Which of its names are directories
// and links is remembered, and the directory used last stays open: a path of ten
// elements would cost fifty system calls otherwise.
type dirTree struct {
	root *os.Root

	mu    sync.Mutex
	modes map[string]fs.FileMode // of directories and links; guarded by mu
	links map[string]string      // guarded by mu
	last  *os.Root               // root at the start; guarded by mu
	where string                 // the name of last; guarded by mu
}

func newDirTree(root *os.Root) *dirTree {
	return &dirTree{root: root, modes: map[string]fs.FileMode{}, links: map[string]string{}, last: root, where: "."}
}

// at calls do with the directory that name is in. The caller holds mu.
func (t *dirTree) at(name string, do func(dir *os.Root, base string) error) error {
	if dir := path.Dir(name); dir != t.where {
		opened, err := t.root.OpenRoot(dir)
		if err != nil {
			return cause(err)
		}
		if err := t.closeLast(); err != nil {
			return errors.Join(err, opened.Close())
		}
		t.last, t.where = opened, dir
	}
	return cause(do(t.last, path.Base(name)))
}

// closeLast closes the directory used last. The caller holds mu.
func (t *dirTree) closeLast() error {
	last := t.last
	t.last, t.where = t.root, "."
	if last == t.root {
		return nil
	}
	return last.Close()
}

func (t *dirTree) lstat(name string) (fs.FileMode, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mode, ok := t.modes[name]; ok {
		return mode, nil
	}
	var info fs.FileInfo
	err := t.at(name, func(dir *os.Root, base string) (err error) {
		info, err = dir.Lstat(base)
		return err
	})
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		t.modes[name] = info.Mode()
	}
	return info.Mode(), nil
}

func (t *dirTree) readlink(name string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if target, ok := t.links[name]; ok {
		return target, nil
	}
	var target string
	err := t.at(name, func(dir *os.Root, base string) (err error) {
		target, err = dir.Readlink(base)
		return err
	})
	if err != nil {
		return "", err
	}
	t.links[name] = target
	return target, nil
}

// read opens without blocking: a captured tree may hold a FIFO.
func (t *dirTree) read(name string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var f *os.File
	err := t.at(name, func(dir *os.Root, base string) (err error) {
		f, err = dir.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, syscall.ENXIO)
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(b) > MaxFile {
		err = syscall.EFBIG
	}
	return b, cause(err)
}

func (t *dirTree) list(name string) ([]string, error) {
	d, err := t.root.Open(name)
	if err != nil {
		return nil, cause(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return names, cause(err)
}

func (t *dirTree) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.closeLast(), t.root.Close())
}

// cause strips the path that os.Root put on err: it is relative to a root that the
// reader of the message does not know.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
