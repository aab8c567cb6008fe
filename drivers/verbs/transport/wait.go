package transport

import (
	"context"
	"runtime"
	"time"
)

// spinTime is how long an adaptive wait polls before it sleeps.
const spinTime = 20 * time.Microsecond

// wait waits for ready, the end of ctx (an error) or of the connection.
func (c *Conn) wait(ctx context.Context, ready chan struct{}) error {
	select {
	case <-ready:
		return nil
	default:
	}
	c.mu.Lock()
	mode := completionEvent
	if c.cur != nil && c.err == nil {
		mode = c.cur.prof.completion
	}
	c.mu.Unlock()
	if mode != completionEvent && c.spin(ctx, ready, mode == completionBusy) {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.dead:
		return nil
	}
}

// spin polls until ready, or until it is time to sleep; true means ready.
func (c *Conn) spin(ctx context.Context, ready chan struct{}, forever bool) bool {
	eng := c.t.eng
	eng.beginSpin()
	defer eng.endSpin()
	start := time.Now()
	for forever || time.Since(start) < spinTime {
		eng.tryProgress()
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
