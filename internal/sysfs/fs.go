// Package sysfs reads and writes kernel files (/sys, /proc and what tells of them)
// below a root that is a value, never a global: the real root, a captured
// directory, an archive in memory, or a generated tree. The last three are never
// written: what is written to them goes to a copy-on-write layer on disk.
package sysfs

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// MaxFile bounds what is read of one file. /proc/interrupts of a machine with 1152
// CPUs has 12.7 KB a line; 4000 lines of it stay below this.
const MaxFile = 64 << 20

// An FS is a tree of kernel files. Paths are absolute ("/sys/class/net"). Errors
// are *fs.PathError around an errno. The zero FS has no files.
type FS struct {
	b      backend
	faults *Faults
}

// Info is what Stat tells of a file.
type Info struct {
	Mode  fs.FileMode
	Ident uint64 // inode number, 0 where the tree is not the running kernel's
}

// backend is what a kind of root has to offer. All paths are absolute and clean.
type backend interface {
	read(name string) ([]byte, error)
	write(name string, value []byte) error
	list(name string) ([]string, error)
	readlink(name string) (string, error)
	stat(name string) (Info, error)
	realpath(name string) (string, error)
	close() error
}

// clean makes name absolute and free of "." and "..", which then cannot leave the root.
func clean(name string) string { return path.Clean("/" + name) }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// ReadFile returns the content of name, at most MaxFile bytes.
func (f FS) ReadFile(name string) ([]byte, error) {
	if f.b == nil {
		return nil, pathError("read", name, syscall.ENOENT)
	}
	return f.b.read(clean(name))
}

// ReadString returns the content of name without padding NULs and without
// surrounding white space.
func (f FS) ReadString(name string) (string, error) {
	b, err := f.ReadFile(name)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(strings.TrimRight(string(b), "\x00")), nil
}

// ReadInt returns the decimal integer that is the whole content of name.
func (f FS) ReadInt(name string) (int64, error) {
	s, err := f.ReadString(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, pathError("read", name, errors.New("not an integer: "+strconv.Quote(s[:min(len(s), 40)])))
	}
	return n, nil
}

// WriteFile hands value to the kernel in one write, as its handlers expect. The
// file must exist. The value is the whole new content: there is no offset and no
// truncation.
func (f FS) WriteFile(name, value string) error {
	name = clean(name)
	if err := f.faults.Check(name); err != nil {
		return pathError("write", name, err)
	}
	if f.b == nil {
		return pathError("write", name, syscall.ENOENT)
	}
	return f.b.write(name, []byte(value))
}

// ReadDir returns the names in directory name, sorted.
func (f FS) ReadDir(name string) ([]string, error) {
	if f.b == nil {
		return nil, pathError("readdir", name, syscall.ENOENT)
	}
	names, err := f.b.list(clean(name))
	slices.Sort(names)
	return names, err
}

// Numbered returns the numbers N, ascending, of the entries of dir that are called
// prefixN, without leading zeros.
func (f FS) Numbered(dir, prefix string) ([]int, error) {
	names, err := f.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		text, ok := strings.CutPrefix(name, prefix)
		n, err := strconv.Atoi(text)
		if ok && err == nil && n >= 0 && strconv.Itoa(n) == text {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Readlink returns the target of the symbolic link name.
func (f FS) Readlink(name string) (string, error) {
	if f.b == nil {
		return "", pathError("readlink", name, syscall.ENOENT)
	}
	return f.b.readlink(clean(name))
}

// Stat follows links.
func (f FS) Stat(name string) (Info, error) {
	if f.b == nil {
		return Info{}, pathError("stat", name, syscall.ENOENT)
	}
	return f.b.stat(clean(name))
}

// Exists reports whether name is there, links followed.
func (f FS) Exists(name string) bool {
	_, err := f.Stat(name)
	return err == nil
}

// IsDir reports whether name is a directory, links followed.
func (f FS) IsDir(name string) bool {
	info, err := f.Stat(name)
	return err == nil && info.Mode.IsDir()
}

// Realpath returns name without symbolic links. The file must exist.
func (f FS) Realpath(name string) (string, error) {
	if f.b == nil {
		return "", pathError("realpath", name, syscall.ENOENT)
	}
	return f.b.realpath(clean(name))
}

// Ident returns an identity of the kernel object behind name, which is another one
// after the object was removed and made anew; 0 when there is none.
func (f FS) Ident(name string) uint64 {
	info, err := f.Stat(name)
	if err != nil {
		return 0
	}
	return info.Ident
}

// WithFaults returns f with writes that fail as fl says. It is for tests.
func (f FS) WithFaults(fl *Faults) FS {
	f.faults = fl
	return f
}

// Close releases what the tree holds open.
func (f FS) Close() error {
	if f.b == nil {
		return nil
	}
	return f.b.close()
}
