package transport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

const (
	controlWrite = 5 * time.Second        // for one message to enter the socket's buffer
	lingerTime   = 5 * time.Second        // Close waits for sends to complete
	byeTime      = 2 * time.Second        // after the farewell, for what is still arriving
	busyFirst    = 2 * time.Millisecond   // first retry of a switch that found an end busy
	busyMost     = 100 * time.Millisecond // later retries
	lateTimer    = 100 * time.Millisecond // by which a timer is late in a process that was stopped
	maxSwitches  = 16                     // records kept per connection
)

// Reasons for a refusal; both ends know them.
const (
	reasonBusy     = switchover.ReasonBusy
	reasonCooldown = "cooldown"
	reasonClosing  = "closing"
)

// A request asks a connection to follow what its transport follows now.
type request struct {
	order      string
	generation uint64
	force      bool
	reply      chan control.Switch // one answer, buffered

	until time.Time // busy ends are retried until then
}

// A controller is the control goroutine of a connection: it alone steps the
// machine, builds and destroys lanes, and writes to the control channel.
type controller struct {
	c       *Conn
	m       switchover.Machine
	timer   *time.Timer // of the machine
	due     time.Time   // when it runs out
	excused bool        // it ran out late once
	retry   *time.Timer // of pending requests
	backoff time.Duration
	calm    time.Time // no attempt before: an end was busy

	pending  []*request
	current  *request      // that the switch under way answers, nil when the peer opened
	follows  follow        // of the lanes under way
	incoming *controlMsg   // proposal that MakeLane answers
	answer   *controlMsg   // ACCEPT or CONNECT that ReadyLane follows
	after    time.Duration // that the peer's refusal asked for
	peerTime time.Duration // the opener's drain timeout
	released uint32        // the peer needs no lane before this epoch
	told     uint32        // same of ours, as the peer knows
	linger   <-chan time.Time
	grace    <-chan time.Time // for what is still to come when the connection is ending
	unsent   error            // of the first message that the peer's channel did not take
	asleep   bool             // counts among those that sleep until a completion
}

