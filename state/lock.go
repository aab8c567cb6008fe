package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A Lock is the right to change the node. The kernel releases it when its owner
// dies, so that a crash needs no ritual.
type Lock struct{ f *os.File }

// An Owner is who holds the lock, as written into its file for others to read. It
// informs people only: the lock itself is the kernel's.
type Owner struct {
	PID     int       `json:"pid"`
	BootID  string    `json:"boot_id"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

// A LockedError says that another process holds the lock.
type LockedError struct {
	Path  string
	Owner Owner // zero when it could not be read
}

func (e *LockedError) Error() string {
	if e.Owner.PID == 0 {
		return fmt.Sprintf("another rdmatune is changing this node (lock %s)", e.Path)
	}
	return fmt.Sprintf("another rdmatune is changing this node: pid %d, %q, since %s (lock %s)",
		e.Owner.PID, e.Owner.Command, e.Owner.Since.Format(time.RFC3339), e.Path)
}

// lockName is the lock's file in the run directory.
const lockName = "lock"

// Acquire takes the node's lock in the run directory, or returns a *LockedError.
func Acquire(runDir string, o Owner) (*Lock, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	path := filepath.Join(runDir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("lock: %w: the node is tuned as root", err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		locked := &LockedError{Path: path}
		if b, err := io.ReadAll(io.LimitReader(f, 4096)); err == nil {
			// What does not parse leaves the owner unknown.
			_ = json.Unmarshal(b, &locked.Owner)
		}
		return nil, locked
	}
	l := &Lock{f: f}
	b, err := json.Marshal(o)
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(append(b, '\n'), 0)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.Release())
	}
	return l, nil
}

// Release gives the lock back. The file stays: removing it would let two processes
// hold locks on different files of the same name.
func (l *Lock) Release() error { return l.f.Close() }
