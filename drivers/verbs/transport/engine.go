package transport

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

const (
	cqSize  = 4096
	wcBatch = 64
)

// An engine owns the completion queues of one device and moves completions to the
// lanes that they belong to. One goroutine of it sleeps on the completion channel;
// a goroutine that waits for a message may poll in its place.
type engine struct {
	dev verbs.Device
	pd  verbs.PD
	ch  verbs.CompChannel

	worker      sync.WaitGroup
	wakeups     atomic.Uint64 // of the goroutine that sleeps
	maxSpinners uint64        // that poll at once
	maxBusy     uint64        // same, for who shall not sleep
	spinners    atomic.Uint64 // goroutines that poll in the place of ours, and above spinDone how often one was done
	sleepers    atomic.Int32  // goroutines that need an event
	standby     atomic.Bool   // no event will come, as ours leaves completions to the spinners
	back        chan struct{} // ours shall come back from standby

	// mu is held while completions are handled, so that those of one lane stay in
	// order. It comes before a Conn's mu.
	mu     sync.Mutex
	cqs    []*sharedCQ      // guarded by mu
	lanes  map[uint32]*lane // guarded by mu
	nextID uint32           // guarded by mu
	last   *lane            // guarded by mu; the one whose completion came last, or nil
	wc     [wcBatch]verbs.WC
}

// A sharedCQ is a completion queue and how much of it is spoken for.
type sharedCQ struct {
	verbs.CQ
	used      int  // entries that the lanes on it can fill
	moderated bool // its events are delayed
	moderate  bool // as it was asked to be; the device may not grant it
	dead      error
}

func newEngine(dev verbs.Device) (*engine, error) {
	e := &engine{dev: dev, lanes: map[uint32]*lane{}, back: make(chan struct{}, 1)}
	procs := uint64(runtime.GOMAXPROCS(0))
	e.maxSpinners, e.maxBusy = max(procs/2, 1), max(procs-1, 1)
	var err error
	if e.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if e.ch, err = dev.NewCompChannel(); err != nil {
		e.pd.Close()
		return nil, err
	}
	if _, err := e.newCQ(cqSize, false); err != nil {
		e.ch.Close()
		e.pd.Close()
		return nil, err
	}
	e.worker.Go(e.run)
	return e, nil
}

// completionVector is the device's completion vector that all queues of an engine are
// on: one goroutine waits for their events, so several would only wake several CPUs.
const completionVector = 0

// newCQ adds a completion queue. Caller holds mu, or is alone.
func (e *engine) newCQ(size int, moderate bool) (*sharedCQ, error) {
	cq, err := e.dev.NewCQ(min(size, e.dev.Attr().MaxCQE), e.ch, completionVector)
	if err != nil {
		return nil, err
	}
	if err := cq.ReqNotify(false); err != nil {
		cq.Close()
		return nil, err
	}
	q := &sharedCQ{CQ: cq, moderate: moderate}
	q.moderated = moderate && e.dev.Attr().Moderation && cq.Moderate(moderateCount, moderateUsec) == nil
	e.cqs = append(e.cqs, q)
	return q, nil
}

// reserve returns a completion queue with room for n entries, moderated or not. An
// eighth of each stays free for completions of queue pairs that are gone but were not
// polled yet.
func (e *engine) reserve(n int, moderate bool) (*sharedCQ, error) {
	moderate = moderate && e.dev.Attr().Moderation
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.cqs {
		if q.dead == nil && q.moderate == moderate && q.used+n <= q.Cap()-q.Cap()/8 {
			q.used += n
			return q, nil
		}
	}
	q, err := e.newCQ(max(cqSize, 2*n), moderate)
	if err != nil {
		return nil, err
	}
	q.used = n
	return q, nil
}

// release gives back what reserve gave; all but the first unused queues are
// destroyed.
func (e *engine) release(q *sharedCQ, n int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q.used -= n
	if q.used > 0 || q == e.cqs[0] {
		return nil
	}
	e.cqs = slices.DeleteFunc(e.cqs, func(have *sharedCQ) bool { return have == q })
	return q.Close()
}

// add makes l's completions reach it.
func (e *engine) add(l *lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.lanes[e.nextID] != nil {
		e.nextID++
	}
	l.id = e.nextID
	e.nextID++
	e.lanes[l.id] = l
}

func (e *engine) remove(l *lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.lanes, l.id)
	if e.last == l {
		e.last = nil
	}
}

// run handles completions whenever the channel announces some.
func (e *engine) run() {
	for {
		err := e.ch.Wait()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			e.lost(err)
			return
		}
		e.wakeups.Add(1)
		e.standby.Store(true)
		e.standBy()
		e.standby.Store(false)
		e.drain()
	}
}

