package transport

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// An adaptive wait polls for twice as long as waits there usually take, but not for
// longer than longestSpin: to be woken costs some microseconds, which do not show in a
// longer wait. After one that found what it waited for the next polls for provenSpin at
// least, and in the middle of a fast exchange for hiccup: where both ends go to sleep over
// one message that the machine has kept waiting, each is late for the other.
// Where waits usually are longer it goes to sleep almost at once, so that an idle
// connection costs nothing. How short a wait would have been without sleeping is not
// known then: of those that are not idle every probeEvery-th polls for longestSpin.
const (
	longestSpin  = 2 * time.Millisecond
	provenSpin   = time.Millisecond
	fastWait     = time.Millisecond     // at most, in an exchange that is fast
	hiccup       = 8 * time.Millisecond // for which a scheduler may give a processor away
	shortestSpin = 5 * time.Microsecond
	idleTime     = 10 * longestSpin // who waits longer is idle
	probeEvery   = 8
)

// To poll is not always shorter. Where there are more of those who poll than processors
// (a virtual machine whose device is emulated on the same ones, a node with too many ranks)
// they keep away from their processor what they wait for. So now and then a wait goes the
// other way, to sleep almost at once or to poll, and the way whose waits take less is the
// one that is taken: the more often the trial confirms it, the more seldom it is made. Where
// sleeping is the wrong way a trial is far longer than any other wait, so that a few in a
// hundred messages would be the tail of all.
const (
	firstTrial = 32   // waits until the first one
	lastTrial  = 4096 // at most between two
	enough     = 5    // waits of each way, for a comparison
	clearly    = 8    // by an eighth must the other way be shorter
	far        = 4    // times as long as usual is a trial that is not worth many others
)

// spinPolls is how often a waiting goroutine polls the queue of its connection
// within one call, and crossing into C. That many polls take tens of times as long as
// the crossing, and a fraction of what sleeping would.
const spinPolls = 256

// A waiter is what is known of the waits of one kind. One goroutine at a time uses it.
type waiter struct {
	usual time.Duration // that waits take, at most longestSpin
	slept int           // waits since the last one that needed no sleep
	fast  bool          // the last one was short
	yield verbs.Yielder

	doze   bool // go to sleep almost at once, since that is shorter here
	trial  bool // this wait goes the other way
	ways   [2]way
	next   int // waits until the next trial
	spaced int // waits between the last two
}

// A way is how long the last waits took that went one way.
type way struct {
	last  [enough]time.Duration
	count int
}

func (y *way) add(d time.Duration) {
	y.last[y.count%enough] = max(d, time.Microsecond)
	y.count++
}

// median lets no wait count that the machine interrupted, as long as most were not.
func (y *way) median() time.Duration {
	last := y.last
	slices.Sort(last[:])
	return last[enough/2]
}

// begin decides which way the next wait goes.
func (w *waiter) begin() {
	if w.spaced == 0 {
		w.spaced = firstTrial
	}
	w.next++
	if w.trial = w.next >= w.spaced; w.trial {
		w.next = 0
	}
}

// dozes reports whether this wait goes to sleep almost at once.
func (w *waiter) dozes() bool { return w.doze != w.trial }

// took takes note of how long a whole wait has taken; what is idle tells nothing.
func (w *waiter) took(d time.Duration) {
	if d > idleTime {
		return
	}
	at := func(doze bool) *way {
		if doze {
			return &w.ways[1]
		}
		return &w.ways[0]
	}
	if !w.trial {
		at(w.doze).add(d)
		return
	}
	at(!w.doze).add(d)
	usual, other := at(w.doze), at(!w.doze)
	switch {
	case usual.count >= enough && d > far*usual.median():
		w.spaced = min(8*w.spaced, lastTrial)
	case usual.count < enough || other.count < enough:
	case other.median() < usual.median()-usual.median()/clearly:
		w.doze, w.spaced = !w.doze, firstTrial
		w.ways = [2]way{}
	default:
		w.spaced = min(2*w.spaced, lastTrial)
	}
}

// found takes note of a wait that polled for d. A longer one counts at once and a
// shorter one in part, since to poll a little too long costs less than to sleep.
func (w *waiter) found(d time.Duration) {
	w.took(d)
	w.slept, w.fast = 0, d <= fastWait
	if d = max(d, provenSpin/2); d > w.usual {
		w.usual = min(d, longestSpin)
		return
	}
	w.usual -= (w.usual - d) / 8
}

// woken takes note of a wait that took d with a sleep.
func (w *waiter) woken(d time.Duration) {
	w.took(d)
	w.fast = false
	if w.dozes() {
		return // it says nothing of how long polling would have taken
	}
	w.slept++
	switch {
	case d > idleTime:
		w.usual /= 2
		w.slept = 1 // no probe
	case d > longestSpin:
		w.usual -= w.usual / 8
	default:
		w.usual = max(w.usual, d)
	}
}

// spin is how long the next wait polls.
func (w *waiter) spin() time.Duration {
	if w.dozes() {
		return shortestSpin
	}
	if w.fast {
		return hiccup
	}
	if w.slept%probeEvery == 0 && w.slept > 0 {
		return longestSpin
	}
	return min(max(2*w.usual, shortestSpin), longestSpin)
}

// wait waits until b is rung, which was heard so often before what is waited for was looked
// at, for the end of ctx (an error) or stop.
func (c *Conn) wait(ctx context.Context, b *bell, heard uint32, w *waiter, mode completion, stop chan struct{}) error {
	if b.heard() != heard {
		return nil
	}
	eng := c.t.eng
	adaptive := mode == completionAdaptive && c.t.spins
	if adaptive {
		w.begin()
	}
	var start time.Time
	if busy := mode == completionBusy; (adaptive || busy) && eng.beginSpin(busy) {
		var found bool
		found, start = c.poll(ctx, b, heard, w, busy)
		eng.endSpin()
		if found {
			return nil
		}
	}
	if adaptive && start.IsZero() {
		start = time.Now()
	}
	eng.beginSleep()
	defer eng.endSleep()
	if b.quiet(heard) {
		select {
		case <-b.asleep:
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return nil
		}
	}
	if adaptive {
		w.woken(time.Since(start))
	}
	return nil
}

// poll handles completions until b is rung (true), or until it is time to sleep. It reads
// the clock only when a spin finds nothing; start is when it first did.
func (c *Conn) poll(ctx context.Context, b *bell, heard uint32, w *waiter, forever bool) (found bool, start time.Time) {
	eng, cq := c.t.eng, c.cq.Load()
	spin := w.spin()
	for waited := time.Duration(0); forever || waited < spin; {
		n := eng.spin(cq)
		if b.heard() != heard {
			w.found(waited)
			w.yield.Step(false)
			return true, start
		}
		if n > 0 {
			continue // it was something else
		}
		select {
		case <-c.dead:
			return false, start
		case <-ctx.Done():
			return false, start
		default:
		}
		if c.t.spins {
			w.yield.Step(true)
		} else {
			runtime.Gosched() // the provider's own goroutines bring what is waited for
		}
		if start.IsZero() {
			start = time.Now()
		}
		waited = time.Since(start)
	}
	return false, start
}