// start runs the connection on its first lanes.
func (c *Conn) start() {
	epoch := c.cur.epoch
	k := &controller{c: c, m: switchover.New(epoch), timer: stoppedTimer(), retry: stoppedTimer()}
	k.released, k.told = epoch, epoch
	go c.readPeer()
	go k.run()
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// readPeer hands control messages to the controller until the channel ends.
func (c *Conn) readPeer() {
	defer close(c.fromPeer)
	for {
		m, err := readControl(c.tcp)
		if err != nil {
			c.readErr = err
			return
		}
		select {
		case c.fromPeer <- m:
		case <-c.dead:
			return
		}
	}
}

func (k *controller) run() {
	c := k.c
	fromPeer, closing := c.fromPeer, c.closing
	defer k.sleep(false)
	for {
		k.sleep(k.m.Phase() != switchover.Idle || k.linger != nil || k.grace != nil)
		select {
		case m, ok := <-fromPeer:
			if !ok {
				fromPeer = nil
				k.lostPeer()
				continue
			}
			k.heard(m)
		case <-c.wake:
			k.woken()
		case r := <-c.requests:
			r.until = time.Now().Add(c.follow().drainTimeout)
			k.pending = append(k.pending, r)
			k.attempt()
		case <-k.timer.C:
			if time.Since(k.due) > lateTimer && !k.excused {
				// This process was stopped: what it waits for may be here.
				k.startTimer()
				k.excused = true
				continue
			}
			k.step(switchover.Event{Kind: switchover.Timeout})
		case <-k.retry.C:
			k.attempt()
		case <-closing:
			closing = nil
			k.leave()
		case <-k.linger:
			c.failAsync(fmt.Errorf("%w: what was sent has not arrived within %v", ErrClosed, lingerTime))
		case <-k.grace:
			k.graceOver()
		case <-c.dead:
			k.clean()
			return
		}
	}
}

// sleep says whether what the controller waits for may need completions to be handled.
func (k *controller) sleep(now bool) {
	if now == k.asleep {
		return
	}
	k.asleep = now
	if now {
		k.c.t.eng.beginSleep()
	} else {
		k.c.t.eng.endSleep()
	}
}

// heard handles a message of the peer.
func (k *controller) heard(m *controlMsg) {
	e := switchover.Event{Epoch: m.Epoch, Nonce: m.Nonce, Reason: m.Reason}
	switch m.Type {
	case msgPropose:
		e.Kind = switchover.Propose
		e.Reason, k.after = k.cannot(false)
		k.incoming, k.peerTime = m, time.Duration(m.TimeoutMS)*time.Millisecond
	case msgAccept:
		e.Kind = switchover.Accept
		k.answer = m
	case msgConnect:
		e.Kind = switchover.Connect
		k.answer = m
	case msgRefuse:
		e.Kind = switchover.Refuse
		k.after = time.Duration(m.RetryAfterMS) * time.Millisecond
	case msgReady:
		e.Kind = switchover.Ready
	case msgAbort:
		e.Kind = switchover.Abort
	case msgReleased:
		k.released = max(k.released, m.Epoch)
		k.retire()
		return
	case msgBye:
		k.farewell(m)
		return
	default: // hello, after the hello
		k.c.failAsync(fmt.Errorf("%s within a connection: %w", m.Type, ErrProtocol))
		return
	}
	k.step(e)
}

// cannot says why this end takes no part in a switch now, and when to ask again.
func (k *controller) cannot(force bool) (reason string, after time.Duration) {
	c := k.c
	f := c.follow()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving || c.bye != nil {
		return reasonClosing, 0
	}
	// Lanes are retired one set at a time, which bounds the memory of a connection
	// whose program does not read.
	if len(c.retired) > 0 {
		return reasonBusy, busyMost
	}
	if left := time.Until(c.lastSwitch.Add(f.cooldown)); left > 0 && !force && !c.lastSwitch.IsZero() {
		return reasonCooldown, left
	}
	return "", 0
}

// woken handles what completions brought.
func (k *controller) woken() {
	c := k.c
	c.mu.Lock()
	events := c.inband
	c.inband = nil
	c.mu.Unlock()
	for _, e := range events {
		if e.Kind == switchover.Drained {
			e.Epoch = k.m.Epoch()
		}
		k.step(e)
	}
	k.retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.bye != nil && c.arrived >= c.bye.Last:
		c.fail(ErrPeerClosed)
	case c.cur.sick() != nil:
		k.giveUp(byeTime)
	case c.leaving && c.departed() && k.m.Phase() == switchover.Idle && k.linger != nil:
		k.bye()
	}
}

// giveUp lets the connection end after d, unless it does so before.
func (k *controller) giveUp(d time.Duration) {
	if k.grace == nil {
		k.grace = time.After(d)
	}
}

// graceOver ends a connection whose lane failed, or whose peer has closed or takes no
// message any more.
func (k *controller) graceOver() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye != nil {
		c.fail(ErrPeerClosed)
		return
	}
	if l := c.cur.sick(); l != nil {
		c.fail(fmt.Errorf("qp %#x: %s: %w", l.qp.Num(), l.status, ErrPeerGone))
	}
	if k.unsent != nil {
		c.fail(fmt.Errorf("control channel: %w: %w", k.unsent, ErrPeerGone))
	}
}

// step runs the machine on e and on what its actions bring about.
func (k *controller) step(e switchover.Event) {
	events := []switchover.Event{e}
	for len(events) > 0 {
		acts := k.m.Step(events[0])
		events = events[1:]
		for _, a := range acts {
			if k.c.t.hook != nil {
				k.c.t.hook(k.c, a)
			}
			if next, ok := k.do(a); ok {
				events = append(events, next)
			}
		}
	}
	if k.m.Phase() == switchover.Idle {
		k.attempt()
		nudge(k.c.wake) // a farewell may have waited for the end of the switch
	}
}

