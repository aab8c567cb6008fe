package transport

import (
	"fmt"
	"net"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

// build makes the new lanes (acceptor) or brings them to ready (both; the opener
// makes them first).
func (k *controller) build(a switchover.Action) switchover.Event {
	c := k.c
	failed := func(err error) switchover.Event {
		c.t.log.Warn("new lanes", "conn", c.id, "epoch", a.Epoch, "err", err)
		return switchover.Event{Kind: switchover.LaneFailed, Epoch: a.Epoch, Reason: err.Error()}
	}
	if a.Act == switchover.MakeLane {
		k.follows = c.follow()
		if err := k.makeLanes(a.Epoch, k.incoming); err != nil {
			return failed(err)
		}
		return switchover.Event{Kind: switchover.LaneMade, Epoch: a.Epoch}
	}
	if k.m.Opener() {
		// By what was proposed: the settings may have changed since.
		if err := k.makeLanes(a.Epoch, k.answer); err != nil {
			return failed(err)
		}
	}
	if err := c.connect(c.next, k.answer.Lanes); err != nil {
		return failed(err)
	}
	return switchover.Event{Kind: switchover.LaneReady, Epoch: a.Epoch}
}

func (k *controller) makeLanes(epoch uint32, m *controlMsg) error {
	c := k.c
	s, err := c.newSet(epoch, k.follows, m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.next = s
	c.mu.Unlock()
	return nil
}

// checkEndpoint refuses a soft endpoint on another host than the control
// channel's: a peer must not make this end connect elsewhere.
func (c *Conn) checkEndpoint(e *endpoint) error {
	if c.t.provider != "soft" {
		return nil
	}
	v, err := e.verbs()
	if err != nil {
		return err
	}
	ip, ok := v.GID.IPv4()
	host, _, err := net.SplitHostPort(c.peer)
	if !ok || err != nil || ip.String() != host {
		return fmt.Errorf("endpoint %s of the peer at %s: %w", v.GID, c.peer, ErrProtocol)
	}
	return nil
}

// wants fills in what this end would send with, following f.
func (c *Conn) wants(m *controlMsg, f *follow) *controlMsg {
	l := layoutFor(f, c.t.maxInline)
	m.Wants, m.Unordered = l.wants(), l.unordered
	return m
}

// sendLanes tells the peer of the new lanes.
func (k *controller) sendLanes(a switchover.Action) {
	c := k.c
	m := &controlMsg{Type: msgConnect, Epoch: a.Epoch, Lanes: c.next.describe(c.t.mtu)}
	if a.Act == switchover.SendAccept {
		m.Type = msgAccept
		c.wants(m, &c.next.follows)
	}
	k.send(m)
}

// sendInband posts the vote or the decision on lane 0.
func (k *controller) sendInband(a switchover.Action) {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h := header{kind: segVote, seq: c.sentSeq, total: a.Epoch, addr: laneCounts(c.cur.sent())}
	if a.Act == switchover.SendCommit {
		h.kind = segCommit
	}
	if c.err == nil {
		c.check(c.cur.lanes[0].postControl(h))
	}
}

// dropLanes destroys the new lanes. Nobody posts on them before the decision for them:
// what came there all the same is dropped, and the peer is none to go on with.
func (k *controller) dropLanes() {
	c := k.c
	c.mu.Lock()
	s := c.next
	c.next = nil
	if s != nil {
		for _, l := range s.lanes {
			if l.fhead = l.ftail; l.recvs > 0 {
				c.fail(fmt.Errorf("%d segments on lanes that were not decided for: %w", l.recvs, ErrProtocol))
			}
		}
	}
	c.mu.Unlock()
	if s != nil {
		if err := s.destroy(); err != nil {
			c.t.log.Warn("drop lanes", "conn", c.id, "epoch", s.epoch, "err", err)
		}
	}
}

// hold keeps new requests and waits for the lanes to drain.
func (k *controller) hold() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding, c.draining = true, true
	c.heldSince, c.held, c.paused = time.Time{}, 0, 0
	c.drained = c.cur.outstanding()
	if c.err != nil {
		return
	}
	c.check(c.mark())
	c.progressed(c.cur.lanes[0])
}

// mark makes the last completion of what was posted come on each lane. Caller holds
// mu.
func (c *Conn) mark() error {
	for _, l := range c.cur.lanes {
		if l.unsignaled > 0 {
			if err := l.postControl(header{kind: segMarker}); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume lets held requests go out again.
func (k *controller) resume() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goOn()
}

// goOn ends the hold: senders go on, and so does what the engine holds back. Caller
// holds mu.
func (c *Conn) goOn() {
	c.holding, c.draining = false, false
	if !c.heldSince.IsZero() {
		c.paused = time.Since(c.heldSince)
		c.held = 1
		for i := range c.sendTurn {
			c.held += c.sendTurn[i].waiting
		}
	}
	c.ringSenders()
	c.recvReady.ring()
	if c.err != nil {
		return
	}
	for _, l := range c.cur.lanes {
		c.check(l.tellCredits())
	}
	c.check(c.carryOn())
}

// flip puts the new lanes in use and retires the old ones.
func (k *controller) flip() {
	c := k.c
	c.mu.Lock()
	c.retired = append(c.retired, c.cur)
	s := c.next
	c.next, c.ballot = nil, header{}
	s.firstSeq = c.peerLast + 1
	for _, l := range s.lanes {
		c.lastSeq = max(c.lastSeq, l.arrivedSeq)
	}
	c.install(s)
	c.generation = max(c.generation, s.follows.generation)
	c.lastSwitch = time.Now()
	c.goOn()
	c.mu.Unlock()
	k.retire()
}

// retire destroys old lanes once neither end needs them: this end when its sends
// are complete, the peer when it said so. Destroying earlier could leave the peer's
// device retrying a message whose acknowledgement was lost.
func (k *controller) retire() {
	c := k.c
	c.mu.Lock()
	epoch := c.cur.epoch
	mine := true
	var gone []*laneSet
	for _, s := range c.retired {
		if s.closed() {
			continue
		}
		complete := s.idle()
		mine = mine && complete
		if complete && k.released > s.epoch {
			gone = append(gone, s)
		}
	}
	c.mu.Unlock()
	if mine && k.told < epoch {
		k.told = epoch
		k.send(&controlMsg{Type: msgReleased, Epoch: epoch})
	}
	for _, s := range gone {
		if err := s.destroy(); err != nil {
			c.t.log.Warn("destroy lanes", "conn", c.id, "epoch", s.epoch, "err", err)
		}
	}
	c.mu.Lock()
	c.forgetRead()
	c.mu.Unlock()
}

// inPlace applies run-time settings: the lanes' shape is right already.
func (k *controller) inPlace(f follow, lay layout) {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.cur
	s.layout, s.follows = lay, f
	for i := range lay.lanes {
		s.lanes[i].prof = lay.profiles[i]
	}
	c.install(s)
	c.generation = max(c.generation, f.generation)
	c.ringSenders() // the lane for a waiting message may be another one
}

// finish records how a switch ended and answers who asked for it.
func (k *controller) finish(a switchover.Action) {
	r := k.current
	k.current = nil
	outcome := control.Aborted
	switch {
	case a.Outcome == switchover.Switched:
		outcome = control.Switched
		k.backoff = 0
	case a.Outcome == switchover.Refused && (a.Reason == reasonBusy || a.Reason == reasonCooldown):
		outcome = control.Deferred
	case a.Outcome == switchover.Refused && a.Reason == reasonClosing:
		outcome = control.Gone
	case a.Outcome == switchover.Refused:
		outcome = control.Refused
	}
	if r != nil && outcome == control.Deferred && a.Reason == reasonBusy && time.Now().Before(r.until) {
		k.later()
		return
	}
	s := k.record(r, outcome, a.Reason, k.after)
	if outcome == control.Switched || r != nil {
		k.answerAll(s)
	}
}
