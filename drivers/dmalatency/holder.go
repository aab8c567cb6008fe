package dmalatency

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// A Holder holds the machine's bound for as long as its process lives. A process has one;
// its methods may be called from several goroutines.
type Holder struct {
	path   string // of the device
	runDir string
	self   identity

	mu     sync.Mutex
	fd     int           // guarded by mu; -1: nothing is held
	opened unix.Stat_t   // guarded by mu: what fd was when it was opened
	asked  int32         // guarded by mu: microseconds, while something is held
	untold error         // guarded by mu: why others cannot know
	faults *sysfs.Faults // guarded by mu
}

// NewHolder returns the holder of this process for the device at path (Device). It holds
// nothing yet. What it holds is told to other processes by a file in runDir.
func NewHolder(path, runDir string) (*Holder, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil, err
	}
	start, err := procs.ParseStart(string(stat))
	if err != nil {
		return nil, fmt.Errorf("/proc/self/stat: %w", err)
	}
	return &Holder{path: path, runDir: runDir, self: identity{PID: os.Getpid(), Start: start}, fd: -1}, nil
}

// InjectFaults makes writes to the device fail as f says. It is for tests.
func (h *Holder) InjectFaults(f *sysfs.Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = f
}

// Hold makes us microseconds the longest wake-up from idle that any CPU may take, until
// another Hold, Release, or the end of the process. The error is about the bound; that
// others cannot be told of it is a note of the driver's.
func (h *Holder) Hold(us int32) error {
	if us < 0 {
		return fmt.Errorf("%s: %d us is no time", h.path, us)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd >= 0 && !h.alive() {
		h.drop()
	}
	fd := h.fd
	if fd < 0 {
		var err error
		if fd, err = openDevice(h.path); err != nil {
			return err
		}
		if err := unix.Fstat(fd, &h.opened); err != nil {
			_ = unix.Close(fd) // nothing is held yet
			return &os.PathError{Op: "stat", Path: h.path, Err: err}
		}
	}
	if err := h.write(fd, us); err != nil {
		if h.fd < 0 {
			_ = unix.Close(fd) // a bound that was not taken
		}
		return err
	}
	h.fd, h.asked = fd, us
	h.untold = announce(h.runDir, announcement{h.self, us})
	return nil
}

func openDevice(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// write gives the kernel the bound, as a binary s32 in one write.
func (h *Holder) write(fd int, us int32) error {
	err := h.faults.Check(h.path)
	if err == nil {
		var n int
		n, err = unix.Pwrite(fd, binary.NativeEndian.AppendUint32(nil, uint32(us)), 0)
		if err == nil && n != 4 {
			err = io.ErrShortWrite
		}
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: h.path, Err: err}
	}
	return nil
}

// Release lets the bound go; when nothing is held it does nothing.
func (h *Holder) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd >= 0 {
		h.drop()
	}
}

// drop forgets the descriptor, and the kernel the bound with it. A number that somebody
// else has closed, and perhaps opened as something else, is not ours to close. The caller
// holds mu.
func (h *Holder) drop() {
	if h.same() {
		_ = unix.Close(h.fd) // the kernel lets go whatever it says
	}
	h.fd = -1
	withdraw(h.runDir)
}

// Value returns what is held, in microseconds; ok is false when nothing is, also after the
// descriptor has died.
func (h *Holder) Value() (us int32, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked, h.alive()
}

// Alive reports whether a bound is held and in effect.
func (h *Holder) Alive() bool {
	_, ok := h.Value()
	return ok
}

// alive asks the descriptor: it must still be the device's, and the bound in effect, which
// is the smallest of all holders', not above ours. The caller holds mu.
func (h *Holder) alive() bool {
	us, ok := h.effective()
	return ok && us <= h.asked
}

// effective is the smallest bound of all holders, in microseconds; ok is false when this
// one has no descriptor to ask. The caller holds mu.
func (h *Holder) effective() (us int32, ok bool) {
	if h.fd < 0 || !h.same() {
		return 0, false
	}
	var b [4]byte
	if n, err := unix.Pread(h.fd, b[:], 0); err != nil || n != len(b) {
		return 0, false
	}
	us = int32(binary.NativeEndian.Uint32(b[:]))
	return us, us >= 0
}

// same reports whether the descriptor is what was opened. The caller holds mu.
func (h *Holder) same() bool {
	var now unix.Stat_t
	return unix.Fstat(h.fd, &now) == nil && now.Dev == h.opened.Dev && now.Ino == h.opened.Ino && now.Rdev == h.opened.Rdev
}

// note is what there is to say of the bound that is held, "" for nothing.
func (h *Holder) note() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	us, ok := h.effective()
	switch {
	case !ok:
		return ""
	case us < h.asked:
		return fmt.Sprintf("another process holds %dus, which is in effect", us)
	case h.untold != nil:
		return fmt.Sprintf("held, but other processes cannot know: %v", h.untold)
	}
	return ""
}
