package transport

import (
	"fmt"
	"net"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

// build makes the new lane (acceptor) or brings it to ready (both; the opener
// makes it first).
func (k *controller) build(a switchover.Action) switchover.Event {
	c := k.c
	failed := func(err error) switchover.Event {
		c.t.log.Warn("new lane", "conn", c.id, "epoch", a.Epoch, "err", err)
		return switchover.Event{Kind: switchover.LaneFailed, Epoch: a.Epoch, Reason: err.Error()}
	}
	if a.Act == switchover.MakeLane {
		k.follows = c.t.follow()
		if err := k.makeLane(a.Epoch, k.incoming.Want); err != nil {
			return failed(err)
		}
		return switchover.Event{Kind: switchover.LaneMade, Epoch: a.Epoch}
	}
	if k.m.Opener() {
		k.follows = c.t.follow()
		if err := k.makeLane(a.Epoch, k.answer.Want); err != nil {
			return failed(err)
		}
	}
	if err := c.checkEndpoint(k.answer.Endpoint); err != nil {
		return failed(err)
	}
	if err := c.next.connect(k.answer.Endpoint, *k.answer.Grant); err != nil {
		return failed(err)
	}
	return switchover.Event{Kind: switchover.LaneReady, Epoch: a.Epoch}
}

func (k *controller) makeLane(epoch uint32, w *want) error {
	c := k.c
	l, err := c.newLane(epoch, k.follows, grantFor(*w))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.next = l
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

// wants is what this end would send with, following f.
func (c *Conn) wants(f follow) *want {
	p := profileFor(f.hint, f.eagerMax, f.completion, c.t.maxInline)
	return &want{Credits: p.depth, Segment: p.segment}
}

// sendLane tells the peer of the new lane.
func (k *controller) sendLane(a switchover.Action) {
	l := k.c.next
	m := &controlMsg{Type: msgConnect, Epoch: a.Epoch, Grant: &l.granted, Endpoint: wireEndpoint(l.local, k.c.t.mtu)}
	if a.Act == switchover.SendAccept {
		m.Type, m.Want = msgAccept, k.c.wants(l.follows)
	}
	k.send(m)
}

// sendInband posts the vote or the decision on the lane in use.
func (k *controller) sendInband(a switchover.Action) {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h := header{kind: segVote, seq: c.sentSeq, total: a.Epoch}
	if a.Act == switchover.SendCommit {
		h.kind = segCommit
	}
	if c.err != nil {
		return
	}
	if err := c.cur.postControl(h); err != nil {
		c.fail(err)
	}
}

// dropLane destroys the new lane; nothing was ever posted on it.
func (k *controller) dropLane() {
	c := k.c
	c.mu.Lock()
	l := c.next
	c.next = nil
	c.mu.Unlock()
	if l != nil {
		if err := l.destroy(); err != nil {
			c.t.log.Warn("drop lane", "conn", c.id, "epoch", l.epoch, "err", err)
		}
	}
}

// hold keeps new requests and waits for the lane to drain.
func (k *controller) hold() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding, c.draining = true, true
	c.heldSince, c.held, c.paused = time.Time{}, 0, 0
	c.drained = c.cur.outstanding()
	k.flush()
}

// flush makes the lane's last completion come, and says Drained if it was. Caller
// holds mu.
func (k *controller) flush() {
	c := k.c
	if c.err != nil {
		return
	}
	if c.cur.unsignaled > 0 {
		if err := c.cur.postControl(header{kind: segMarker}); err != nil {
			c.fail(err)
			return
		}
	}
	if c.cur.outstanding() == 0 {
		c.tellDrained()
	}
}

// resume lets held requests go out again. Caller of the other two holds mu.
func (k *controller) resume() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goOn()
	if c.err != nil {
		return
	}
	if err := c.cur.tellCredits(); err != nil {
		c.fail(err)
	}
}

// goOn ends the hold. Caller holds mu.
func (c *Conn) goOn() {
	c.holding, c.draining = false, false
	if !c.heldSince.IsZero() {
		c.paused = time.Since(c.heldSince)
		c.held = 1 + int(c.senders.Load())
	}
	nudge(c.sendReady)
}

// flip puts the new lane in use and retires the old one.
func (k *controller) flip() {
	c := k.c
	c.mu.Lock()
	old, l := c.cur, c.next
	c.retired = append(c.retired, old)
	c.cur, c.next = l, nil
	l.arrivedSeq = max(l.arrivedSeq, old.arrivedSeq)
	c.generation = max(c.generation, l.follows.generation)
	c.lastSwitch = time.Now()
	c.goOn()
	// The program may have received on the new lane before this end knew of COMMIT.
	if c.err == nil {
		if err := l.refill(); err != nil {
			c.fail(err)
		}
	}
	c.mu.Unlock()
	nudge(c.recvReady)
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
	var gone []*lane
	for _, l := range c.retired {
		if l.closed {
			continue
		}
		complete := l.sick || l.outstanding() == 0
		mine = mine && complete
		if complete && k.released > l.epoch {
			gone = append(gone, l)
		}
	}
	c.mu.Unlock()
	if mine && k.told < epoch {
		k.told = epoch
		k.send(&controlMsg{Type: msgReleased, Epoch: epoch})
	}
	for _, l := range gone {
		if err := l.destroy(); err != nil {
			c.t.log.Warn("destroy lane", "conn", c.id, "epoch", l.epoch, "err", err)
		}
	}
	c.mu.Lock()
	c.forgetRead()
	c.mu.Unlock()
}

// inPlace applies run-time settings: the lane's shape is right already.
func (k *controller) inPlace(r *request, f follow, p profile) {
	c := k.c
	c.mu.Lock()
	p.shape = c.cur.prof.shape
	c.cur.prof, c.cur.follows = p, f
	c.generation = max(c.generation, f.generation)
	c.mu.Unlock()
	k.answerAll(k.record(r, control.InPlace, "", 0))
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
