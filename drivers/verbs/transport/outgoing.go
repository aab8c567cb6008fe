package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// An outState is where an outgoing rendezvous stands.
type outState uint8

const (
	outFree      outState = iota
	outOffered            // waits for the peer's answer
	outAnswered           // is being written
	outEnding             // FIN or DROP is posted; its completion says that all writes are complete
	outEnded              // complete, for its Send to see
	outWithdrawn          // its Send is gone; the peer is to know, or to answer
)

// An outgoing is a rendezvous of this end. Its fields are guarded by Conn.mu.
type outgoing struct {
	state     outState
	seq       uint64
	mem       span   // the Send's, valid until that has seen the end
	lane      int    // index
	epoch     uint32 // of the lanes on which it was answered
	answered  bool
	cancelled bool // ends with DROP
	told      bool // withdrawn: DROP is posted
	off       int  // bytes posted
	addr      uint64
	rkey      uint32
	at        time.Duration // offered
	done      *bell         // state may have changed
	wait      waiter        // what is known of the waits of Sends that have had the place
}

// offer offers the claimed memory m to the peer, when lane i has room for it.
// Caller holds mu.
func (c *Conn) offer(i int, m *span) (*outgoing, error) {
	l := c.cur.lanes[i]
	limit := maxRendezvous
	if c.cur.layout.lanes > 1 {
		limit -= maxRendezvous / 4 // one lane's shall not keep out the other's
	}
	if l.room() <= 0 || c.outOpen[i] >= limit {
		return nil, nil
	}
	for k := range c.out {
		o := &c.out[k]
		if o.state != outFree {
			continue
		}
		c.sentSeq++
		*o = outgoing{state: outOffered, seq: c.sentSeq, mem: *m, lane: i, at: c.t.now(), done: o.done, wait: o.wait}
		c.outOpen[i]++
		return o, l.postOffer(o.seq, m.len)
	}
	return nil, nil
}

// findOut returns the open rendezvous with sequence seq, or nil. Caller holds mu.
func (c *Conn) findOut(seq uint64) *outgoing {
	for i := range c.out {
		if o := &c.out[i]; o.state != outFree && o.state != outEnded && o.seq == seq {
			return o
		}
	}
	return nil
}

// freeOut makes o's place free. Caller holds mu.
func (c *Conn) freeOut(o *outgoing) {
	c.outOpen[o.lane]--
	*o = outgoing{done: o.done, wait: o.wait}
	c.ringSenders()
}

// outBusy reports whether a rendezvous of this end is being written, or given up
// without the peer knowing. Caller holds mu.
func (c *Conn) outBusy() bool {
	for i := range c.out {
		o := &c.out[i]
		if o.state == outAnswered || o.state == outEnding || o.state == outWithdrawn && o.answered {
			return true
		}
	}
	return false
}

// answeredBy handles the peer's answer h, which came on lane l. Caller holds mu.
func (c *Conn) answeredBy(l *lane, h *header) error {
	o := c.findOut(h.seq)
	if o == nil || o.answered {
		return fmt.Errorf("answer to message %d, which was not offered: %w", h.seq, ErrProtocol)
	}
	if o.state == outWithdrawn && o.told {
		c.freeOut(o)
		return nil
	}
	o.answered = true
	o.addr, o.rkey = h.addr, h.rkey
	o.epoch = c.cur.epoch
	if c.next.has(l) {
		// The peer has gone over to the new lanes already. So will this end.
		o.epoch = c.next.epoch
	}
	if o.state == outOffered {
		o.state = outAnswered
	}
	return nil
}

// carryOn posts what rendezvous have to post, as far as there is room, all together:
// a device has more to do at once, and is told once. A switch that holds new requests
// waits for those that are answered. Caller holds mu.
func (c *Conn) carryOn() error {
	if c.err != nil || c.outOpen == [maxLanes]int{} && len(c.goneOffers) == 0 {
		return nil
	}
	for n := range len(c.out) {
		o := &c.out[(c.outNext+n)%len(c.out)]
		if o.state != outAnswered && (o.state != outWithdrawn || o.told) {
			continue
		}
		if o.answered && o.epoch != c.cur.epoch || !o.answered && c.holding {
			continue
		}
		if err := c.advance(o); err != nil {
			return err
		}
	}
	c.outNext = (c.outNext + 1) % len(c.out)
	for _, l := range c.cur.lanes {
		if err := l.flush(); err != nil {
			return err
		}
	}
	for l := c.cur.lanes[0]; len(c.goneOffers) > 0 && !c.holding && l.controlRoom() > 0; {
		if err := l.postControl(header{kind: segGone, seq: c.goneOffers[0]}); err != nil {
			return err
		}
		c.goneOffers = append(c.goneOffers[:0], c.goneOffers[1:]...)
	}
	return nil
}

