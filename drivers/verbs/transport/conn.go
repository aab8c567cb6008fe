package transport

import (
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

// A Conn is a connection between two processes: messages, exactly once while it
// lives. Any number of goroutines may Send and Recv.
type Conn struct {
	t      *Transport
	id     uint64
	dialed bool
	tcp    net.Conn
	peer   string
	gid    int // index in the port's GID table
	// fixed is what the connection was made to follow, nil when it follows its transport.
	// Set before the connection starts.
	fixed *Settings

	sendReady [maxLanes]*bell // for who waits with the turn
	recvReady *bell
	sendWait  [maxLanes]waiter // with the turn
	recvWait  waiter
	cq        atomic.Pointer[sharedCQ] // of the first lane
	dead      chan struct{}            // closed with err set
	gone      chan struct{}            // closed when everything is given back
	wake      chan struct{}            // inband has something, or a condition of the switch
	requests  chan *request
	fromPeer  chan *controlMsg
	readErr   error         // of the control channel, set before fromPeer is closed
	closing   chan struct{} // Close wants the farewell
	closeOnce sync.Once
	routes    atomic.Pointer[routes]

	mu       sync.Mutex
	sendTurn [maxLanes]turn // guarded by mu, as is everything below: whose message goes next
	recvTurn turn
	cur      *laneSet
	next     *laneSet   // of the switch under way
	retired  []*laneSet // waiting for their last completion, or for the program to read them
	err      error
	inband   []switchover.Event // from completions, for the control goroutine

	holding   bool      // new requests wait for the end of the switch
	draining  bool      // Drained is to be told when nothing is outstanding
	heldSince time.Time // first request that waited, zero when none did
	held      int
	drained   int // outstanding when the hold began
	paused    time.Duration
	leaving   bool // Close was called: no new messages
	counted   bool // the farewell says what the program received: it receives no more

	sentSeq uint64 // last sequence given to a message
	posted  uint64 // messages posted whole
	done    uint64 // of these, complete
	refused uint64 // messages not delivered because the connection ended
	full    uint64 // times that a sender found no slot or credit

	arrived  uint64 // messages that are here, or were given up by their sender
	lastSeq  uint64 // highest that came on the lanes in use
	peerLast uint64 // last one of the peer on its lanes before the switch
	ballot   header // vote or commit that waits for what was sent before it; kind 0 = none
	recvSeq  uint64 // next sequence for the program, where the peer's messages are ordered
	passed   int    // messages in a row that passed one of the other lane
	taken    uint64 // messages that the program was given, or that were given up
	received uint64 // messages that the program was given whole
	bye      *controlMsg

	out        [maxRendezvous]outgoing
	outOpen    [maxLanes]int // entries of out in use, by lane
	outNext    int           // entry that may post next
	in         [2 * maxRendezvous]incoming
	inOpen     int      // entries of in that the peer may be writing to
	offers     int      // of the peer, not ended
	goneOffers []uint64 // to be told that they are
	answering  bool     // a Recv waits for a control slot

	sentTraffic, recvTraffic traffic
	generation               uint64
	switches                 []control.Switch
	lastSwitch               time.Time
}

// routes is what a Send needs to know before its turn.
type routes struct {
	small   int64         // bytes of the largest message on lane 0
	copyMax [maxLanes]int // bytes of the largest message that a lane copies
}

func (t *Transport) newConn(tcp net.Conn, dialed bool, gid int) *Conn {
	ready := func() chan struct{} { return make(chan struct{}, 1) }
	c := &Conn{
		t: t, id: t.connID.Add(1), dialed: dialed, tcp: tcp, peer: tcp.RemoteAddr().String(), gid: gid,
		recvTurn: turn{pass: ready()}, recvReady: newBell(), dead: make(chan struct{}), gone: make(chan struct{}), wake: ready(),
		requests: make(chan *request), fromPeer: make(chan *controlMsg), closing: make(chan struct{}),
		recvSeq: 1, goneOffers: make([]uint64, 0, 2*maxRendezvous),
	}
	for i := range maxLanes {
		c.sendTurn[i], c.sendReady[i] = turn{pass: ready()}, newBell()
	}
	for i := range c.out {
		c.out[i].done = newBell()
	}
	for i := range c.in {
		c.in[i].done = newBell()
	}
	return c
}

// install puts s in use. Caller holds mu.
func (c *Conn) install(s *laneSet) {
	c.cur = s
	c.cq.Store(s.lanes[0].cq)
	r := &routes{small: math.MaxInt64}
	if s.layout.lanes > 1 {
		r.small = s.layout.small
	}
	for i := range s.layout.lanes {
		r.copyMax[i] = s.lanes[i].eagerMax()
	}
	c.routes.Store(r)
}

// nudge wakes whoever waits on ch.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (c *Conn) ringSenders() {
	for _, b := range c.sendReady {
		b.ring()
	}
}

// fail ends the connection; the control goroutine cleans up. Caller holds mu.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	close(c.dead)
	c.ringSenders()
	c.recvReady.ring()
}

// failAsync is fail for a caller that does not hold mu.
func (c *Conn) failAsync(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(err)
}

// check ends the connection on an error. Caller holds mu.
func (c *Conn) check(err error) {
	if err != nil {
		c.fail(err)
	}
}

// connError says what became of the messages. Caller holds mu.
func (c *Conn) connError() error {
	reason := c.err
	if reason == nil {
		reason = ErrClosed
	}
	e := &ConnError{Err: reason, Delivered: c.done, NotDelivered: c.refused, Unknown: c.posted - c.done}
	if c.bye != nil {
		// The peer said what its program received: nothing else ever will be.
		got := min(c.bye.Received, c.posted)
		e.Delivered, e.NotDelivered, e.Unknown = got, e.NotDelivered+c.posted-got, 0
	}
	return e
}

// recvError is the error of Recv once nothing more can come. Caller holds mu.
func (c *Conn) recvError() error {
	if c.bye != nil && c.taken >= c.bye.Last {
		return io.EOF
	}
	return c.connError()
}
