package switchover

import (
	"hash/maphash"
	"testing"
)

// The search runs two Machines over every interleaving of what can happen to them:
// programs send and receive, segments travel on two lanes whose completions come in
// any order, control messages travel, lanes drain, timers run out, either end opens.
// The owner of a Machine is modelled as package transport is: delivery by sequence,
// rendezvous that are answered before or after the switch, votes that count what was
// sent on each lane. An end destroys its old lanes as it flips, so that whatever is
// still on its way to it there is lost.
//
// Each end sends two messages: the first by rendezvous on lane 1, the second a small
// one on lane 0, which can overtake it there.
const (
	rendezvous = 1 // sequence
	small      = 2
	maxOpens   = 1 // per end
	maxBad     = 1 // timeouts per run
	maxEpochs  = 5
)

// What a packet is.
const (
	pkData uint8 = iota + 1
	pkOffer
	pkAnswer
	pkFinish
	pkEvent // of the machine: control messages, vote and decision
)

// A packet is in flight.
type packet struct {
	what   uint8
	kind   Kind
	epoch  uint8
	nonce  uint8
	counts [2]uint8 // of a vote or decision: segments sent before it on each lane
}

// A queue is packets in order.
type queue struct {
	n uint8
	p [7]packet
}

// Where a rendezvous stands, at either end.
const (
	none uint8 = iota
	offered
	answered
	finished
)

// end is one end of the connection.
type end struct {
	m        Machine
	lane     uint8 // epoch of the lanes in use
	next     uint8 // of the new lanes, 0 = none
	holding  bool
	drain    bool // Drained is owed
	opens    uint8
	sent     uint8    // messages
	sends    [2]uint8 // segments on each of the lanes in use
	recvs    [maxEpochs][2]uint8
	out      uint8 // the rendezvous that this end sends
	outEpoch uint8 // of the lanes on which it was answered
	in       uint8 // the one that it receives
	arrived  bool  // the small one
	taken    uint8 // messages that the program took, in order
	ballot   packet
	dead     bool
}

// world is a state of the search.
type world struct {
	ends [2]end
	tcp  [2]queue               // towards end i
	lane [2][maxEpochs][2]queue // towards end i
	bad  uint8
	lost bool
}

// A search explores worlds. selfish takes the vote out of the protocol: each end that
// has drained goes over by itself.
type search struct {
	t       *testing.T
	selfish bool
	seed    maphash.Seed
	seen    map[uint64]struct{}
	todo    []world
	ends    map[string]int
}

func (s *search) push(q *queue, p packet) {
	if int(q.n) == len(q.p) {
		s.t.Fatal("the model's queues are too short")
	}
	q.p[q.n] = p
	q.n++
}

func (q *queue) pop() packet {
	p := q.p[0]
	copy(q.p[:], q.p[1:])
	q.n--
	q.p[q.n] = packet{}
	return p
}

// post puts a segment on one of the lanes that end i uses.
func (s *search) post(w *world, i int, lane uint8, p packet) {
	me := &w.ends[i]
	me.sends[lane]++
	s.push(&w.lane[1-i][me.lane][lane], p)
}

// run steps end i on e and carries the actions out; events that follow at once in
// the transport follow at once here.
func (s *search) run(w *world, i int, e Event) {
	me := &w.ends[i]
	if me.dead {
		return
	}
	for _, a := range me.m.Step(e) {
		epoch := uint8(a.Epoch)
		ctl := func(k Kind) {
			s.push(&w.tcp[1-i], packet{what: pkEvent, kind: k, epoch: epoch, nonce: uint8(a.Nonce)})
		}
		inband := func(k Kind) {
			s.post(w, i, 0, packet{what: pkEvent, kind: k, epoch: epoch, counts: me.sends})
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
			me.next = epoch
			s.run(w, i, Event{Kind: LaneMade, Epoch: a.Epoch})
		case ReadyLane:
			me.next = epoch
			s.run(w, i, Event{Kind: LaneReady, Epoch: a.Epoch})
		case DropLane:
			me.next = 0
		case Hold:
			me.holding, me.drain = true, true
		case Release:
			me.holding, me.drain = false, false
			s.carryOn(w, i)
		case Flip:
			s.flip(w, i)
		case Die:
			me.dead = true
		case Finish, Yield, StartTimer, StopTimer:
		}
	}
	if s.selfish {
		s.alone(w, i)
	}
}

