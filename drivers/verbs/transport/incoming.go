package transport

import (
	"context"
	"fmt"
	"slices"
)

// An inState is where an incoming rendezvous stands.
type inState uint8

const (
	inFree     inState = iota
	inAnswered         // the peer writes
	inWritten
	inDropped
)

// An incoming is a rendezvous of the peer that a Recv has answered. Its fields are
// guarded by Conn.mu.
type incoming struct {
	state inState
	seq   uint64
	size  int
	done  *bell
	wait  waiter // of the Recv that has the place
}

// canAnswer reports whether an offer that came on l can be answered now. Caller holds
// mu.
func (c *Conn) canAnswer(l *lane) bool {
	if c.holding || c.err != nil || c.leaving {
		return false
	}
	if c.cur.lane(l.index).controlRoom() <= 0 || c.freeIn() == nil {
		c.answering = true
		return false
	}
	return true
}

func (c *Conn) freeIn() *incoming {
	for i := range c.in {
		if c.in[i].state == inFree {
			return &c.in[i]
		}
	}
	return nil
}

// answer tells the peer where to write the message that h offered on l; canAnswer
// said yes. Caller holds mu.
func (c *Conn) answer(l *lane, h *header, m *span) *incoming {
	in := c.freeIn()
	*in = incoming{state: inAnswered, seq: h.seq, size: int(h.total), done: in.done, wait: in.wait}
	c.inOpen++
	c.check(c.cur.lane(l.index).postControl(header{kind: segAnswer, seq: h.seq, rkey: m.rkey, addr: m.addr}))
	return in
}

// waitIn waits for the end of in: written, or given up by the peer (false). It
// returns only when the peer does not write any more.
func (c *Conn) waitIn(in *incoming) (bool, error) {
	for {
		c.mu.Lock()
		heard := in.done.heard()
		switch {
		case in.state == inWritten && c.counted:
			defer c.mu.Unlock()
			c.endIn(in)
			return false, c.recvError()
		case in.state == inWritten || in.state == inDropped:
			ok := in.state == inWritten
			if ok {
				c.received++
				c.recvTraffic.count(tierRendezvous, in.size)
			}
			c.endIn(in)
			c.mu.Unlock()
			return ok, nil
		case c.over():
			defer c.mu.Unlock()
			c.endIn(in)
			return false, c.recvError()
		}
		mode := c.cur.lanes[0].prof.completion
		c.mu.Unlock()
		if err := c.wait(context.Background(), in.done, heard, &in.wait, mode, c.gone); err != nil {
			return false, err
		}
	}
}

// endIn makes in's place free. Caller holds mu.
func (c *Conn) endIn(in *incoming) {
	in.state = inFree
	c.recvReady.ring()
}

// offered handles the peer's offer h. Caller holds mu, here and below.
func (c *Conn) offered(h *header) error {
	if c.offers == 2*maxRendezvous {
		return fmt.Errorf("more than %d offers: %w", c.offers, ErrProtocol)
	}
	c.offers++
	return nil
}

// finished handles the end of a rendezvous of the peer: FIN or DROP.
func (c *Conn) finished(h *header) error {
	in, a := c.findIn(h.seq), (*arrived)(nil)
	if in == nil && h.kind == segDrop && len(c.goneOffers) < cap(c.goneOffers) {
		a = c.findOffer(h.seq)
	}
	if in == nil && a == nil {
		return fmt.Errorf("end of message %d, which was not under way: %w", h.seq, ErrProtocol)
	}
	c.offers--
	c.arrived++
	if in == nil {
		a.kind = segDrop
		c.goneOffers = append(c.goneOffers, h.seq)
		c.recvReady.ring()
		return nil
	}
	in.state = inWritten
	if h.kind == segDrop {
		in.state = inDropped
	}
	c.inOpen--
	in.done.ring()
	return nil
}

// findIn returns the rendezvous with sequence seq that the peer is writing, or nil.
func (c *Conn) findIn(seq uint64) *incoming {
	for i := range c.in {
		if in := &c.in[i]; in.state == inAnswered && in.seq == seq {
			return in
		}
	}
	return nil
}

// findOffer returns the offer of message seq that was not answered, or nil.
func (c *Conn) findOffer(seq uint64) *arrived {
	for _, s := range append(slices.Clone(c.retired), c.cur, c.next) {
		if s == nil {
			continue
		}
		for _, l := range s.lanes {
			for at := l.fhead; at != l.ftail; at++ {
				if a := &l.fifo[at%uint64(len(l.fifo))]; a.kind == segOffer && a.seq == seq {
					return a
				}
			}
		}
	}
	return nil
}
