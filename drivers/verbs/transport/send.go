package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// Send sends msg; it blocks while the peer has no room and while a switch drains.
// msg may be reused on return. When ctx ends before the first byte went out, nothing
// is sent; midway, the peer drops what it has of the message. The error after the
// connection ended is a *ConnError.
func (c *Conn) Send(ctx context.Context, msg []byte) error {
	if len(msg) > MaxMessage {
		return fmt.Errorf("send %d bytes: %w", len(msg), ErrTooLarge)
	}
	select {
	case <-c.sendTurn:
	default:
		c.senders.Add(1)
		defer c.senders.Add(-1)
		select {
		case <-c.sendTurn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { c.sendTurn <- struct{}{} }()
	if err := c.abandon(ctx); err != nil {
		return err
	}
	off, first, segments := 0, true, 0
	for {
		c.mu.Lock()
		n, k, err := c.push(segData, msg, off, first)
		segments += k
		off += n
		if k > 0 {
			first = false
		}
		complete := k > 0 && off == len(msg)
		if complete {
			c.countSent(len(msg), segments)
		}
		low := c.cur != nil && c.cur.dataPosted-c.cur.dataFreed > uint64(c.cur.prof.depth)*3/4
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if low {
			c.t.eng.tryProgress()
		}
		if complete {
			return nil
		}
		if k > 0 {
			continue
		}
		if err := c.wait(ctx, c.sendReady, &c.sendSpin); err != nil {
			if !first {
				c.mu.Lock()
				c.sentOff = off
				c.mu.Unlock()
			}
			return err
		}
	}
}

// push posts segments of msg from off on; none when there is no room or a switch
// holds new requests. first says that none of the message is out. Caller holds mu.
func (c *Conn) push(kind segKind, msg []byte, off int, first bool) (n, segments int, err error) {
	if c.err != nil || c.leaving {
		if first {
			c.refused++
		} else {
			c.partial = true
		}
		return 0, 0, c.connError()
	}
	if c.holding {
		if c.heldSince.IsZero() {
			c.heldSince = time.Now()
		}
		return 0, 0, nil
	}
	if c.cur.room() <= 0 || c.cur.sick {
		c.cur.full++
		return 0, 0, nil
	}
	if first && kind == segData {
		c.sentSeq++
	}
	if n, segments, err = c.cur.postData(kind, c.sentSeq, msg, off); err != nil {
		c.fail(err)
		return n, segments, c.connError()
	}
	return n, segments, nil
}

// abandon tells the peer to drop a message whose Send was cancelled midway.
func (c *Conn) abandon(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.sentOff == 0 {
			c.mu.Unlock()
			return nil
		}
		_, k, err := c.push(segAbandon, nil, 0, false)
		if k > 0 {
			c.sentOff = 0
		}
		c.mu.Unlock()
		if err != nil || k > 0 {
			return err
		}
		if err := c.wait(ctx, c.sendReady, &c.sendSpin); err != nil {
			return err
		}
	}
}

// countSent counts a message that was posted whole. Caller holds mu.
func (c *Conn) countSent(size, segments int) {
	c.posted++
	count(&c.sentTraffic, size, segments, c.cur.inline-headerLen)
}

func count(t *control.Traffic, size, segments, inline int) {
	t.Messages++
	t.Bytes += uint64(size)
	switch {
	case segments > 1:
		t.Rendezvous++
	case size <= inline:
		t.Inline++
	default:
		t.Eager++
	}
}
