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
	spin("found at once", hiccup)
	w.found(300 * time.Microsecond)
	spin("found soon", hiccup)
	w.found(0)
	w.woken(3 * time.Millisecond)
	spin("found at once, then not", 875*time.Microsecond)
	w.found(800 * time.Microsecond)
	spin("found soon again", hiccup)
	w.woken(1500 * time.Microsecond)
	spin("not so soon", longestSpin)
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

// TestWaiterWays checks which way waits go on machines where polling, or sleeping, is
// shorter, and that it is noticed when that changes.
func TestWaiterWays(t *testing.T) {
	var w waiter
	trials := 0
	run := func(waits int, polled, slept time.Duration) (dozes int) {
		for range waits {
			w.begin()
			if w.trial {
				trials++
			}
			if w.dozes() {
				dozes++
				w.woken(slept)
			} else if polled > longestSpin {
				w.woken(polled)
			} else {
				w.found(polled)
			}
		}
		return dozes
	}
	us := time.Microsecond
	if n := run(10_000, 10*us, 50*us); n > 20 {
		t.Errorf("polling is shorter: %d of 10000 waits slept", n)
	}
	if trials > 20 {
		t.Errorf("%d trials in 10000 waits of which every one says the same", trials)
	}
	run(20_000, 4000*us, 2000*us)
	if n := run(10_000, 4000*us, 2000*us); n < 9_900 {
		t.Errorf("sleeping is shorter: only %d of 10000 waits slept", n)
	}
	run(20_000, 10*us, 50*us)
	if n := run(10_000, 10*us, 50*us); n > 100 {
		t.Errorf("polling is shorter again: %d of 10000 waits slept", n)
	}
	// A wait that the machine interrupted now and then changes nothing.
	for range 1000 {
		run(37, 10*us, 50*us)
		w.begin()
		w.woken(5000 * us)
	}
	if n := run(10_000, 10*us, 50*us); n > 100 {
		t.Errorf("with interruptions %d of 10000 waits slept", n)
	}
	// Idle waits say nothing.
	before := w.ways
	w.begin()
	w.woken(time.Second)
	if w.ways != before {
		t.Errorf("an idle wait counts: %+v, was %+v", w.ways, before)
	}
}

// TestSpinners holds that goroutines that poll leave processors to the others, those that
// shall not sleep as well, and that one may poll again when another is done.
func TestSpinners(t *testing.T) {
	e := &engine{maxSpinners: 2, maxBusy: 3}
	begin := func(busy, want bool) {
		t.Helper()
		if got := e.beginSpin(busy); got != want {
			t.Errorf("busy %v beside %d: %v, want %v", busy, e.spinners.Load()%spinDone, got, want)
		}
	}
	begin(false, true)
	begin(false, true)
	begin(false, false)
	begin(true, true)
	begin(true, false)
	e.endSpin()
	begin(false, false)
	begin(true, true)
	e.endSpin()
	e.endSpin()
	begin(false, true)
	if n := e.spinners.Load() / spinDone; n != 3 {
		t.Errorf("%d are done, want 3", n)
	}
}
