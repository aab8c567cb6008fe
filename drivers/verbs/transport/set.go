package transport

import (
	"errors"
	"fmt"
)

// A laneSet is the lanes of a connection in one epoch.
type laneSet struct {
	epoch   uint32
	follows follow
	// layout is what this end sends by. The set has another lane when the peer's has.
	layout    layout
	unordered bool // the peer's messages keep their order on each lane only
	lanes     []*lane
	firstSeq  uint64 // no message of the peer on it is before this; guarded by Conn.mu
}

// newSet creates the lanes of an epoch: this end sends as f says and the peer as
// it wants.
func (c *Conn) newSet(epoch uint32, f follow, m *controlMsg) (*laneSet, error) {
	s := &laneSet{epoch: epoch, follows: f, layout: layoutFor(&f, c.t.maxInline), unordered: m.Unordered, firstSeq: 1}
	for i := range max(s.layout.lanes, len(m.Wants)) {
		p, w := receiveProfile(), receiveWant
		if i < s.layout.lanes {
			p = s.layout.profiles[i]
		}
		if i < len(m.Wants) {
			w = m.Wants[i]
		}
		l, err := c.newLane(i, p, grantFor(w))
		if err != nil {
			return nil, errors.Join(err, s.destroy())
		}
		s.lanes = append(s.lanes, l)
	}
	return s, nil
}

// describe is what the peer is told of the set.
func (s *laneSet) describe(mtu int) []wireLane {
	out := make([]wireLane, len(s.lanes))
	for i, l := range s.lanes {
		out[i] = wireLane{Grant: l.granted, Endpoint: wireEndpoint(l.local, mtu)}
	}
	return out
}

// connect takes the lanes to ready towards the peer's.
func (c *Conn) connect(s *laneSet, peer []wireLane) error {
	if len(peer) != len(s.lanes) {
		return fmt.Errorf("%d lanes of the peer for %d: %w", len(peer), len(s.lanes), ErrProtocol)
	}
	for i, l := range s.lanes {
		if err := c.checkEndpoint(&peer[i].Endpoint); err != nil {
			return err
		}
		if err := l.connect(&peer[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *laneSet) destroy() error {
	var errs error
	for _, l := range s.lanes {
		errs = errors.Join(errs, l.destroy())
	}
	return errs
}

// has reports whether l is of s; s may be nil.
func (s *laneSet) has(l *lane) bool {
	return s != nil && l.index < len(s.lanes) && s.lanes[l.index] == l
}

// lane returns lane i, or the last one.
func (s *laneSet) lane(i int) *lane { return s.lanes[min(i, len(s.lanes)-1)] }

// sendLane returns lane i, or the last one that this end sends on.
func (s *laneSet) sendLane(i int) *lane { return s.lanes[min(i, s.layout.lanes-1)] }

// The rest is called with Conn.mu held.

// outstanding counts sends that have not completed.
func (s *laneSet) outstanding() int {
	n := 0
	for _, l := range s.lanes {
		n += l.outstanding()
	}
	return n
}

// idle reports whether nothing that was sent can still complete.
func (s *laneSet) idle() bool {
	for _, l := range s.lanes {
		if !l.idle() {
			return false
		}
	}
	return true
}

// sick returns a lane with a failed completion, or nil.
func (s *laneSet) sick() *lane {
	for _, l := range s.lanes {
		if l.sick {
			return l
		}
	}
	return nil
}

// unread reports whether a message or offer is there that the program has not taken.
func (s *laneSet) unread() bool {
	for _, l := range s.lanes {
		if l.fhead != l.ftail {
			return true
		}
	}
	return false
}

// freed reports whether the lanes need no memory any more.
func (s *laneSet) freed() bool {
	for _, l := range s.lanes {
		if !l.freed {
			return false
		}
	}
	return true
}

// closed reports whether the lanes were destroyed.
func (s *laneSet) closed() bool { return s.lanes[0].closed }

// sent counts the segments sent on each lane.
func (s *laneSet) sent() (n [maxLanes]uint32) {
	for i, l := range s.lanes {
		n[i] = l.sends
	}
	return n
}

// arrived reports whether as many segments came on each lane as the peer sent.
func (s *laneSet) arrived(counts uint64) bool {
	for i, l := range s.lanes {
		if int32(l.recvs-countOf(counts, i)) < 0 {
			return false
		}
	}
	return true
}

// degraded says what was asked for and not granted.
func (s *laneSet) degraded() []string {
	out := []string{}
	for i, l := range s.lanes {
		if l.prof.name == profileReceive {
			continue
		}
		note := func(what string, asked, granted int) {
			if granted < asked {
				out = append(out, fmt.Sprintf("lane %d: %s %d asked, %d granted", i, what, asked, granted))
			}
		}
		ask := lowLatencyCap
		if l.prof.name != profileLowLatency {
			ask = generalInline
		}
		note("inline", ask, l.inline)
		note("credits", l.prof.depth, l.peer.Credits)
		note("segment", l.prof.segment, l.peer.Segment)
		if l.prof.moderate && !l.cq.moderated {
			out = append(out, fmt.Sprintf("lane %d: moderation of completions asked, not granted", i))
		}
	}
	return out
}
