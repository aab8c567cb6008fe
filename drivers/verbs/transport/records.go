package transport

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// record writes down one attempt; r is nil when the peer opened.
func (k *controller) record(r *request, outcome, reason string, after time.Duration) control.Switch {
	c := k.c
	c.mu.Lock()
	s := control.Switch{
		Generation: c.generation, Epoch: c.cur.epoch, Outcome: outcome, Reason: reason, When: time.Now(),
	}
	switch outcome {
	case control.Deferred:
		s.RetryAfter = after
	case control.Switched, control.Aborted:
		s.Epoch, s.Opener = k.m.Epoch(), k.m.Opener()
		s.Pause, s.Held, s.Drained = c.paused, c.held, c.drained
	}
	if r != nil {
		s.Order, s.Generation = r.order, r.generation
	}
	if len(c.switches) >= maxSwitches {
		c.switches = slices.Delete(c.switches, 0, len(c.switches)-maxSwitches+1)
	}
	c.switches = append(c.switches, s)
	c.mu.Unlock()
	c.t.log.Info("switch", "conn", c.id, "epoch", s.Epoch, "generation", s.Generation, "outcome", s.Outcome,
		"reason", s.Reason, "pause", s.Pause, "drained", s.Drained, "held", s.Held)
	return s
}

// settled is the answer to a request whose generation is in force already.
func (k *controller) settled(r *request) control.Switch {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Backward(c.switches) {
		if s.Outcome == control.Switched || s.Outcome == control.InPlace {
			return s
		}
	}
	// The connection is younger than the order.
	return control.Switch{Order: r.order, Generation: c.generation, Epoch: c.cur.epoch, Outcome: control.InPlace, When: time.Now()}
}

// answerAll answers every pending request that s settles: after a switch, those
// whose generation is in force; after anything else, all.
func (k *controller) answerAll(s control.Switch) {
	c := k.c
	c.mu.Lock()
	at := c.generation
	c.mu.Unlock()
	done := s.Outcome != control.Switched && s.Outcome != control.InPlace
	keep := k.pending[:0]
	for _, r := range k.pending {
		if !done && at < r.generation {
			keep = append(keep, r)
			continue
		}
		r.reply <- s
	}
	clear(k.pending[len(keep):])
	k.pending = keep
	if len(keep) > 0 {
		k.later()
	}
}

// lostPeer handles the end of the control channel.
func (k *controller) lostPeer() {
	c := k.c
	for c.t.eng.progress() > 0 { // what arrived is still the program's
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye == nil {
		c.fail(fmt.Errorf("control channel: %w: %w", c.readErr, ErrPeerGone))
	}
}

// farewell is the peer's: it sends nothing more, and receives nothing.
func (k *controller) farewell(m *controlMsg) {
	c := k.c
	c.mu.Lock()
	c.bye = m
	c.mu.Unlock()
	k.giveUp(byeTime)
	for c.t.eng.progress() > 0 {
	}
	k.woken()
}

// leave begins the end that Close asked for: what was posted completes first, and
// offers that nobody answered are withdrawn.
func (k *controller) leave() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	c.ringSenders()
	c.recvReady.ring()
	k.linger = time.After(lingerTime)
	for i := range c.out {
		if o := &c.out[i]; o.state == outOffered {
			c.withdraw(o)
			o.done.ring()
		}
	}
	if c.err == nil {
		c.check(c.mark())
	}
	nudge(c.wake)
}

// departed reports whether everything sent is at the peer, which knows of everything
// that was given up. Caller holds mu.
func (c *Conn) departed() bool {
	for i := range c.out {
		if o := &c.out[i]; o.state == outWithdrawn && !o.told {
			return false
		}
	}
	return c.cur.outstanding() == 0 && !c.outBusy()
}

// bye says farewell and ends the connection. Caller holds mu.
func (k *controller) bye() {
	c := k.c
	k.linger = nil
	c.counted = true
	m := &controlMsg{Type: msgBye, Last: c.sentSeq, Received: c.received}
	c.mu.Unlock()
	sent := k.send(m)
	c.mu.Lock()
	if sent {
		c.fail(ErrClosed)
	}
}

// clean gives everything back after the end of the connection.
func (k *controller) clean() {
	c := k.c
	k.timer.Stop()
	k.retry.Stop()
	for c.t.eng.progress() > 0 {
	}
	k.dropLanes()
	c.mu.Lock()
	sets := append(slices.Clone(c.retired), c.cur)
	reason := c.err.Error()
	c.mu.Unlock()
	c.t.log.Info("connection ended", "conn", c.id, "peer", c.peer, "reason", reason)
	for _, s := range sets {
		if err := s.destroy(); err != nil {
			c.t.log.Warn("destroy lanes", "conn", c.id, "epoch", s.epoch, "err", err)
		}
	}
	c.tcp.Close()
	for range c.fromPeer { // until readPeer has ended
	}
	if len(k.pending) > 0 {
		gone := k.record(k.pending[0], control.Gone, reason, 0)
		for _, r := range k.pending {
			r.reply <- gone
		}
	}
	c.t.bury(c)
	close(c.gone)
}
