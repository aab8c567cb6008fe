package transport

import (
	"context"
	"fmt"
	"time"
)

// Send sends msg; it blocks while the peer has no room and while a switch drains.
// Messages that are copied (Info says up to which size) may be in flight when it
// returns; larger ones have arrived in the memory that the peer's Recv gave. msg may
// be reused on return. When ctx ends before the message went out, or was asked for by
// a Recv, nothing is sent; later, the peer drops what it has of it. The error after
// the connection ended is a *ConnError.
func (c *Conn) Send(ctx context.Context, msg []byte) error {
	s := sending{msg: msg, size: len(msg)}
	return c.send(ctx, &s)
}

// TrySend is Send that never blocks: ErrWouldBlock says that there is no room now, or
// that another Send is at it. A message above the eager limit, which needs the peer's
// Recv, is ErrTooLarge.
func (c *Conn) TrySend(msg []byte) error {
	s := sending{msg: msg, size: len(msg), try: true}
	return c.send(context.Background(), &s)
}

// SendBuffer sends n bytes at off of b, which may be memory of a device: always from
// where they are, never copied.
func (c *Conn) SendBuffer(ctx context.Context, b *Buffer, off, n int) error {
	if off < 0 || n < 1 || off > b.len-n {
		return fmt.Errorf("send %d bytes at %d of a buffer of %d: %w", n, off, b.len, errRange)
	}
	if b.t != c.t || !b.hold() {
		return fmt.Errorf("send from a buffer that is closed or of another transport: %w", ErrClosed)
	}
	s := sending{size: n}
	s.mem.use(b, off, n)
	s.claimed = true
	return c.send(ctx, &s)
}

// sending is one call of Send.
type sending struct {
	msg     []byte // nil when mem alone says what
	size    int
	try     bool
	mem     memory // for a rendezvous
	claimed bool
}

// claim gets memory ready that a rendezvous needs. It is done before the turn, since
// registering takes time.
func (s *sending) claim(t *Transport) error {
	if s.claimed {
		return nil
	}
	s.claimed = true
	if err := s.mem.claim(t, s.msg, 0); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

func (c *Conn) send(ctx context.Context, s *sending) (err error) {
	defer func() {
		if s.claimed {
			if rerr := s.mem.release(c.t); err == nil {
				err = rerr
			}
		}
	}()
	if s.size > MaxMessage {
		return fmt.Errorf("send %d bytes: %w", s.size, ErrTooLarge)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		r := c.routes.Load()
		i := 0
		if int64(s.size) > r.small {
			i = 1
		}
		if s.msg != nil && s.size > r.copyMax[i] {
			if s.try {
				return fmt.Errorf("send %d bytes, above the eager limit of %d: %w", s.size, r.copyMax[i], ErrTooLarge)
			}
			if err := s.claim(c.t); err != nil {
				return err
			}
		}
		o, seq, err := c.sendOn(ctx, s, i)
		switch {
		case err == errRouted:
			continue
		case o != nil:
			return c.waitOut(ctx, o, seq)
		}
		return err
	}
}

// sendOn sends on lane i in turn. A rendezvous is only offered. errRouted: a switch
// has changed where the message goes.
func (c *Conn) sendOn(ctx context.Context, s *sending, i int) (o *outgoing, seq uint64, err error) {
	c.mu.Lock()
	turn := &c.sendTurn[i]
	if s.try && turn.taken {
		c.mu.Unlock()
		return nil, 0, ErrWouldBlock
	}
	if err := c.takeTurn(ctx, turn); err != nil {
		c.mu.Unlock()
		return nil, 0, err
	}
	for tries := 0; ; tries++ {
		heard := c.sendReady[i].heard()
		o, sent, err := c.push(s, i)
		if o != nil {
			seq = o.seq
		}
		l := c.cur.sendLane(i)
		mode := l.prof.completion
		low := sent && l.slots() < l.prof.depth/4
		none := !sent && err == nil
		if none && tries == 1 && !c.holding && !l.sick && l.room() <= 0 { // else a rendezvous waits for its place
			l.full++ // now that completions have been looked for
			c.full++
		}
		if none && tries > 0 && s.try {
			none, err = false, ErrWouldBlock
		}
		l.waiting = none && tries > 0
		if sent || err != nil {
			turn.release()
		}
		c.mu.Unlock()
		if low || none && tries == 0 {
			c.t.eng.tryProgress()
		}
		if sent || err != nil {
			return o, seq, err
		}
		if tries > 0 {
			err = c.wait(ctx, c.sendReady[i], heard, &c.sendWait[i], mode, c.dead)
		}
		c.mu.Lock()
		if err != nil {
			c.cur.sendLane(i).waiting = false
			turn.release()
			c.mu.Unlock()
			return nil, 0, err
		}
	}
}

// push posts a message or its offer, unless there is no room or a switch holds new
// requests. Caller holds mu.
func (c *Conn) push(s *sending, i int) (o *outgoing, sent bool, err error) {
	if c.err != nil || c.leaving {
		return nil, false, c.refuse()
	}
	if c.holding {
		if c.heldSince.IsZero() {
			c.heldSince = time.Now()
		}
		return nil, false, nil
	}
	if c.cur.layout.lane(s.size) != i {
		return nil, false, errRouted
	}
	l := c.cur.lanes[i]
	k := l.tier(s.size)
	if s.msg == nil && s.size > 0 {
		k = tierRendezvous
	}
	switch {
	case l.sick:
		return nil, false, nil
	case k == tierRendezvous && !s.claimed:
		return nil, false, errRouted // the limit was another one
	case k == tierRendezvous:
		o, err = c.offer(i, &s.mem.span)
		sent = o != nil
	case l.room() > 0:
		c.sentSeq++
		sent = true
		c.posted++
		c.sentTraffic.count(k, s.size)
		err = l.postMessage(c.sentSeq, s.msg, k)
	}
	if err != nil {
		c.fail(err)
		return o, sent, c.connError()
	}
	return o, sent, nil
}
