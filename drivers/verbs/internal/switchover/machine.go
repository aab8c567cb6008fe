// Package switchover is the protocol by which two ends of a connection replace
// its lanes: create before destroy, drained, in two phases with a vote. It is a
// pure state machine: events in, actions out, no input or output, no clock. The
// transport runs it; a search over all interleavings can run the very same code.
//
// One end opens, the other accepts:
//
//	opener                         acceptor
//	  PROPOSE(epoch, nonce)   ->     builds its new lane
//	                          <-   ACCEPT, or REFUSE(reason)
//	  builds, connects
//	  CONNECT                 ->     connects
//	                          <-   READY; holds new requests, drains
//	  holds, drains
//	                          <-   VOTE, in-band on the old lane
//	  both drained: COMMIT    ->     in-band on the old lane
//	  goes on on the new lane        goes on on the new lane
//
// The opener decides, once. Nobody posts on a new lane before COMMIT. Until an
// acceptor has voted it may abort as well, since no COMMIT can exist yet; once it
// has voted it waits, and when the decision never comes the connection ends,
// because neither lane is safe any more. Every other failure returns to the old
// lanes. An epoch that was seen is never used again, so that whatever arrives late
// is told apart.
package switchover

// A Phase is where an end stands in a switch.
type Phase uint8

// The phases.
const (
	Idle       Phase = iota
	Proposed         // opener: waits for ACCEPT or REFUSE
	Building         // opener: accepted, brings its new lane to ready
	Announced        // opener: sent CONNECT, waits for READY
	Offering         // acceptor: creates its new lane
	Offered          // acceptor: sent ACCEPT, waits for CONNECT
	Connecting       // acceptor: brings its new lane to ready
	Draining         // holds new requests until the old lane is empty
	Voted            // acceptor: waits for the decision
	Ended            // the connection is lost
)

// String names the phase.
func (p Phase) String() string {
	return [...]string{"idle", "proposed", "building", "announced", "offering", "offered",
		"connecting", "draining", "voted", "ended"}[p]
}

// A Kind is a kind of event.
type Kind uint8

// The events. Those from the peer carry the epoch of the switch that they are
// about; those from this end carry the epoch that the machine gave in the action.
const (
	Open       Kind = iota // this end wants a switch; Nonce is random
	Propose                // peer; Reason is set when this end cannot take part
	Accept                 // peer
	Refuse                 // peer, with Reason
	Connect                // peer
	Ready                  // peer
	Vote                   // peer, in-band
	Commit                 // peer, in-band
	Abort                  // peer, with Reason
	LaneMade               // the lane that MakeLane asked for exists
	LaneReady              // the lane that ReadyLane asked for is ready
	LaneFailed             // either could not be done, with Reason
	Drained                // nothing is outstanding on the old lane
	Timeout                // the timer that the machine started ran out
)

// An Event is what happened.
type Event struct {
	Kind   Kind
	Epoch  uint32
	Nonce  uint64
	Reason string
}

// An Act is a kind of action.
type Act uint8

// The actions.
const (
	SendPropose Act = iota
	SendAccept
	SendRefuse
	SendConnect
	SendReady
	SendVote
	SendCommit
	SendAbort
	MakeLane   // acceptor: create the new lane; answer LaneMade or LaneFailed
	ReadyLane  // bring it to ready (the opener creates it first); answer LaneReady or LaneFailed
	DropLane   // destroy the new lane, if there is one
	Hold       // stop posting on the old lane; answer Drained once
	Release    // go on on the old lane
	Flip       // go on on the new lane, retire the old
	Yield      // the peer opened too and goes first; it carries this end's wish
	StartTimer // restart the timer for a phase
	StopTimer
	Finish // the switch is over: Outcome and Reason
	Die    // the connection is lost: Reason
)

// An Outcome is how a switch ended.
type Outcome uint8

// Outcomes.
const (
	Switched Outcome = iota
	Refused
	Aborted
)

// An Action is what the machine's owner must do, in the order given.
type Action struct {
	Act     Act
	Epoch   uint32
	Nonce   uint64
	Outcome Outcome
	Reason  string
}

// maxAhead bounds how far a proposal's epoch may be above every epoch seen: the
// ends differ by the proposals that one of them gave up at most, and epochs must
// never wrap.
const maxAhead = 1 << 10

// ReasonBusy refuses a switch because another one is under way.
const ReasonBusy = "busy"

// A Machine is one end's state. The zero value is an end whose lanes have epoch 0;
// Machines are comparable and copied by assignment.
type Machine struct {
	phase   Phase
	opener  bool
	drained bool
	voted   bool // the peer
	epoch   uint32
	highest uint32 // epoch that was ever seen
	lanes   uint32 // epoch of the lanes in force
	nonce   uint64 // of this end's proposal
}

// New returns a machine of a connection whose lanes have epoch.
func New(epoch uint32) Machine { return Machine{highest: epoch, lanes: epoch} }

// Phase returns the phase.
func (m *Machine) Phase() Phase { return m.phase }

// Epoch is that of the switch under way, or of the last one.
func (m *Machine) Epoch() uint32 { return m.epoch }

// Opener reports whether this end opened the switch under way, or the last one.
func (m *Machine) Opener() bool { return m.opener }

