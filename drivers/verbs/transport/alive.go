package transport

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// defaultDeadTime is how long a peer's host may be silent.
const defaultDeadTime = 10 * time.Second

// deadTime returns what Options.DeadTime means.
func deadTime(d time.Duration) time.Duration {
	if d == 0 {
		return defaultDeadTime
	}
	return min(max(d, time.Second), time.Hour)
}

// keepAlive finds a dead peer within dead, whether the channel is idle or not. A
// stalled process does not look dead, since its kernel answers.
func keepAlive(c *net.TCPConn, dead time.Duration) error {
	// Both count whole seconds, at least one.
	err := c.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: max(dead/2, time.Second), Interval: max(dead/10, time.Second), Count: 5,
	})
	if err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(dead.Milliseconds()))
	})
	return errors.Join(err, serr)
}
