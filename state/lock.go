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
	// Spec is the root of the spec that a daemon keeps.
	Spec string `json:"spec,omitempty"`
	// Given identifies what gave that spec's variables their values (Spec.Given).
	Given string `json:"given,omitempty"`
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

// The locks' files in the run directory.
const (
	lockName   = "lock"
	daemonName = "reconcile.lock"
)

// Acquire takes the node's lock in the run directory, or returns a *LockedError.
func Acquire(runDir string, o Owner) (*Lock, error) { return acquire(runDir, lockName, o) }

// A DaemonError says that a daemon keeps this node.
type DaemonError struct{ Owner Owner }

func (e *DaemonError) Error() string {
	if e.Owner.PID == 0 {
		return "another rdmatune reconcile keeps this node"
	}
	return fmt.Sprintf("rdmatune reconcile, pid %d, keeps this node as %s wants it, since %s", e.Owner.PID, e.Owner.Spec, e.Owner.Since.Format(time.RFC3339))
}

// AcquireDaemon takes the lock that a daemon holds as long as it lives, beside the node's
// lock for each pass, or returns a *DaemonError.
func AcquireDaemon(runDir string, o Owner) (*Lock, error) {
	for try := 1; ; try++ {
		l, err := acquire(runDir, daemonName, o)
		locked, ok := errors.AsType[*LockedError](err)
		switch {
		case !ok:
			return l, err
		case try == daemonTries:
			return nil, &DaemonError{locked.Owner}
		}
		time.Sleep(daemonPause)
	}
}

// Whoever asks for the daemon holds its lock for a moment.
const (
	daemonTries = 10
	daemonPause = 50 * time.Millisecond
)

// Daemon returns a *DaemonError when a daemon keeps the node, and nil when none does.
func Daemon(runDir string) error {
	for try := 1; ; try++ {
		err := daemon(runDir)
		d, running := errors.AsType[*DaemonError](err)
		if !running || d.Owner.PID != 0 || try == daemonTries {
			return err
		}
		time.Sleep(daemonPause) // it has the lock, and is about to write who it is
	}
}

func daemon(runDir string) error {
	path := filepath.Join(runDir, daemonName)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return &DaemonError{owner(f)}
	case err != nil:
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return nil
}

// owner is what a lock's file says; what does not parse leaves the owner unknown.
func owner(f *os.File) (o Owner) {
	if b, err := io.ReadAll(io.LimitReader(f, 4096)); err == nil {
		_ = json.Unmarshal(b, &o)
	}
	return o
}

func acquire(runDir, name string, o Owner) (*Lock, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	path := filepath.Join(runDir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = f.Chmod(0o600) // whoever may open it may lock it
	}
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
		return nil, &LockedError{Path: path, Owner: owner(f)}
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

// Held returns an error when the lock's file is no longer the one in the run directory, so
// that another can hold a lock of the same name.
func (l *Lock) Held() error {
	mine, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	there, err := os.Lstat(l.f.Name())
	if err == nil && !os.SameFile(mine, there) {
		err = errors.New("it is another file now")
	}
	if err != nil {
		return fmt.Errorf("lock %s is lost: %w", l.f.Name(), err)
	}
	return nil
}

// Release gives the lock back. The file stays: removing it would let two processes
// hold locks on different files of the same name.
func (l *Lock) Release() error { return l.f.Close() }
