package transport

import (
	"testing"
	"time"
)

// TestWaiter checks how long the next wait polls after waits of all kinds.
func TestWaiter(t *testing.T) {
	var w waiter
	spin := func(when string, want time.Duration) {
		t.Helper()
		if got := w.spin(); got != want {
			t.Errorf("%s: polls for %v, want %v", when, got, want)
		}
	}
	spin("new", shortestSpin)
	w.found(0)
	spin("found at once", provenSpin)
	w.found(800 * time.Microsecond)
	spin("found late", 1600*time.Microsecond)
	w.found(time.Hour)
	spin("found very late", longestSpin)
	for range 20 {
		w.woken(time.Second)
	}
	spin("idle", shortestSpin)
	for range probeEvery - 1 {
		w.woken(idleTime)
	}
	spin("not idle, but slept each time", longestSpin)
	w.woken(idleTime)
	spin("after the probe", shortestSpin)
}