// Step handles e and returns what to do. Whatever does not fit the phase and
// epoch is late or hostile and changes nothing.
func (m *Machine) Step(e Event) []Action {
	if m.phase == Ended {
		return nil
	}
	switch e.Kind {
	case Open:
		return m.open(e)
	case Propose:
		return m.proposed(e)
	case Timeout:
		return m.timeout()
	}
	if e.Epoch != m.epoch || m.phase == Idle {
		return m.late(e)
	}
	switch {
	case e.Kind == Accept && m.phase == Proposed:
		m.phase = Building
		return []Action{m.act(ReadyLane), m.act(StartTimer)}
	case e.Kind == Refuse && m.phase == Proposed:
		return m.finish(Refused, e.Reason)
	case e.Kind == LaneReady && m.phase == Building:
		m.phase = Announced
		return []Action{m.act(SendConnect), m.act(StartTimer)}
	case e.Kind == Ready && m.phase == Announced:
		return m.hold()

	case e.Kind == LaneMade && m.phase == Offering:
		m.phase = Offered
		return []Action{m.act(SendAccept), m.act(StartTimer)}
	case e.Kind == LaneFailed && m.phase == Offering:
		return append([]Action{m.because(SendRefuse, e.Reason)}, m.finish(Refused, e.Reason)...)
	case e.Kind == Connect && m.phase == Offered:
		m.phase = Connecting
		return []Action{m.act(ReadyLane), m.act(StartTimer)}
	case e.Kind == LaneReady && m.phase == Connecting:
		return append([]Action{m.act(SendReady)}, m.hold()...)

	case e.Kind == LaneFailed && (m.phase == Building || m.phase == Connecting):
		return append([]Action{m.because(SendAbort, e.Reason)}, m.finish(Aborted, e.Reason)...)
	case e.Kind == Drained && m.phase == Draining && !m.drained:
		m.drained = true
		if m.opener {
			return m.decide()
		}
		m.phase = Voted
		return []Action{m.act(SendVote), m.act(StartTimer)}
	case e.Kind == Vote && m.opener && (m.phase == Announced || m.phase == Draining):
		// A vote can overtake READY, which takes another way.
		m.voted = true
		return m.decide()
	case e.Kind == Commit && m.phase == Voted:
		return m.commit()
	case e.Kind == Abort:
		return m.finish(Aborted, e.Reason)
	}
	return nil
}

func (m *Machine) open(e Event) []Action {
	if m.phase != Idle {
		return nil
	}
	m.start(true, m.highest+1)
	m.nonce = e.Nonce
	m.phase = Proposed
	return []Action{m.act(SendPropose), m.act(StartTimer)}
}

func (m *Machine) start(opener bool, epoch uint32) {
	m.opener, m.drained, m.voted = opener, false, false
	m.epoch, m.highest, m.nonce = epoch, epoch, 0
}

// proposed handles the peer's PROPOSE.
func (m *Machine) proposed(e Event) []Action {
	refuse := func(reason string) []Action {
		return []Action{{Act: SendRefuse, Epoch: e.Epoch, Reason: reason}}
	}
	var acts []Action
	switch {
	case m.phase == Proposed && e.Epoch == m.epoch:
		// Both opened. The lower nonce goes first; the peer sees the same two.
		if m.nonce < e.Nonce {
			return nil
		}
		if m.nonce == e.Nonce {
			return m.finish(Aborted, "both ends opened with one nonce")
		}
		acts = []Action{m.act(Yield)}
	case m.phase != Idle || e.Epoch <= m.highest || e.Epoch-m.highest > maxAhead:
		return refuse(ReasonBusy)
	}
	if e.Reason != "" {
		if acts != nil {
			// This end's own wish is refused with the peer's.
			acts = append(acts, m.finish(Refused, e.Reason)...)
		}
		m.highest = max(m.highest, e.Epoch)
		return append(acts, refuse(e.Reason)...)
	}
	m.start(false, e.Epoch)
	m.phase = Offering
	return append(acts, m.act(MakeLane), m.act(StartTimer))
}

// timeout returns to the old lanes while that is safe.
func (m *Machine) timeout() []Action {
	switch m.phase {
	case Idle:
		return nil
	case Voted:
		return m.die("voted and heard no decision")
	}
	reason := "the peer did not get on in time (" + m.phase.String() + ")"
	return append([]Action{m.because(SendAbort, reason)}, m.finish(Aborted, reason)...)
}

// late handles what belongs to no switch of this end. An acceptor whose opener
// gave up hears so, instead of waiting for its timer; never for an epoch that was
// committed, since that abort could overtake the COMMIT.
func (m *Machine) late(e Event) []Action {
	if (e.Kind == Accept || e.Kind == Ready) && e.Epoch > m.lanes {
		return []Action{{Act: SendAbort, Epoch: e.Epoch, Reason: "given up"}}
	}
	return nil
}

func (m *Machine) hold() []Action {
	m.phase = Draining
	return []Action{m.act(Hold), m.act(StartTimer)}
}

// decide commits once both ends are drained.
func (m *Machine) decide() []Action {
	if m.phase != Draining || !m.drained || !m.voted {
		return nil
	}
	return append([]Action{m.act(SendCommit)}, m.commit()...)
}

func (m *Machine) commit() []Action {
	m.phase = Idle
	m.lanes = m.epoch
	return []Action{m.act(Flip), m.act(StopTimer), {Act: Finish, Epoch: m.epoch, Outcome: Switched}}
}

// finish ends the switch on the old lanes.
func (m *Machine) finish(o Outcome, reason string) []Action {
	var acts []Action
	if m.phase == Draining || m.phase == Voted {
		acts = append(acts, m.act(Release))
	}
	m.phase = Idle
	return append(acts, m.act(DropLane), m.act(StopTimer),
		Action{Act: Finish, Epoch: m.epoch, Outcome: o, Reason: reason})
}

func (m *Machine) die(reason string) []Action {
	m.phase = Ended
	return []Action{m.act(StopTimer), m.because(Die, reason)}
}

func (m *Machine) act(a Act) Action { return Action{Act: a, Epoch: m.epoch, Nonce: m.nonce} }

func (m *Machine) because(a Act, reason string) Action {
	return Action{Act: a, Epoch: m.epoch, Reason: reason}
}