// do carries an action out; ok says that it brought about an event.
func (k *controller) do(a switchover.Action) (next switchover.Event, ok bool) {
	c := k.c
	switch a.Act {
	case switchover.SendPropose:
		k.follows = c.follow()
		k.send(c.wants(&controlMsg{Type: msgPropose, Epoch: a.Epoch, Nonce: a.Nonce,
			TimeoutMS: k.follows.drainTimeout.Milliseconds()}, &k.follows))
	case switchover.SendAccept, switchover.SendConnect:
		k.sendLanes(a)
	case switchover.SendRefuse:
		k.send(&controlMsg{Type: msgRefuse, Epoch: a.Epoch, Reason: a.Reason, RetryAfterMS: min(k.after.Milliseconds(), maxWaitMS)})
	case switchover.SendReady:
		k.send(&controlMsg{Type: msgReady, Epoch: a.Epoch})
	case switchover.SendAbort:
		k.send(&controlMsg{Type: msgAbort, Epoch: a.Epoch, Reason: a.Reason})
	case switchover.SendVote, switchover.SendCommit:
		k.sendInband(a)
	case switchover.MakeLane, switchover.ReadyLane:
		return k.build(a), true
	case switchover.DropLane:
		k.dropLanes()
	case switchover.Hold:
		k.hold()
	case switchover.Release:
		k.resume()
	case switchover.Flip:
		k.flip()
	case switchover.Yield:
		k.current = nil // its wish goes with the peer's switch; attempt looks again
	case switchover.StartTimer:
		k.startTimer()
	case switchover.StopTimer:
		k.timer.Stop()
	case switchover.Finish:
		k.finish(a)
	case switchover.Die:
		c.failAsync(fmt.Errorf("%s: %w", a.Reason, ErrNoDecision))
	}
	return switchover.Event{}, false
}

func (k *controller) startTimer() {
	d := k.patience()
	k.due, k.excused = time.Now().Add(d), false
	k.timer.Reset(d)
}

// patience is how long the machine waits in its phase. A voter waits longer than
// an opener can take to decide.
func (k *controller) patience() time.Duration {
	own := k.c.follow().drainTimeout
	if k.m.Phase() == switchover.Voted {
		return 2*max(own, k.peerTime) + time.Second
	}
	return own
}

// send writes a control message, or says that it could not: the peer has closed the
// channel, whose other end tells why, since a farewell may be on its way or here. A peer
// that does not even take a message into its socket's buffer is gone.
func (k *controller) send(m *controlMsg) bool {
	c := k.c
	c.tcp.SetWriteDeadline(time.Now().Add(controlWrite))
	err := writeControl(c.tcp, m)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.failAsync(fmt.Errorf("control channel: %w: %w", err, ErrPeerGone))
	} else if err != nil && k.unsent == nil {
		k.unsent = err
		k.giveUp(byeTime)
	}
	return err == nil
}

// attempt starts a switch, or answers, for what is pending.
func (k *controller) attempt() {
	if k.m.Phase() != switchover.Idle || len(k.pending) == 0 || time.Now().Before(k.calm) {
		return
	}
	c := k.c
	r := k.pending[0]
	c.mu.Lock()
	at := c.generation
	have := c.cur.layout
	c.mu.Unlock()
	f := c.follow()
	if at >= r.generation {
		k.answerAll(k.settled(r))
		return
	}
	if lay := layoutFor(&f, c.t.maxInline); lay.sameShape(&have) {
		k.inPlace(f, lay)
		k.answerAll(k.record(r, control.InPlace, "", 0))
		return
	}
	reason, after := k.cannot(r.force)
	switch {
	case reason == reasonBusy && time.Now().Before(r.until):
		k.later()
	case reason == reasonClosing:
		k.answerAll(k.record(r, control.Gone, reason, 0))
	case reason != "":
		k.answerAll(k.record(r, control.Deferred, reason, after))
	default:
		k.current = r
		k.step(switchover.Event{Kind: switchover.Open, Nonce: rand.Uint64()})
	}
}

// later tries pending requests again after a while.
func (k *controller) later() {
	k.backoff = min(max(2*k.backoff, busyFirst), busyMost)
	wait := k.backoff/2 + rand.N(k.backoff) // both ends may be at it: spread them
	k.calm = time.Now().Add(wait)
	k.retry.Reset(wait)
}
