package transport

import (
	"context"
	"runtime"
	"time"
)

// An adaptive wait polls for twice as long as the last one took. After one that
// took longer than longestSpin it goes to sleep almost at once, so that an idle
// connection costs nothing; the first short wait after that makes it poll again.
const (
	longestSpin  = time.Millisecond
	shortestSpin = 5 * time.Microsecond
)

// spinPolls is how often a waiting goroutine polls the queue of its connection
// within one call, and crossing into C: some microseconds.
const spinPolls = 64

// wait waits for ready, the end of ctx (an error) or stop. *spin is how long an
// adaptive wait polls.
func (c *Conn) wait(ctx context.Context, ready chan struct{}, spin *time.Duration, mode completion, stop chan struct{}) error {
	select {
	case <-ready:
		return nil
	default:
	}
	if mode == completionAdaptive && !c.t.spins {
		mode = completionEvent
	}
	start := time.Now()
	if mode != completionEvent && c.poll(ctx, ready, max(*spin, shortestSpin), mode == completionBusy) {
		return nil
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	case <-stop:
		return nil
	}
	took := time.Since(start)
	if *spin = min(2*took, longestSpin); took > longestSpin {
		*spin = shortestSpin
	}
	return nil
}

// poll handles completions until ready (true), or until it is time to sleep.
func (c *Conn) poll(ctx context.Context, ready chan struct{}, spin time.Duration, forever bool) (found bool) {
	eng := c.t.eng
	eng.beginSpin()
	defer func() { eng.endSpin(!found) }()
	c.mu.Lock()
	cq := c.cur.lanes[0].cq
	c.mu.Unlock()
	start := time.Now()
	for forever || time.Since(start) < spin {
		eng.spin(cq)
		select {
		case <-ready:
			return true
		case <-c.dead:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		runtime.Gosched()
	}
	return false
}
