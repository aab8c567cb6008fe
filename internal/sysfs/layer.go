package sysfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A View is what an Emulator may look at: a tree at rest and what was written over it.
type View struct {
	tree  tree
	layer *layer
}

// Base returns the content that the file at canonical path name has at rest.
func (v View) Base(name string) ([]byte, error) { return v.tree.read(name) }

// Written returns what the last write to name left to be remembered.
func (v View) Written(name string) ([]byte, bool, error) { return v.layer.stored(name) }

// Current returns what name shows: what was written, else what it has at rest.
func (v View) Current(name string) ([]byte, error) {
	if b, ok, err := v.Written(name); ok || err != nil {
		return b, err
	}
	return v.Base(name)
}

// An Emulator gives the files of a tree at rest the manners of the kernel's. Names
// are relative to the root: "proc/irq/30/smp_affinity_list".
type Emulator interface {
	// Write checks a write to name, a file with the given mode, as the kernel's handler
	// of it would. It returns what is to be remembered, and under which name, or an
	// errno.
	Write(v View, name string, mode fs.FileMode, value []byte) (as string, content []byte, err error)
	// Read returns what name shows when that follows from other writes; ok is false
	// when name is nothing special.
	Read(v View, name string) (content []byte, ok bool, err error)
}

// layer keeps what was written to a tree at rest: one file per written file, below
// dir, each put in place by a rename, so that a process killed at any instant
// leaves the old value or the new one.
type layer struct {
	dir string // made at the first write
	emu Emulator
}

func (l *layer) read(t tree, name string) ([]byte, error) {
	v := View{t, l}
	if l.emu != nil {
		if b, ok, err := l.emu.Read(v, name); ok || err != nil {
			return b, err
		}
	}
	return v.Current(name)
}

func (l *layer) write(t tree, name string, mode fs.FileMode, value []byte) error {
	err := CheckMode(name, mode)
	if l.emu != nil {
		name, value, err = l.emu.Write(View{t, l}, name, mode, value)
	}
	if err != nil {
		return err
	}
	target := filepath.Join(l.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	return replaceFile(l.dir, target, value)
}

// stored returns what the layer has for name.
func (l *layer) stored(name string) ([]byte, bool, error) {
	b, err := os.ReadFile(filepath.Join(l.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// replaceFile puts value at target by a rename. It does not wait for the disk: the
// layer stands for a machine's volatile settings, which a power cut resets anyway.
func replaceFile(tmpDir, target string, value []byte) error {
	tmp, err := os.CreateTemp(tmpDir, ".write-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(value)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// CheckMode refuses a write to a read-only file, to root as well, as the kernel
// does: EACCES in sysfs; EPERM in proc, where it means that an interrupt's affinity
// is the kernel's own.
func CheckMode(name string, mode fs.FileMode) error {
	switch {
	case mode.Perm()&0o222 != 0:
		return nil
	case strings.HasPrefix(name, "proc/"):
		return syscall.EPERM
	}
	return syscall.EACCES
}
