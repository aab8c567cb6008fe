package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

// A waiter waits on one of the library's descriptors in Go's poller, without a
// thread of its own.
type waiter struct {
	file *os.File // a duplicate: the library closes its own descriptor
	raw  syscall.RawConn
}

func newWaiter(fd int, what string) (*waiter, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	w := &waiter{file: os.NewFile(uintptr(dup), what)}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return w, nil
}

// shutdown ends waiting for good.
func (w *waiter) shutdown() error {
	if err := w.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

type channel struct {
	*waiter
	ch   ibv.Channel
	take func(fd uintptr) bool
	err  error // of take
}

func newChannel(ch ibv.Channel) (*channel, error) {
	w, err := newWaiter(ch.FD(), "completion channel")
	if err != nil {
		return nil, err
	}
	c := &channel{waiter: w, ch: ch}
	c.take = func(uintptr) bool {
		var n int
		n, c.err = c.ch.TakeEvents()
		return n > 0 || c.err != nil
	}
	return c, nil
}

// Wait is called by one goroutine.
func (c *channel) Wait() error {
	if err := c.raw.Read(c.take); err != nil {
		return os.ErrClosed
	}
	return c.err
}

func (c *channel) Shutdown() error { return c.shutdown() }

func (c *channel) Close() error { return errors.Join(c.shutdown(), c.ch.Close()) }
