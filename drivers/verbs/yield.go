package verbs

import (
	"runtime"
	"time"
)

// yieldAfter is below the 10 ms after which Go's scheduler takes away what a goroutine
// runs on: see Yielder.
const yieldAfter = 9 * time.Millisecond

// yieldCheck is how many messages go by between looks at the clock, which costs
// about as much as a crossing into C.
const yieldCheck = 32

// A Yielder keeps a goroutine that spins on good terms with Go's scheduler. One that
// never lets go of its processor has it taken away after 10 ms: the monitor thread
// interrupts it, from then on looks every 20 us, and the goroutine goes on on another
// thread. All that is seen in the tail of the latency. Letting go in time, when there
// is nothing else to run, costs a microsecond.
//
// The zero value is ready. It is for one goroutine.
type Yielder struct {
	last  time.Time
	calls int
}

// Step is called once a message or empty Spin. It calls runtime.Gosched shortly
// before 10 ms are over.
func (y *Yielder) Step(empty bool) {
	if y.calls++; y.calls < yieldCheck && !empty {
		return
	}
	y.calls = 0
	now := time.Now()
	if now.Sub(y.last) < yieldAfter {
		return
	}
	if !y.last.IsZero() {
		runtime.Gosched()
	}
	y.last = now
}
