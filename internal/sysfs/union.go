package sysfs

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// union shows the files of top above those of base. A directory that both have
// shows the names of both.
type union struct {
	top  *Mem // nil for none
	base tree
}

// of returns the tree that has name, base when none has.
func (u union) of(name string) tree {
	if u.top != nil {
		if _, err := u.top.lstat(name); err == nil {
			return u.top
		}
	}
	return u.base
}

func (u union) lstat(name string) (fs.FileMode, error) { return u.of(name).lstat(name) }
func (u union) readlink(name string) (string, error)   { return u.of(name).readlink(name) }
func (u union) read(name string) ([]byte, error)       { return u.of(name).read(name) }
func (u union) close() error                           { return u.base.close() }

func (u union) list(name string) ([]string, error) {
	names, err := u.base.list(name)
	if u.top == nil {
		return names, err
	}
	more, topErr := u.top.list(name)
	switch {
	case topErr != nil:
		return names, err
	case err != nil && !errors.Is(err, syscall.ENOENT):
		return nil, err
	}
	for _, n := range more {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names, nil
}
