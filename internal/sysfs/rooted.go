package sysfs

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// A tree is files at rest. Names are canonical: relative to the tree's root, "."
// for the root, no link on the way; nothing is followed.
type tree interface {
	lstat(name string) (fs.FileMode, error)
	readlink(name string) (string, error)
	read(name string) ([]byte, error)
	list(name string) ([]string, error)
	close() error
}

// maxLinks is how many symbolic links one path may lead over; the kernel's own
// limit (MAXSYMLINKS).
const maxLinks = 40

// rooted is a tree at rest with a copy-on-write layer above it.
type rooted struct {
	tree  tree
	layer *layer
}

// resolve follows the links of name inside the tree: an absolute target starts at
// the tree's root again, and ".." stays at the root. The result is canonical.
func (r rooted) resolve(name string) (string, fs.FileMode, error) {
	rest := strings.Split(strings.Trim(name, "/"), "/")
	at, mode, links := ".", fs.ModeDir, 0
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			at, mode = path.Dir(at), fs.ModeDir
			continue
		}
		if !mode.IsDir() {
			return "", 0, syscall.ENOTDIR
		}
		next := path.Join(at, elem)
		m, err := r.tree.lstat(next)
		if err != nil {
			return "", 0, err
		}
		if m.Type() != fs.ModeSymlink {
			at, mode = next, m
			continue
		}
		if links++; links > maxLinks {
			return "", 0, syscall.ELOOP
		}
		target, err := r.tree.readlink(next)
		if err != nil {
			return "", 0, err
		}
		if strings.HasPrefix(target, "/") {
			at = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, mode, nil
}

func (r rooted) read(name string) ([]byte, error) {
	at, mode, err := r.resolve(name)
	switch {
	case err != nil:
		return nil, pathError("read", name, err)
	case mode.IsDir():
		return nil, pathError("read", name, syscall.EISDIR)
	case !mode.IsRegular():
		return nil, pathError("read", name, syscall.ENXIO)
	}
	b, err := r.layer.read(r.tree, at)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return b, nil
}

func (r rooted) write(name string, value []byte) error {
	at, mode, err := r.resolve(name)
	switch {
	case err != nil:
	case mode.IsDir():
		err = syscall.EISDIR
	case !mode.IsRegular():
		err = syscall.ENXIO
	default:
		err = r.layer.write(r.tree, at, mode, value)
	}
	if err != nil {
		return pathError("write", name, err)
	}
	return nil
}

func (r rooted) list(name string) ([]string, error) {
	at, mode, err := r.resolve(name)
	if err == nil && !mode.IsDir() {
		err = syscall.ENOTDIR
	}
	var names []string
	if err == nil {
		names, err = r.tree.list(at)
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	return names, nil
}

func (r rooted) readlink(name string) (string, error) {
	dir, err := r.realpath(path.Dir(name))
	if err != nil {
		return "", err
	}
	target, err := r.tree.readlink(path.Join(".", dir, path.Base(name)))
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return target, nil
}

func (r rooted) stat(name string) (Info, error) {
	_, mode, err := r.resolve(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Mode: mode}, nil
}

func (r rooted) realpath(name string) (string, error) {
	at, _, err := r.resolve(name)
	if err != nil {
		return "", pathError("realpath", name, err)
	}
	return path.Join("/", at), nil
}

func (r rooted) close() error { return r.tree.close() }
