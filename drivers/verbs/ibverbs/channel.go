package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

// A channel waits for completion events in Go's poller, without a thread of its own.
type channel struct {
	ch   ibv.Channel
	file *os.File // a duplicate: the library closes its own descriptor
	raw  syscall.RawConn
	take func(fd uintptr) bool
	err  error // of take
}

func newChannel(ch ibv.Channel) (*channel, error) {
	if err := unix.SetNonblock(ch.FD(), true); err != nil {
		return nil, fmt.Errorf("completion channel: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(ch.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("completion channel: %w", err)
	}
	c := &channel{ch: ch, file: os.NewFile(uintptr(fd), "completion channel")}
	if c.raw, err = c.file.SyscallConn(); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("completion channel: %w", err)
	}
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

func (c *channel) Shutdown() error {
	if err := c.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (c *channel) Close() error { return errors.Join(c.Shutdown(), c.ch.Close()) }
