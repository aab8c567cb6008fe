package transport

import (
	"fmt"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

// complete handles one completion of the lane. The engine's mu is held, and the
// connection's.
func (l *lane) complete(wc *verbs.WC) {
	c := l.conn
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
	if buf >= l.buffers() || wc.ByteLen > l.granted.Segment {
		c.fail(fmt.Errorf("completion of buffer %d with %d bytes: %w", buf, wc.ByteLen, ErrProtocol))
		return
	}
	c.check(l.receive(buf, wc))
}

// fellSick handles a failed completion. On a lane in use it means that the peer is
// gone, or that its farewell is on the way: the control goroutine finds out. A
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
		r := &l.records[l.completed%uint64(len(l.records))]
		l.completed++
		switch r.kind {
		case sentMessage:
			l.dataFreed++
			c.done++
			if r.at != 0 {
				c.sentTraffic.time(r.tier, c.t.now()-r.at)
			}
		case sentOffer:
			l.dataFreed++
		case sentWrite:
			l.writes--
		case sentControl:
			l.ctlFreed++
			if r.end != nil {
				c.ended(r.end)
			}
		}
	}
	c.sendReady[min(l.index, c.cur.layout.lanes-1)].ring()
	if c.answering {
		c.answering = false
		c.recvReady.ring()
	}
	if c.cur.has(l) {
		c.check(l.tellCredits())
	}
	c.progressed(l)
}

// progressed looks at what waits for the end of sends and rendezvous.
func (c *Conn) progressed(l *lane) {
	if c.draining && c.isDrained() {
		c.draining = false
		c.inband = append(c.inband, switchover.Event{Kind: switchover.Drained})
		nudge(c.wake)
	}
	if (c.leaving || !c.cur.has(l)) && l.outstanding() == 0 {
		nudge(c.wake)
	}
}

// isDrained reports whether everything that this end sent is complete and no
// answered rendezvous is under way in either direction.
func (c *Conn) isDrained() bool {
	return c.cur.outstanding() == 0 && c.inOpen == 0 && !c.outBusy()
}

// receive handles the segment in receive buffer buf, which wc tells of.
func (l *lane) receive(buf int, wc *verbs.WC) error {
	c := l.conn
	if wc.ByteLen == 0 {
		return l.repeated(buf)
	}
	var h header
	var err error
	if wc.HasImm {
		if !h.expand(wc.Imm, l.arrivedSeq, l.limit) || wc.ByteLen > l.granted.Segment-headerLen {
			return fmt.Errorf("%d bytes with immediate %#08x after message %d: %w", wc.ByteLen, wc.Imm, l.arrivedSeq, ErrProtocol)
		}
	} else if h, err = parseHeader(l.recvBuf(buf)[:wc.ByteLen]); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	switch ahead := int8(h.serial - uint8(l.recvs+1)); {
	case ahead < 0:
		return l.repeated(buf)
	case ahead > 0:
		return fmt.Errorf("%d segments are missing before one of kind %d: %w", ahead, h.kind, ErrProtocol)
	}
	l.recvs++
	if more := h.credits - l.limit; more > maxCredits {
		return fmt.Errorf("%d credits after %d: %w", h.credits, l.limit, ErrProtocol)
	} else if more > 0 {
		l.limit = h.credits
		c.sendReady[min(l.index, c.cur.layout.lanes-1)].ring()
	}
	switch h.kind {
	case segData, segOffer:
		err = l.keep(&h, buf, wc.ByteLen)
	default:
		if err = l.handle(&h); err == nil {
			err = l.repostControl(buf)
		}
	}
	if err == nil && c.ballot.kind != 0 {
		err = c.tally()
	}
	return err
}

// repeated drops a segment that was here before, or an empty one, which nobody sends.
// Soft RoCE was seen to deliver one twice: a timeout that runs out just as the
// acknowledgement comes makes its requester (req_retry in rxe_req.c) number the work
// requests under way anew from one packet later. The last of them is new to the peer's
// device then; what is left of the first, whose bytes count as sent, is empty but for
// its immediate. The buffer was taken out of turn and goes back at once.
func (l *lane) repeated(buf int) error {
	if l.repeats++; l.repeats == 1 {
		l.conn.t.log.Warn("segment delivered twice, dropped", "conn", l.conn.id, "device", l.conn.t.device, "lane", l.index)
	}
	if _, err := l.qp.PostRecv([]verbs.RecvWR{l.recvWR(buf)}); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	return nil
}

// keep puts an arrived message or offer where Recv finds it.
func (l *lane) keep(h *header, buf, n int) error {
	c := l.conn
	if l.ftail-l.fhead == uint64(len(l.fifo)) || h.seq <= l.arrivedSeq {
		return fmt.Errorf("message %d without credit or order: %w", h.seq, ErrProtocol)
	}
	a := &l.fifo[l.ftail%uint64(len(l.fifo))]
	*a = arrived{header: *h, buf: buf}
	if h.kind == segOffer {
		if err := c.offered(h); err != nil {
			return err
		}
	} else {
		a.len = n - a.at()
		c.arrived++
	}
	l.arrivedSeq = h.seq
	if c.cur.has(l) { // else the peer has gone over to the next lanes already
		c.lastSeq = max(c.lastSeq, h.seq)
	}
	l.ftail++
	c.recvReady.ring()
	if c.bye != nil {
		nudge(c.wake)
	}
	return nil
}

// handle handles a segment without a message.
func (l *lane) handle(h *header) error {
	c := l.conn
	switch h.kind {
	case segAnswer:
		return c.answeredBy(l, h)
	case segFinish, segDrop:
		if err := c.finished(h); err != nil {
			return err
		}
		c.progressed(l)
		if c.bye != nil {
			nudge(c.wake)
		}
	case segGone:
		o := c.findOut(h.seq)
		if o == nil || o.state != outWithdrawn || !o.told || o.answered {
			return fmt.Errorf("message %d is gone, but was not given up: %w", h.seq, ErrProtocol)
		}
		c.freeOut(o)
		if c.leaving {
			nudge(c.wake)
		}
	case segVote, segCommit:
		// On a retired lane it is of a switch that was given up.
		if c.cur.has(l) {
			c.ballot = *h
		}
	}
	return nil
}

// tally hands a vote or decision to the control goroutine once everything that the
// peer had sent before is here: completions of different lanes come in any order.
func (c *Conn) tally() error {
	h := c.ballot
	if !c.cur.arrived(h.addr) {
		return nil
	}
	c.ballot = header{}
	// More may be here when the switch was given up while this waited: then its epoch
	// is over, and the machine takes no notice.
	if h.seq > c.lastSeq {
		return fmt.Errorf("switch to epoch %d after message %d, but %d arrived: %w", h.total, h.seq, c.lastSeq, ErrProtocol)
	}
	if len(c.inband) >= maxInband {
		return fmt.Errorf("%d votes and decisions waiting: %w", maxInband, ErrProtocol)
	}
	kind := switchover.Vote
	if h.kind == segCommit {
		kind = switchover.Commit
	}
	c.peerLast = h.seq
	c.inband = append(c.inband, switchover.Event{Kind: kind, Epoch: h.total})
	nudge(c.wake)
	return nil
}

// maxInband is how many events may wait for the control goroutine: a vote or
// decision and a Drained, and those of a switch before that was given up.
const maxInband = 16
