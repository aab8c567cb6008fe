package switchover

import (
	"fmt"
	"slices"
	"testing"
)

// The search runs two Machines over every interleaving of what can happen to them:
// the program sends, segments and control messages travel, lanes drain or fail,
// timers run out, either end opens. It counts a message as lost when the run is at
// rest and it was not delivered, and checks that no lane carries one before COMMIT.

const (
	msgsPerEnd = 2
	maxOpens   = 1 // per end
	maxBad     = 1 // timeouts or failures per run
)

// end is one end of the connection.
type end struct {
	m       Machine
	lane    uint8 // epoch of the lane in use
	next    uint8 // of the new lane, 0 = none
	holding bool
	drain   bool // Drained is owed
	sent    uint8
	opens   uint8
	got     uint8 // messages delivered to this end
	dead    bool
}

// packet is in flight: data (kind 0), an in-band event or a control message.
type packet struct {
	data  uint8 // number of a data message from 1, else 0
	event Event
}

// world is a state of the search; slices are copied on write.
type world struct {
	ends [2]end
	tcp  [2][]packet        // towards end i
	lane [2]map[uint8]queue // towards end i, by epoch
	bad  uint8
}

type queue []packet

func (w world) key() string { return fmt.Sprint(w) }

func (w world) clone() world {
	for i := range w.tcp {
		w.tcp[i] = slices.Clone(w.tcp[i])
		m := make(map[uint8]queue, len(w.lane[i]))
		for e, q := range w.lane[i] {
			m[e] = slices.Clone(q)
		}
		w.lane[i] = m
	}
	return w
}

// run steps end i on e and carries the actions out; events that follow at once in
// the transport follow at once here.
func (w *world) run(t *testing.T, i int, e Event) {
	me, peer := &w.ends[i], 1-i
	if me.dead {
		return
	}
	for _, a := range me.m.Step(e) {
		ctl := func(k Kind) { w.tcp[peer] = append(w.tcp[peer], packet{event: Event{k, a.Epoch, a.Nonce, a.Reason}}) }
		inband := func(k Kind) {
			w.lane[peer][me.lane] = append(w.lane[peer][me.lane], packet{event: Event{Kind: k, Epoch: a.Epoch}})
		}
		switch a.Act {
		case SendPropose:
			ctl(Propose)
		case SendAccept:
			ctl(Accept)
		case SendRefuse:
			ctl(Refuse)
		case SendConnect:
			ctl(Connect)
		case SendReady:
			ctl(Ready)
		case SendAbort:
			ctl(Abort)
		case SendVote:
			inband(Vote)
		case SendCommit:
			inband(Commit)
		case MakeLane:
			me.next = uint8(a.Epoch)
			w.run(t, i, Event{Kind: LaneMade, Epoch: a.Epoch})
		case ReadyLane:
			me.next = uint8(a.Epoch)
			w.run(t, i, Event{Kind: LaneReady, Epoch: a.Epoch})
		case DropLane:
			me.next = 0
		case Hold:
			me.holding, me.drain = true, true
		case Release:
			me.holding, me.drain = false, false
		case Flip:
			if me.next == 0 {
				t.Fatalf("end %d flips to no lane", i)
			}
			me.lane, me.next, me.holding, me.drain = me.next, 0, false, false
		case Die:
			me.dead = true
		case Finish, Yield, StartTimer, StopTimer:
		}
	}
}

