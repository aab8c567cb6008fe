package transport

import (
	"context"
	"fmt"
	"io"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// Recv receives the next message into buf and returns its size. io.EOF: the peer
// closed and everything was received. A *SizeError leaves the message in place.
// Messages that arrived whole before the connection ended are still received. Once
// the peer was told where to write a large message, Recv waits for it, whatever
// becomes of ctx: until then the memory is the peer's.
func (c *Conn) Recv(ctx context.Context, buf []byte) (int, error) {
	r := receiving{buf: buf, size: len(buf)}
	return c.recv(ctx, &r)
}

// RecvBuffer receives the next message into at most n bytes at off of b, which may be
// memory of a device. A message that was copied on its way cannot go to a device's
// memory: the error wraps ErrCopied and the message stays for Recv.
func (c *Conn) RecvBuffer(ctx context.Context, b *Buffer, off, n int) (int, error) {
	if off < 0 || n < 1 || off > b.len-n {
		return 0, fmt.Errorf("receive %d bytes at %d of a buffer of %d: %w", n, off, b.len, errRange)
	}
	if b.t != c.t || !b.hold() {
		return 0, fmt.Errorf("receive into a buffer that is closed or of another transport: %w", ErrClosed)
	}
	r := receiving{size: n, claimed: n}
	r.mem.use(b, off, n)
	r.buf = r.mem.bytes
	return c.recv(ctx, &r)
}

// receiving is one call of Recv.
type receiving struct {
	buf     []byte // nil for a device's memory
	size    int
	mem     memory // for a rendezvous
	claimed int    // bytes of it
}

// claim gets memory ready for a rendezvous of n bytes.
func (r *receiving) claim(t *Transport, n int) error {
	err := r.release(t)
	if err == nil {
		err = r.mem.claim(t, r.buf[:n], verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	}
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	r.claimed = n
	return nil
}

func (r *receiving) release(t *Transport) error {
	if r.claimed == 0 {
		return nil
	}
	r.claimed = 0
	return r.mem.release(t)
}

func (c *Conn) recv(ctx context.Context, r *receiving) (n int, err error) {
	defer func() {
		if rerr := r.release(c.t); err == nil {
			err = rerr
		}
	}()
	for {
		next, err := c.takeNext(ctx, r)
		switch {
		case err != nil:
			return 0, err
		case next.lane != nil:
			c.copyOut(&next, r.buf)
			return next.size, nil
		case next.in == nil:
			return next.size, nil
		}
		ok, err := c.waitIn(next.in)
		if err != nil {
			return 0, err
		}
		if ok {
			return next.size, nil
		}
		// The peer gave the message up: on to the next.
	}
}

// A taken message is in the buffer already, or has to be copied there from a lane, or is
// brought there by a rendezvous.
type taken struct {
	size int
	lane *lane // has it in its receive buffer buf, from at on
	buf  int
	at   int
	in   *incoming
}

// takeNext takes the next message in turn.
func (c *Conn) takeNext(ctx context.Context, r *receiving) (taken, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.takeTurn(ctx, &c.recvTurn); err != nil {
		return taken{}, err
	}
	next, err := c.takeInTurn(ctx, r)
	c.recvTurn.release()
	return next, err
}

// takeInTurn waits for the next message. Caller holds mu, which is not held while waiting.
func (c *Conn) takeInTurn(ctx context.Context, r *receiving) (taken, error) {
	for {
		heard := c.recvReady.heard()
		l, a := c.head()
		var err error
		switch {
		case c.counted || l == nil && c.err != nil:
			return taken{}, c.recvError()
		case l == nil:
			mode := c.cur.lanes[0].prof.completion
			c.mu.Unlock()
			err = c.wait(ctx, c.recvReady, heard, &c.recvWait, mode, c.dead)
			c.mu.Lock()
		case a.size() > r.size:
			return taken{}, &SizeError{a.size(), io.ErrShortBuffer}
		case a.kind == segData && r.buf == nil && a.len > 0:
			return taken{}, fmt.Errorf("receive %d bytes into a device's memory: %w", a.len, ErrCopied)
		case a.kind == segData:
			c.take(l, a.seq)
			c.received++
			c.recvTraffic.count(a.tier, a.len)
			if a.len > copiedAtOnce {
				l.reading++
				return taken{size: a.len, lane: l, buf: a.buf, at: a.at()}, nil
			}
			copy(r.buf, l.recvBuf(a.buf)[a.at():][:a.len])
			c.consumed(l, a.buf)
			return taken{size: a.len}, nil
		case r.claimed < a.size():
			c.mu.Unlock()
			err = r.claim(c.t, a.size())
			c.mu.Lock()
		default:
			c.take(l, a.seq)
			in := c.answer(l, &a.header, &r.mem.span)
			c.consumed(l, a.buf)
			return taken{size: a.size(), in: in}, nil
		}
		if err != nil {
			return taken{}, err
		}
	}
}

// copyOut copies a message that was taken, with others going on meanwhile.
func (c *Conn) copyOut(m *taken, to []byte) {
	copy(to, m.lane.recvBuf(m.buf)[m.at:m.at+m.size])
	c.mu.Lock()
	defer c.mu.Unlock()
	m.lane.reading--
	c.consumed(m.lane, m.buf)
}

// copiedAtOnce is how many bytes are copied out with the connection locked, which takes
// less time than to unlock it for that.
const copiedAtOnce = 512

// maxPassed is how many small messages in a row may pass a large one.
const maxPassed = 64

// head returns what comes next for the program: by sequence, on any lane; where the
// peer's messages are not ordered, small ones first, but what came on lanes from
// before a switch before anything else.
// Messages that were given up are skipped. An offer counts once it can be answered.
// Caller holds mu.
func (c *Conn) head() (*lane, arrived) {
	for i := 0; ; i++ {
		s := c.cur
		if i < len(c.retired) {
			s = c.retired[i]
		}
		// What came before is taken.
		c.recvSeq = max(c.recvSeq, s.firstSeq)
		if l, a := c.headOf(s); l != nil {
			return l, a
		}
		if s == c.cur || s.unread() {
			return nil, arrived{}
		}
	}
}

func (c *Conn) headOf(s *laneSet) (*lane, arrived) {
	var best *lane
	var first arrived
	waits := false
	for i := 0; i < len(s.lanes); i++ {
		l := s.lanes[i]
		if l.fhead == l.ftail {
			continue
		}
		a := l.fifo[l.fhead%uint64(len(l.fifo))]
		if !s.unordered && a.seq != c.recvSeq {
			continue
		}
		if a.kind == segDrop {
			c.take(l, a.seq)
			c.consumed(l, a.buf)
			i, best, waits = -1, nil, false // the next may be on any lane
			continue
		}
		if a.kind == segOffer && !c.canAnswer(l) {
			continue
		}
		waits = best != nil
		if best == nil || c.passed >= maxPassed {
			best, first = l, a
		}
	}
	if best != nil && best.index == 0 && waits {
		c.passed++
	} else {
		c.passed = 0
	}
	return best, first
}

// take takes the head of l, with sequence seq, from it. Caller holds mu.
func (c *Conn) take(l *lane, seq uint64) {
	l.fhead++
	c.taken++
	c.recvSeq = seq + 1
	if c.bye != nil && c.taken >= c.bye.Last {
		c.recvReady.ring()
	}
}

// consumed gives a receive buffer back. Caller holds mu.
func (c *Conn) consumed(l *lane, buf int) {
	if l.closed {
		if err := l.freeIfRead(); err != nil {
			c.t.log.Warn("free lane", "conn", c.id, "err", err)
		}
		c.forgetRead()
		return
	}
	c.check(l.repost(buf))
	if !c.cur.has(l) {
		nudge(c.wake) // a retired lane may be empty now
	}
}

// forgetRead drops retired lanes that nothing needs any more. Caller holds mu.
func (c *Conn) forgetRead() {
	keep := c.retired[:0]
	for _, s := range c.retired {
		if !s.freed() {
			keep = append(keep, s)
		}
	}
	clear(c.retired[len(keep):])
	c.retired = keep
}