// While goroutines poll, nothing is armed: an event for each message of a fast
// exchange would cost it an interrupt and a thread's wake-up. The engine's goroutine
// looks from time to time whether one has polled since. Until it sees that none has,
// completions may wait: standbyTimeAsleep while somebody sleeps who may need them; while
// nobody does the longer the longer the polling has gone on, since each look takes a
// processor from somebody.
const (
	standbyTime       = 2 * time.Millisecond // at first
	longestStandby    = 32 * time.Millisecond
	standbyTimeAsleep = 200 * time.Microsecond
)

// standBy returns once nobody polls in the engine's place.
func (e *engine) standBy() {
	seen, apart := e.spinners.Load(), standbyTime
	for first := true; ; first = false {
		now := e.spinners.Load()
		if now%spinDone == 0 && (first || now == seen) {
			return
		}
		seen = now
		d := apart
		if e.sleepers.Load() > 0 {
			d = standbyTimeAsleep
		} else {
			apart = min(2*apart, longestStandby)
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-e.back:
			timer.Stop()
		}
	}
}

// lost ends all connections: nothing would tell of their completions any more.
func (e *engine) lost(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.cqs {
		e.killCQ(q, err)
	}
}

// drain handles what is there, arms, and looks again for what came in between.
func (e *engine) drain() {
	for e.progress() > 0 {
	}
	e.arm()
	for e.progress() > 0 {
	}
}

func (e *engine) arm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.cqs {
		if err := q.ReqNotify(false); err != nil {
			e.killCQ(q, err)
		}
	}
}

// progress handles a batch of completions of each queue and returns how many.
func (e *engine) progress() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.progressLocked()
}

// tryProgress is progress unless another goroutine is at it.
func (e *engine) tryProgress() {
	if e.mu.TryLock() {
		e.progressLocked()
		e.mu.Unlock()
	}
}

func (e *engine) progressLocked() int {
	total := 0
	for _, q := range e.cqs {
		n, err := q.Poll(e.wc[:])
		e.handle(q, n, err)
		total += n
	}
	return total
}

// handle hands n completions of q to their lanes. Caller holds mu.
func (e *engine) handle(q *sharedCQ, n int, err error) {
	var c *Conn // the one whose mu is held: most often all are of one
	for i := range n {
		wc := &e.wc[i]
		id := uint32(wc.ID >> 32)
		l := e.last
		if l == nil || l.id != id {
			if l = e.lanes[id]; l == nil {
				continue // of a closed connection: it means nothing
			}
			e.last = l
		}
		if l.conn != c {
			if c != nil {
				c.check(c.carryOn())
				c.mu.Unlock()
			}
			c = l.conn
			c.mu.Lock()
		}
		l.complete(wc)
	}
	if c != nil {
		c.check(c.carryOn())
		c.mu.Unlock()
	}
	if err != nil && q.dead == nil {
		e.killCQ(q, err)
	}
}

// spin is progress for a goroutine that waits for something on q, for as long as a
// few polls of that take. It returns how many completions it handled; none when another
// goroutine is at it.
func (e *engine) spin(q *sharedCQ) int {
	if !e.mu.TryLock() {
		return 0
	}
	defer e.mu.Unlock()
	total := 0
	for _, other := range e.cqs {
		if other != q && other.used > 0 {
			n, err := other.Poll(e.wc[:])
			e.handle(other, n, err)
			total += n
		}
	}
	if q.used > 0 { // else it may be closed already
		n, err := q.Spin(e.wc[:], spinPolls)
		e.handle(q, n, err)
		total += n
	}
	return total
}

// killCQ ends the connections on a queue that is lost. Caller holds mu.
func (e *engine) killCQ(q *sharedCQ, err error) {
	q.dead = err
	for _, l := range e.lanes {
		if l.cq == q {
			l.conn.failAsync(fmt.Errorf("completion queue: %w", err))
		}
	}
}

// spinDone is what one that is done counts, in the counter of those that poll.
const spinDone = 1 << 32

// beginSpin asks to poll in the engine's place until endSpin. It refuses when as many
// goroutines do as there are processors to spare for it: they find what this one waits
// for as well. Who shall poll whatever that costs may take all processors but one. More
// would only keep each other, and those that have something to do, from running.
func (e *engine) beginSpin(busy bool) bool {
	most := e.maxSpinners
	if busy {
		most = e.maxBusy
	}
	if e.spinners.Add(1)%spinDone <= most {
		return true
	}
	e.spinners.Add(^uint64(0)) // one less
	return false
}

func (e *engine) endSpin() { e.spinners.Add(spinDone - 1) }

// beginSleep and endSleep frame a wait for somebody else to handle a completion. Either
// an event will come for it, or the engine's goroutine stands by and is called back.
func (e *engine) beginSleep() {
	e.sleepers.Add(1)
	if e.standby.Load() {
		nudge(e.back)
	}
}

func (e *engine) endSleep() { e.sleepers.Add(-1) }

func (e *engine) close() error {
	errs := []error{e.ch.Shutdown()}
	e.worker.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.cqs {
		errs = append(errs, q.Close())
	}
	e.cqs = nil // a goroutine that polled for a connection may look once more
	return errors.Join(append(errs, e.ch.Close(), e.pd.Close())...)
}