// alone lets a drained end decide by itself.
func (s *search) alone(w *world, i int) {
	me := &w.ends[i]
	switch {
	case me.m.phase == Draining && me.m.opener && me.m.drained && !me.m.voted:
		s.run(w, i, Event{Kind: Vote, Epoch: me.m.epoch})
	case me.m.phase == Voted:
		s.run(w, i, Event{Kind: Commit, Epoch: me.m.epoch})
	}
}

// flip destroys the lanes in use, and with them what is on its way to this end.
func (s *search) flip(w *world, i int) {
	me := &w.ends[i]
	if me.next == 0 {
		s.t.Fatalf("end %d flips to no lane", i)
	}
	for k := range w.lane[i][me.lane] {
		q := &w.lane[i][me.lane][k]
		for n := range q.n {
			w.lost = w.lost || q.p[n].what != pkEvent
		}
		*q = queue{}
	}
	me.lane, me.next, me.holding, me.drain = me.next, 0, false, false
	me.sends, me.ballot = [2]uint8{}, packet{}
	s.carryOn(w, i)
}

// carryOn writes and finishes what the peer has answered on the lanes in use; a hold
// does not stop it.
func (s *search) carryOn(w *world, i int) {
	me := &w.ends[i]
	if me.out == answered && me.outEpoch == me.lane {
		me.out = finished
		s.post(w, i, 1, packet{what: pkFinish})
	}
}

// take gives the program what is next by sequence and here. Offers are taken by
// answering, which is a step of its own.
func (w *world) take(i int) {
	me := &w.ends[i]
	if me.arrived && me.taken == rendezvous {
		me.taken = small
	}
}

// receive handles what came on a lane of an epoch.
func (s *search) receive(w *world, i int, epoch, lane uint8, p packet) {
	me := &w.ends[i]
	me.recvs[epoch][lane]++
	switch p.what {
	case pkData:
		me.arrived = true
	case pkOffer:
		me.in = offered
	case pkAnswer:
		if me.out != offered {
			s.t.Fatalf("answer to no offer: %+v", w)
		}
		me.out, me.outEpoch = answered, epoch
		s.carryOn(w, i)
	case pkFinish:
		if me.in != answered {
			s.t.Fatalf("end of what was not answered: %+v", w)
		}
		me.in = finished
	case pkEvent:
		if epoch == me.lane {
			me.ballot = p
		}
	}
	w.take(i)
	if b := me.ballot; b.what != 0 && me.recvs[me.lane][0] > b.counts[0] && me.recvs[me.lane][1] >= b.counts[1] {
		me.ballot = packet{}
		s.run(w, i, Event{Kind: b.kind, Epoch: uint32(b.epoch)})
	}
}

// drained reports whether everything that end i sent has arrived, and no answered
// rendezvous is under way.
func (w *world) drained(i int) bool {
	me := &w.ends[i]
	out := &w.lane[1-i][me.lane]
	return out[0].n == 0 && out[1].n == 0 && me.in != answered && me.out != answered
}

