package transport

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers/verbs"
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

// pathLooks is how often the transport looks, within the dead time, whether sends complete.
const pathLooks = 5

// watchPaths ends connections on which no send has completed for the dead time. A path can
// be dead while the host at its other end answers on the control channel: its port is gone,
// a filter drops its packets. Most devices say so after their retries; soft RoCE, which
// takes seven for any number (COMPST_ERROR_RETRY in rxe_comp.c), tries for ever.
func (t *Transport) watchPaths() {
	tick := time.NewTicker(t.deadTime / pathLooks)
	defer tick.Stop()
	for {
		select {
		case <-t.closing.Done():
			return
		case <-tick.C:
		}
		live := t.live()
		if len(live) > 0 {
			t.eng.progress() // what came while this process was stopped counts
		}
		for _, c := range live {
			c.watchPath()
		}
	}
}

func (c *Conn) watchPath() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	for _, l := range c.cur.lanes {
		if l.stands() {
			// The first look counts, whenever the send was posted before it.
			least := c.t.deadTime / pathLooks * (pathLooks - 1)
			c.fail(fmt.Errorf("qp %#x: no send has completed for at least %v: %w", l.qp.Num(), least, ErrPeerGone))
			return
		}
		if !c.holding && !c.leaving {
			c.check(l.markPause())
		}
	}
	for _, s := range c.retired {
		for _, l := range s.lanes {
			if l.stands() {
				l.fellSick(verbs.StatusRetryExc)
			}
		}
	}
}

// markPause posts a marker after the last segment before a pause: its completion is asked
// for, and from its serial the peer sees whether anything before it is missing. Caller
// holds conn.mu.
func (l *lane) markPause() (err error) {
	if l.sends == l.sendsSeen && l.sends != l.marked && l.controlRoom() > 0 {
		err = l.postControl(header{kind: segMarker})
		l.marked = l.sends
	}
	l.sendsSeen = l.sends
	return err
}

// stands reports whether a completion is due and none has come while the transport looked
// pathLooks times. Caller holds conn.mu.
func (l *lane) stands() bool {
	due := l.outstanding() > l.unsignaled // no completion tells of sends after the last signaled one
	if !due || l.completed != l.seen || l.sick || l.closed {
		l.seen, l.still = l.completed, 0
		return false
	}
	l.still++
	return l.still >= pathLooks
}
