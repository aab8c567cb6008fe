package transport

import (
	"errors"
	"fmt"
	"os"
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
	dev  verbs.Device
	pd   verbs.PD
	ch   verbs.CompChannel
	done chan struct{} // closed when the channel is shut down

	workers  sync.WaitGroup
	wakeups  atomic.Uint64 // of the goroutine that sleeps
	spinners atomic.Int32  // goroutines that poll in the place of ours
	armed    atomic.Bool   // an event will come; false may be wrong, true only while ours is about to wake
	rearm    chan struct{} // a spinner left without arming

	// mu is held while completions are handled, so that those of one lane stay in
	// order. It comes before a Conn's mu.
	mu     sync.Mutex
	cqs    []*sharedCQ      // guarded by mu
	lanes  map[uint32]*lane // guarded by mu
	nextID uint32           // guarded by mu
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
	e := &engine{dev: dev, lanes: map[uint32]*lane{}, done: make(chan struct{}), rearm: make(chan struct{}, 1)}
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
	e.armed.Store(true)
	e.workers.Go(e.run)
	e.workers.Go(e.runRearm)
	return e, nil
}

// newCQ adds a completion queue. Caller holds mu, or is alone.
func (e *engine) newCQ(size int, moderate bool) (*sharedCQ, error) {
	cq, err := e.dev.NewCQ(min(size, e.dev.Attr().MaxCQE), e.ch, 0)
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
}

// run handles completions whenever the channel announces some.
func (e *engine) run() {
	defer close(e.done)
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
		e.armed.Store(false)
		if e.spinners.Load() > 0 {
			continue // the last of them arms again
		}
		e.drain()
	}
}

// rearmTime is how long completions may wait for somebody to look after a
// goroutine that polled has what it wanted. Arming each time instead would cost
// every message of a fast exchange an interrupt.
const rearmTime = 200 * time.Microsecond

// runRearm arms for spinners that left a while ago.
func (e *engine) runRearm() {
	for {
		select {
		case <-e.rearm:
		case <-e.done:
			return
		}
		time.Sleep(rearmTime)
		if e.spinners.Load() == 0 && !e.armed.Load() {
			e.drain()
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
	e.armed.Store(true)
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
	for i := range n {
		wc := &e.wc[i]
		// Lanes of a closed connection are unknown: their completions mean nothing.
		if l := e.lanes[uint32(wc.ID>>32)]; l != nil {
			l.complete(wc)
		}
	}
	if err != nil && q.dead == nil {
		e.killCQ(q, err)
	}
}

// spin is progress for a goroutine that waits for something on q, for as long as a
// few polls of that take; nothing when another goroutine is at it.
func (e *engine) spin(q *sharedCQ) {
	if !e.mu.TryLock() {
		return
	}
	defer e.mu.Unlock()
	for _, other := range e.cqs {
		if other != q && other.used > 0 {
			n, err := other.Poll(e.wc[:])
			e.handle(other, n, err)
		}
	}
	if q.used > 0 { // else it may be closed already
		n, err := q.Spin(e.wc[:], spinPolls)
		e.handle(q, n, err)
	}
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

// beginSpin and endSpin frame polling in the engine's place. A spinner that goes to
// sleep needs an event at once.
func (e *engine) beginSpin() { e.spinners.Add(1) }

func (e *engine) endSpin(sleeps bool) {
	last := e.spinners.Add(-1) == 0
	switch {
	case sleeps:
		e.drain()
	case last && !e.armed.Load():
		nudge(e.rearm)
	}
}

func (e *engine) close() error {
	errs := []error{e.ch.Shutdown()}
	e.workers.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.cqs {
		errs = append(errs, q.Close())
	}
	e.cqs = nil // a goroutine that polled for a connection may look once more
	return errors.Join(append(errs, e.ch.Close(), e.pd.Close())...)
}