// advance adds o's next writes and its end to its lane's batch. Caller holds mu.
func (c *Conn) advance(o *outgoing) error {
	l := c.cur.sendLane(o.lane)
	for o.state == outAnswered && !o.cancelled && o.off < o.mem.len {
		room := l.slots()
		if l.waiting {
			room -= l.prof.depth / 4 // copied messages shall not wait for all of it
		}
		if room <= 0 {
			break
		}
		if l.batchRoom() == 0 {
			if err := l.flush(); err != nil {
				return err
			}
		}
		n := min(o.mem.len-o.off, rendezvousSegment)
		w := verbs.SendWR{Op: verbs.OpWrite, LKey: o.mem.lkey, RemoteAddr: o.addr + uint64(o.off), RKey: o.rkey}
		if o.mem.bytes != nil {
			w.Buf = o.mem.bytes[o.off : o.off+n]
		} else {
			w.Addr, w.Len = o.mem.addr+uint64(o.off), n
		}
		l.addWrite(w)
		o.off += n
	}
	given := o.state == outWithdrawn || o.cancelled
	if !given && o.off < o.mem.len || l.controlRoom() <= 0 {
		return nil
	}
	if l.batchRoom() == 0 {
		if err := l.flush(); err != nil {
			return err
		}
	}
	h, end := header{kind: segFinish, seq: o.seq}, o
	switch {
	case o.state == outWithdrawn:
		h.kind, o.told = segDrop, true
		if !o.answered {
			end = nil // the peer's answer or word that the offer is gone ends it
		}
	case o.cancelled:
		h.kind = segDrop
		o.state = outEnding
	default:
		o.state = outEnding
		c.posted++
		c.sentTraffic.count(tierRendezvous, o.mem.len)
	}
	return l.addControl(h, end)
}

// ended handles the completion of o's last segment. Caller holds mu.
func (c *Conn) ended(o *outgoing) {
	if o.state == outWithdrawn {
		c.freeOut(o)
		return
	}
	if !o.cancelled {
		c.done++
		c.sentTraffic.time(tierRendezvous, c.t.now()-o.at)
	}
	o.state = outEnded
	o.done.ring()
}

// withdraw gives up an offer that is not answered. Caller holds mu.
func (c *Conn) withdraw(o *outgoing) {
	o.state, o.mem = outWithdrawn, span{}
	c.check(c.carryOn())
}

// waitOut waits for the end of o. When ctx ends before the peer has answered, the
// offer is withdrawn; later, the rest is not written. It returns only when no device
// reads the memory any more.
func (c *Conn) waitOut(ctx context.Context, o *outgoing, seq uint64) error {
	stop := c.dead
	var werr, cause error
	c.mu.Lock()
	w := o.wait // Close can give the place to another Send while this one waits
	c.mu.Unlock()
	for {
		c.mu.Lock()
		heard, mode := o.done.heard(), c.cur.sendLane(o.lane).prof.completion
		switch {
		case o.seq != seq || o.state == outWithdrawn: // by Close, and maybe over by now
			defer c.mu.Unlock()
			return c.refuse()
		case o.state == outEnded:
			cancelled := o.cancelled
			o.wait = w
			c.freeOut(o)
			c.mu.Unlock()
			if cancelled {
				return cause
			}
			return nil
		case o.state == outOffered && c.err != nil:
			c.freeOut(o)
			defer c.mu.Unlock()
			return c.refuse()
		case o.state == outOffered && werr != nil:
			c.withdraw(o)
			c.mu.Unlock()
			return werr
		case c.err != nil && c.over(): // the queue pairs are no more
			defer c.mu.Unlock()
			posted := o.state == outEnding && !o.cancelled
			c.freeOut(o)
			switch {
			case cause != nil && !posted:
				return cause
			case posted && c.bye != nil && c.bye.Received >= c.posted:
				return nil // the peer's program has all that was posted, this too
			case posted:
				return c.connError()
			}
			return c.refuse()
		case c.err != nil:
			stop = c.gone
		}
		if werr != nil {
			cause, ctx = werr, context.Background()
			if o.state == outAnswered {
				o.cancelled = true
				c.check(c.carryOn())
			}
		}
		c.mu.Unlock()
		werr = c.wait(ctx, o.done, heard, &w, mode, stop)
	}
}

// refuse is the error of a message that was not posted, and counts it. Caller holds
// mu.
func (c *Conn) refuse() error {
	c.refused++
	return c.connError()
}

// over reports whether everything is given back.
func (c *Conn) over() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}
