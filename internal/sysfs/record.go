package sysfs

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// A Recorder remembers what is read of a tree, so that the reading can be done again
// elsewhere: whoever finds the facts of a machine through it has a capture of all
// that they follow from, and of nothing else.
type Recorder struct {
	mu    sync.Mutex
	files map[string]file // guarded by mu, as are the others; by real path
	links map[string]string
	dirs  map[string]bool
}

// A file is a recorded one. Its mode counts: one that cannot be written says something.
type file struct {
	content []byte
	mode    fs.FileMode
}

// Record returns f with a recorder of what is read through it from now on.
func (f FS) Record() (FS, *Recorder) {
	r := &Recorder{files: map[string]file{}, links: map[string]string{}, dirs: map[string]bool{}}
	if f.b != nil {
		f.b = recording{f.b, r}
	}
	return f, r
}

// Add puts a file into the recording that is none of the tree's.
func (r *Recorder) Add(name, content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[clean(name)] = file{[]byte(content), 0o644}
}

// WriteTar writes the recording as a tar archive, in the order of paths.
func (r *Recorder) WriteTar(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	tw := tar.NewWriter(w)
	put := func(h tar.Header, content []byte) error {
		h.Name, h.Size, h.Format = strings.TrimPrefix(h.Name, "/"), int64(len(content)), tar.FormatPAX
		if err := tw.WriteHeader(&h); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		_, err := tw.Write(content)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.dirs)) {
		if name == "/" {
			continue
		}
		if err := put(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.links)) {
		if err := put(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: r.links[name], Mode: 0o777}, nil); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		f := r.files[name]
		if err := put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode)}, f.content); err != nil {
			return err
		}
	}
	return tw.Close()
}

// recording is a backend that is watched.
type recording struct {
	backend
	r *Recorder
}

func (b recording) read(name string) ([]byte, error) {
	content, err := b.backend.read(name)
	info, statErr := b.backend.stat(name)
	real, ok := b.walk(name)
	switch {
	case !ok || statErr != nil:
	case info.Mode.IsDir():
		b.dir(real)
	case err == nil:
		b.r.mu.Lock()
		b.r.files[real] = file{content, info.Mode.Perm()}
		b.r.mu.Unlock()
	}
	return content, err
}

// list records the directory with what its entries are; the content of files only
// where their names alone are asked for, as in msi_irqs.
func (b recording) list(name string) ([]string, error) {
	names, err := b.backend.list(name)
	if err != nil {
		return names, err
	}
	real, ok := b.walk(name)
	if !ok {
		return names, nil
	}
	b.dir(real)
	for _, entry := range names {
		p := path.Join(real, entry)
		info, err := b.backend.stat(p)
		switch {
		case err == nil && info.Mode.IsDir():
			if end, ok := b.walk(p); ok {
				b.dir(end)
			}
		case err == nil && path.Base(real) == "msi_irqs":
			b.read(p)
		}
	}
	return names, nil
}

func (b recording) dir(real string) {
	b.r.mu.Lock()
	b.r.dirs[real] = true
	b.r.mu.Unlock()
}

func (b recording) readlink(name string) (string, error) {
	target, err := b.backend.readlink(name)
	if err == nil {
		if dir, ok := b.walk(path.Dir(name)); ok {
			b.r.mu.Lock()
			b.r.links[path.Join(dir, path.Base(name))] = target
			b.r.mu.Unlock()
			b.walk(name)
		}
	}
	return target, err
}

// stat records that a thing is there: a directory, or a file with its content, since
// an empty one would be a lie.
func (b recording) stat(name string) (Info, error) {
	info, err := b.backend.stat(name)
	if err != nil {
		return info, err
	}
	if real, ok := b.walk(name); ok && info.Mode.IsDir() {
		b.dir(real)
	} else if ok {
		b.read(name)
	}
	return info, nil
}

func (b recording) realpath(name string) (string, error) {
	real, err := b.backend.realpath(name)
	if err == nil {
		if _, statErr := b.stat(name); statErr != nil {
			return real, statErr
		}
	}
	return real, err
}

// walk follows name to where it really is and records the links on the way.
func (b recording) walk(name string) (real string, ok bool) {
	rest := strings.Split(strings.Trim(clean(name), "/"), "/")
	real = "/"
	for links := 0; len(rest) > 0; {
		p := path.Join(real, rest[0])
		rest = rest[1:]
		target, err := b.backend.readlink(p)
		if err != nil {
			real = p
			continue
		}
		if links++; links > maxLinks {
			return "", false
		}
		b.r.mu.Lock()
		b.r.links[p] = target
		b.r.mu.Unlock()
		if !path.IsAbs(target) {
			target = path.Join(real, target)
		}
		rest = append(strings.Split(strings.Trim(path.Clean(target), "/"), "/"), rest...)
		real = "/"
	}
	return real, true
}
