package transport

import (
	"context"
	"io"
)

// Recv receives the next message into buf and returns its size. io.EOF: the peer
// closed and everything was received. A *SizeError leaves the message in place.
// Messages that arrived before the connection ended are still received.
func (c *Conn) Recv(ctx context.Context, buf []byte) (int, error) {
	select {
	case <-c.recvTurn:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { c.recvTurn <- struct{}{} }()
	segments := 0
	for {
		n, more, err := c.pull(buf, &segments)
		if err != nil || !more && n >= 0 {
			return max(n, 0), err
		}
		if more {
			continue
		}
		if err := c.wait(ctx, c.recvReady, &c.recvSpin); err != nil {
			c.mu.Lock()
			if c.recvOff > 0 && c.stash == nil {
				c.stash = append([]byte(nil), buf[:c.recvOff]...)
			}
			c.mu.Unlock()
			return 0, err
		}
	}
}

// pull takes one segment. n is the message's size when it is whole, else -1; more
// says that another segment may be there.
func (c *Conn) pull(buf []byte, segments *int) (n int, more bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, a := c.head()
	if l == nil {
		if c.err != nil {
			return -1, false, c.recvError()
		}
		return -1, false, nil
	}
	if a.kind == segAbandon {
		l.fhead++
		c.recvSeq++
		c.recvOff, c.stash = 0, nil
		return -1, true, c.consumed(l, a.buf)
	}
	if int(a.total) > len(buf) {
		return 0, false, &SizeError{int(a.total), io.ErrShortBuffer}
	}
	if c.stash != nil {
		copy(buf, c.stash)
		c.stash = nil
	}
	l.fhead++
	l.reading++
	c.mu.Unlock()
	copy(buf[a.offset:], l.recvBuf(a.buf)[headerLen:headerLen+a.len])
	c.mu.Lock()
	l.reading--
	*segments++
	c.recvOff += a.len
	if err := c.consumed(l, a.buf); err != nil {
		return -1, false, err
	}
	if c.recvOff < int(a.total) {
		return -1, true, nil
	}
	c.recvSeq++
	c.recvOff = 0
	count(&c.recvTraffic, int(a.total), *segments, l.inline-headerLen)
	return int(a.total), false, nil
}

// head returns the segment that comes next by sequence and offset, on any lane.
// Caller holds mu.
func (c *Conn) head() (*lane, arrived) {
	try := func(l *lane) (arrived, bool) {
		if l == nil || l.fhead == l.ftail {
			return arrived{}, false
		}
		a := l.fifo[l.fhead%uint64(len(l.fifo))]
		return a, a.seq == c.recvSeq && (a.kind == segAbandon || int(a.offset) == c.recvOff)
	}
	for _, l := range c.retired {
		if a, ok := try(l); ok {
			return l, a
		}
	}
	if a, ok := try(c.cur); ok {
		return c.cur, a
	}
	if a, ok := try(c.next); ok {
		return c.next, a
	}
	return nil, arrived{}
}

// consumed gives a receive buffer back. Caller holds mu.
func (c *Conn) consumed(l *lane, buf int) error {
	if l.closed {
		err := l.freeIfRead()
		c.forgetRead()
		return err
	}
	if err := l.repost(buf); err != nil {
		c.fail(err)
	}
	if l != c.cur {
		nudge(c.wake) // a retired lane may be empty now
	}
	return nil
}

// forgetRead drops retired lanes that nothing needs any more. Caller holds mu.
func (c *Conn) forgetRead() {
	keep := c.retired[:0]
	for _, l := range c.retired {
		if !l.freed {
			keep = append(keep, l)
		}
	}
	clear(c.retired[len(keep):])
	c.retired = keep
}
