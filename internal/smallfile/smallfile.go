// Package smallfile opens and reads regular files that are expected to be small, where
// something else may be in their place: a pipe that nobody writes to, a device without an
// end, a file that fills the memory, another user's file or a link to one.
package smallfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Rule is what is asked of a file, beside being a regular one.
type Rule uint8

const (
	// Any asks nothing else; a link is followed.
	Any Rule = iota
	// Trusted asks that nobody but root and this user decides what the file says: it is
	// one of them who owns it, nobody else may write it, and its name is no link.
	Trusted
	// Private asks that the file is this user's, that nobody else may read or write it,
	// and that its name is no link.
	Private
)

// patience is how long a file may take to be read that can be waited for.
var patience = 10 * time.Second

// Open opens a file for reading, at once whatever it is, and refuses one that does not
// keep the rule. The rule is checked of what was opened: a name that gets another file
// afterwards changes nothing.
func Open(name string, rule Rule) (*os.File, error) {
	// Without O_NONBLOCK, a pipe would wait for its writer; without O_NOCTTY, a terminal
	// could become a daemon's own.
	flags, stat := os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, os.Stat
	if rule != Any {
		flags, stat = flags|unix.O_NOFOLLOW, os.Lstat
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		// The error of a link is ELOOP, and of a socket ENXIO: both say little.
		if info, statErr := stat(name); statErr == nil && !info.Mode().IsRegular() {
			err = notRegular(name, info)
		}
		// What a link leads to may be on a disk that is not mounted: it is not missing.
		if _, statErr := os.Lstat(name); statErr == nil && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: a symbolic link to a file that is not there", name)
		}
		return nil, err
	}
	// Some files of procfs have nothing to read until something happens, and are waited for.
	// The others, which cannot be waited for, take no deadline.
	_ = f.SetReadDeadline(time.Now().Add(patience))
	info, err := f.Stat()
	if err == nil {
		err = rule.check(name, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read reads a file of at most limit bytes that keeps the rule.
func Read(name string, limit int64, rule Rule) ([]byte, error) {
	f, err := Open(name, rule)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// The size saves the reading of a file that is too large, and the copying of one that
	// is not. It promises nothing: a file may grow, and those of procfs have none.
	size := info.Size()
	var b bytes.Buffer
	if size <= limit {
		b.Grow(int(size) + bytes.MinRead)
		size, err = b.ReadFrom(io.LimitReader(f, limit+1))
	}
	if err == nil && size > limit {
		err = fmt.Errorf("%s: larger than %s", name, bytesOf(limit))
	}
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (r Rule) check(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return notRegular(name, info)
	}
	owner, me, perm := info.Sys().(*syscall.Stat_t).Uid, os.Geteuid(), info.Mode().Perm()
	switch {
	case r != Any && int(owner) != me && (r == Private || owner != 0):
		return fmt.Errorf("%s: it belongs to user %d, not to user %d", name, owner, me)
	case r == Trusted && perm&0o022 != 0:
		return fmt.Errorf("%s: others may write it (mode %#o)", name, perm)
	case r == Private && perm&0o077 != 0:
		return fmt.Errorf("%s: others may read or write it (mode %#o)", name, perm)
	}
	return nil
}

func notRegular(name string, info fs.FileInfo) error {
	what := "a device"
	switch info.Mode().Type() {
	case fs.ModeDir:
		what = "a directory"
	case fs.ModeSymlink:
		what = "a symbolic link"
	case fs.ModeNamedPipe:
		what = "a pipe"
	case fs.ModeSocket:
		what = "a socket"
	}
	return fmt.Errorf("%s: %s, not a regular file", name, what)
}

// bytesOf writes n in the largest unit of which it is a whole number.
func bytesOf(n int64) string {
	units := []string{" bytes", " KiB", " MiB", " GiB"}
	for len(units) > 1 && n > 0 && n%1024 == 0 {
		n, units = n/1024, units[1:]
	}
	return strconv.FormatInt(n, 10) + units[0]
}
