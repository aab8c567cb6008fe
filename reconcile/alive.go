package reconcile

import (
	"sync/atomic"
	"time"
)

// longestStep bounds one step of an apply: a switch drains for at most an hour's timeout
// in each of its phases, but none that somebody waits for takes longer than this.
const longestStep = 20 * time.Minute

// alive gives a sign of life, unless one was given just before: each wakes whoever watches.
func (l *Loop) alive() {
	if l.c.OnAlive == nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	again := now.Sub(l.gave) >= beat/2
	if again {
		l.gave = now
	}
	l.mu.Unlock()
	if again {
		l.c.OnAlive()
	}
}

// busy gives signs of life while one step after the other is taken, as long as none takes
// longer than longestStep: a step that hangs must not look alive for ever. step is to be
// called after each, done at the end.
func (l *Loop) busy() (step, done func()) {
	var last atomic.Int64
	began := time.Now()
	stop := make(chan struct{})
	go func() {
		t := time.NewTicker(beat)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				if time.Since(began)-time.Duration(last.Load()) < longestStep {
					l.alive()
				}
			}
		}
	}()
	return func() { last.Store(int64(time.Since(began))); l.alive() }, func() { close(stop) }
}