// next returns every state that can follow.
func (w world) successors(t *testing.T) []world {
	var out []world
	step := func(f func(n *world)) {
		n := w.clone()
		f(&n)
		out = append(out, n)
	}
	for i := range w.ends {
		me, peer := w.ends[i], 1-i
		if me.dead {
			continue
		}
		if me.sent < msgsPerEnd && !me.holding {
			step(func(n *world) {
				n.ends[i].sent++
				n.lane[peer][me.lane] = append(n.lane[peer][me.lane], packet{data: n.ends[i].sent})
			})
		}
		if me.opens < maxOpens && me.m.Phase() == Idle {
			step(func(n *world) {
				n.ends[i].opens++
				n.run(t, i, Event{Kind: Open, Nonce: uint64(10 + i)})
			})
		}
		// Everything this end sent on its lane has arrived.
		if me.drain && len(w.lane[peer][me.lane]) == 0 {
			step(func(n *world) {
				n.ends[i].drain = false
				n.run(t, i, Event{Kind: Drained, Epoch: me.m.Epoch()})
			})
		}
		if w.bad < maxBad && me.m.Phase() != Idle {
			step(func(n *world) {
				n.bad++
				n.run(t, i, Event{Kind: Timeout})
			})
		}
		if len(w.tcp[i]) > 0 {
			step(func(n *world) {
				p := n.tcp[i][0]
				n.tcp[i] = n.tcp[i][1:]
				n.run(t, i, p.event)
			})
		}
		for epoch, q := range w.lane[i] {
			// A lane that this end does not have loses what is on it.
			if len(q) == 0 || epoch > me.lane && epoch != me.next {
				continue
			}
			p := q[0]
			if p.data != 0 && p.data != me.got+1 {
				continue // waits for its turn in the receive buffers
			}
			step(func(n *world) {
				n.lane[i][epoch] = q[1:]
				if p.data != 0 {
					n.ends[i].got++
					return
				}
				n.run(t, i, p.event)
			})
		}
	}
	return out
}

func TestEveryInterleaving(t *testing.T) {
	start := world{lane: [2]map[uint8]queue{{}, {}}}
	for i := range start.ends {
		start.ends[i].m = New(1)
		start.ends[i].lane = 1
	}
	seen := map[string]bool{start.key(): true}
	todo := []world{start}
	outcomes := map[string]int{}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := w.successors(t)
		if len(next) == 0 {
			outcomes[w.verdict(t)]++
		}
		for _, n := range next {
			if k := n.key(); !seen[k] {
				seen[k] = true
				todo = append(todo, n)
			}
		}
	}
	t.Logf("%d states; at rest: %v", len(seen), outcomes)
	for _, want := range []string{"old lanes", "new lanes"} {
		if outcomes[want] == 0 {
			t.Errorf("no run ended on %s", want)
		}
	}
}

// verdict checks a state in which nothing can happen any more.
func (w world) verdict(t *testing.T) string {
	t.Helper()
	a, b := w.ends[0], w.ends[1]
	if a.dead || b.dead {
		return "connection ended"
	}
	if a.m.Phase() != Idle || b.m.Phase() != Idle || a.holding || b.holding {
		t.Fatalf("stuck: %+v", w)
	}
	if a.lane != b.lane {
		t.Fatalf("ends on different lanes: %+v", w)
	}
	if a.got != msgsPerEnd || b.got != msgsPerEnd {
		t.Fatalf("lost: %+v", w)
	}
	if a.lane == 1 {
		return "old lanes"
	}
	return "new lanes"
}

func TestLateAndHostile(t *testing.T) {
	for kind := Open; kind <= Timeout; kind++ {
		m := New(5)
		if kind == Open || kind == Propose {
			continue
		}
		for _, epoch := range []uint32{0, 4, 5} {
			before := m
			acts := m.Step(Event{Kind: kind, Epoch: epoch})
			if len(acts) != 0 || m != before {
				t.Errorf("event %d of epoch %d while idle: %v", kind, epoch, acts)
			}
		}
	}
	m := New(5)
	for _, epoch := range []uint32{0, 5, 1 << 31, 1<<32 - 1} {
		acts := m.Step(Event{Kind: Propose, Epoch: epoch, Nonce: 1})
		if len(acts) != 1 || acts[0].Act != SendRefuse || acts[0].Reason != ReasonBusy {
			t.Errorf("proposal of epoch %d: %v", epoch, acts)
		}
	}
	m.Step(Event{Kind: Open, Nonce: 1})
	if acts := m.Step(Event{Kind: Commit, Epoch: 6}); acts != nil {
		t.Errorf("commit to an opener: %v", acts)
	}
}