// successors explores every state that can follow w.
func (s *search) successors(w world) (any bool) {
	step := func(f func(n *world)) {
		any = true
		n := w
		f(&n)
		k := maphash.Comparable(s.seed, n)
		if _, ok := s.seen[k]; !ok {
			s.seen[k] = struct{}{}
			s.todo = append(s.todo, n)
		}
	}
	for i := range w.ends {
		me := &w.ends[i]
		if me.dead {
			continue
		}
		if me.sent < small && !me.holding {
			step(func(n *world) {
				e := &n.ends[i]
				e.sent++
				if e.sent == rendezvous {
					e.out = offered
					s.post(n, i, 1, packet{what: pkOffer})
					return
				}
				s.post(n, i, 0, packet{what: pkData})
			})
		}
		if me.in == offered && me.taken == 0 && !me.holding {
			step(func(n *world) {
				e := &n.ends[i]
				e.in, e.taken = answered, rendezvous
				s.post(n, i, 1, packet{what: pkAnswer})
				n.take(i)
			})
		}
		if me.opens < maxOpens && me.m.Phase() == Idle {
			step(func(n *world) {
				n.ends[i].opens++
				s.run(n, i, Event{Kind: Open, Nonce: uint64(10 + i)})
			})
		}
		if me.drain && w.drained(i) {
			step(func(n *world) {
				n.ends[i].drain = false
				s.run(n, i, Event{Kind: Drained, Epoch: me.m.Epoch()})
			})
		}
		if w.bad < maxBad && me.m.Phase() != Idle {
			step(func(n *world) {
				n.bad++
				s.run(n, i, Event{Kind: Timeout})
			})
		}
		if w.tcp[i].n > 0 {
			step(func(n *world) {
				p := n.tcp[i].pop()
				s.run(n, i, Event{Kind: p.kind, Epoch: uint32(p.epoch), Nonce: uint64(p.nonce)})
			})
		}
		for epoch := range w.lane[i] {
			// What is on lanes that this end does not have goes nowhere.
			if e := uint8(epoch); e != me.lane && e != me.next {
				continue
			}
			for lane := range w.lane[i][epoch] {
				if w.lane[i][epoch][lane].n > 0 {
					step(func(n *world) {
						s.receive(n, i, uint8(epoch), uint8(lane), n.lane[i][epoch][lane].pop())
					})
				}
			}
		}
	}
	return any
}

// explore runs the search to its end, or without the vote to the first loss, and
// counts how its runs ended.
func explore(t *testing.T, selfish bool) map[string]int {
	s := &search{t: t, selfish: selfish, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, ends: map[string]int{}}
	var start world
	for i := range start.ends {
		start.ends[i].m = New(1)
		start.ends[i].lane = 1
	}
	s.todo = []world{start}
	for len(s.todo) > 0 && !(selfish && s.ends["lost"] > 0) {
		w := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		if !s.successors(w) || w.lost {
			s.ends[w.verdict()]++
		}
	}
	t.Logf("%d states; at rest: %v", len(s.seen), s.ends)
	return s.ends
}

// verdict names a state in which nothing can happen any more.
func (w *world) verdict() string {
	a, b := &w.ends[0], &w.ends[1]
	switch {
	case w.lost:
		return "lost"
	case a.dead || b.dead:
		return "connection ended"
	case a.m.Phase() != Idle || b.m.Phase() != Idle || a.holding || b.holding:
		return "stuck"
	case a.lane != b.lane:
		return "on different lanes"
	case a.taken != small || b.taken != small || a.in != finished || b.in != finished:
		return "not delivered"
	case a.lane == 1:
		return "old lanes"
	}
	return "new lanes"
}

// TestEveryInterleaving searches the protocol for losses and for states in which an
// end is stuck.
func TestEveryInterleaving(t *testing.T) {
	good := map[string]bool{"old lanes": true, "new lanes": true, "connection ended": true}
	ends := explore(t, false)
	for verdict, n := range ends {
		if !good[verdict] {
			t.Errorf("%d runs: %s", n, verdict)
		}
	}
	for verdict := range good {
		if ends[verdict] == 0 {
			t.Errorf("no run: %s", verdict)
		}
	}
}

// TestWithoutTheVote checks that the search finds what the vote is for: without it
// messages are lost.
func TestWithoutTheVote(t *testing.T) {
	if ends := explore(t, true); ends["lost"] == 0 {
		t.Errorf("nothing is lost without the vote: %v", ends)
	}
}
