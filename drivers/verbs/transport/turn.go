package transport

import (
	"context"
	"sync/atomic"
)

// A turn lets one goroutine at a time through, in the order in which they came. It is
// guarded by Conn.mu: who has that locked anyway takes and passes it for nothing.
type turn struct {
	taken   bool
	waiting int           // who wait and have not been passed the turn yet
	pass    chan struct{} // holds the turn on its way from one to the next
}

// takeTurn takes t, waiting for it until ctx ends. Caller holds mu, which is not held
// while waiting.
func (c *Conn) takeTurn(ctx context.Context, t *turn) error {
	if !t.taken {
		t.taken = true
		return nil
	}
	t.waiting++
	c.mu.Unlock()
	var err error
	select {
	case <-t.pass:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	if err == nil {
		return nil
	}
	select {
	case <-t.pass: // just now
		t.release()
	default:
		t.waiting--
	}
	return err
}

// release passes the turn on. Caller holds mu.
func (t *turn) release() {
	if t.waiting > 0 {
		t.waiting--
		t.pass <- struct{}{} // never blocks: there is one turn, and it was not there
		return
	}
	t.taken = false
}

// A bell is rung when something may have changed for the one who waits for it. Who polls
// needs no more than a look at how often it was rung.
type bell struct {
	rung   atomic.Uint32
	asleep chan struct{} // has something when it was rung since it was last empty
}

func newBell() *bell { return &bell{asleep: make(chan struct{}, 1)} }

func (b *bell) ring() {
	b.rung.Add(1)
	nudge(b.asleep)
}

// heard returns how often the bell was rung: what was done before each is seen.
func (b *bell) heard() uint32 { return b.rung.Load() }

// quiet reports whether it was not rung since heard returned n, and makes that a
// sleep on asleep ends when it is from now on.
func (b *bell) quiet(n uint32) bool {
	select {
	case <-b.asleep:
	default:
	}
	return b.rung.Load() == n
}
