package transport

import (
	"fmt"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

// complete handles one completion of the lane. The engine's mu is held.
func (l *lane) complete(wc *verbs.WC) {
	c := l.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.closed {
		return
	}
	if wc.Status != verbs.StatusSuccess {
		l.fellSick(wc.Status)
		return
	}
	low := uint32(wc.ID)
	if low&recvBit == 0 {
		l.completeSends(low)
		return
	}
	buf := int(low &^ recvBit)
	if buf >= l.granted.Credits+controlDepth || wc.ByteLen > l.granted.Segment {
		c.fail(fmt.Errorf("completion of buffer %d with %d bytes: %w", buf, wc.ByteLen, ErrProtocol))
		return
	}
	if err := l.receive(buf, wc.ByteLen); err != nil {
		c.fail(err)
	}
}

// fellSick handles a failed completion. On the lane in use it means that the peer
// is gone, or that its farewell is on the way: the control goroutine finds out. A
// retired lane has nothing to lose, since the switch away from it was agreed on when
// everything on it had arrived.
func (l *lane) fellSick(status verbs.Status) {
	if !l.sick {
		l.sick, l.status = true, status
		nudge(l.conn.wake)
	}
}

// completeSends completes every send up to and including the one whose position
// ends in low.
func (l *lane) completeSends(low uint32) {
	c := l.conn
	ahead := uint64((low-uint32(l.completed))&(recvBit-1)) + 1
	if ahead > l.posted-l.completed {
		c.fail(fmt.Errorf("completion of a send that was not posted: %w", ErrProtocol))
		return
	}
	for range ahead {
		r := l.records[l.completed%uint64(len(l.records))]
		l.completed++
		if r.data {
			l.dataFreed++
		} else {
			l.ctlFreed++
		}
		if r.end {
			c.done++
		}
	}
	nudge(c.sendReady)
	if l == c.cur {
		if err := l.tellCredits(); err != nil {
			c.fail(err)
		}
	}
	if l.outstanding() == 0 {
		if l == c.cur && c.draining {
			c.tellDrained()
		} else if l != c.cur || c.leaving {
			nudge(c.wake)
		}
	}
}

// tellDrained hands Drained to the control goroutine, once.
func (c *Conn) tellDrained() {
	c.draining = false
	c.inband = append(c.inband, switchover.Event{Kind: switchover.Drained})
	nudge(c.wake)
}

// receive handles an arrived segment.
func (l *lane) receive(buf, n int) error {
	c := l.conn
	h, err := parseHeader(l.recvBuf(buf)[:n])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if more := int32(h.credits - l.limit); more > 0 {
		if more > maxCredits {
			return fmt.Errorf("%d credits at once: %w", more, ErrProtocol)
		}
		l.limit = h.credits
		nudge(c.sendReady)
	}
	switch h.kind {
	case segData, segAbandon:
		if l.ftail-l.fhead == uint64(len(l.fifo)) || h.seq < l.arrivedSeq {
			return fmt.Errorf("segment of message %d without credit or order: %w", h.seq, ErrProtocol)
		}
		l.arrivedSeq = h.seq
		l.fifo[l.ftail%uint64(len(l.fifo))] = arrived{h, buf, n - headerLen}
		l.ftail++
		if h.kind == segAbandon || int(h.offset)+n-headerLen == int(h.total) {
			c.arrived++
		}
		nudge(c.recvReady)
		if c.bye != nil {
			nudge(c.wake)
		}
		return nil
	case segVote, segCommit:
		kind := switchover.Vote
		if h.kind == segCommit {
			kind = switchover.Commit
		}
		if h.seq != l.arrivedSeq {
			return fmt.Errorf("switch to epoch %d after message %d, but %d arrived: %w", h.total, h.seq, l.arrivedSeq, ErrProtocol)
		}
		if len(c.inband) >= maxInband {
			return fmt.Errorf("%d votes and decisions waiting: %w", maxInband, ErrProtocol)
		}
		c.inband = append(c.inband, switchover.Event{Kind: kind, Epoch: h.total})
		nudge(c.wake)
	}
	l.one[0] = l.recvWR(buf)
	if _, err := l.qp.PostRecv(l.one[:]); err != nil {
		return fmt.Errorf("post receive: %w", err)
	}
	return nil
}

// maxInband is how many events may wait for the control goroutine: a vote or
// decision and a Drained, and those of a switch before that was given up.
const maxInband = 16
