// Package rundir finds and makes rdmatune's run directory: where the node's lock, the
// control sockets of processes and the published hints are.
package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// system is the machine's run directory.
const system = "/run/rdmatune"

// Default is the run directory of this machine: $RDMATUNE_RUN_DIR; else
// /run/rdmatune for root, and for others when it is there; else rdmatune below
// $XDG_RUNTIME_DIR; else /tmp/rdmatune-UID. It need not exist: see Make.
func Default() string {
	if dir := os.Getenv("RDMATUNE_RUN_DIR"); dir != "" {
		if full, err := filepath.Abs(dir); err == nil {
			return full
		}
	}
	if info, err := os.Stat(system); os.Geteuid() == 0 || err == nil && info.IsDir() {
		return system
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "rdmatune")
	}
	return filepath.Join(os.TempDir(), "rdmatune-"+strconv.Itoa(os.Geteuid()))
}

// Make makes a run directory where it is missing: the machine's own for all to
// look into, any other for its owner alone. One that is there must be a directory,
// no link, of this user or root, that others cannot write: whoever can decides what
// is in it, and /tmp is open to all.
func Make(dir string) error {
	perm := os.FileMode(0o700)
	if dir == system {
		perm = 0o755
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = os.Mkdir(dir, perm)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("run directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("run directory %s: not a directory", dir)
	case ok && st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("run directory %s: belongs to user %d", dir, st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("run directory %s: others may write it (mode %o)", dir, info.Mode().Perm())
	}
	return nil
}
