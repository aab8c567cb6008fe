package bench

import (
	"sync/atomic"
	"time"
)

// watch calls stalled once when moves has not changed for the time of limit, at the
// latest after twice that, until stop. One timer for all messages looks for progress,
// since one per message would be felt in the latencies.
func watch(moves *atomic.Uint64, limit time.Duration, stalled func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(limit)
		defer tick.Stop()
		last := moves.Load()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now := moves.Load()
			if now == last {
				stalled()
				return
			}
			last = now
		}
	}()
	return func() { close(done) }
}
