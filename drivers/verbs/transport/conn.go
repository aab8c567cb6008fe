package transport

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
)

// A Conn is a connection between two processes: messages, in order, exactly once
// while it lives. One Send and one Recv at a time proceed; others wait their turn.
type Conn struct {
	t      *Transport
	id     uint64
	dialed bool
	tcp    net.Conn
	peer   string
	gid    int // index in the port's GID table

	sendTurn, recvTurn   chan struct{} // hold one token each
	sendReady, recvReady chan struct{} // something may have changed for the waiter
	sendSpin, recvSpin   time.Duration // of adaptive waits; with the turn
	dead                 chan struct{} // closed with err set
	gone                 chan struct{} // closed when everything is given back
	wake                 chan struct{} // inband has something, or a condition of the switch
	requests             chan *request
	fromPeer             chan *controlMsg
	readErr              error         // of the control channel, set before fromPeer is closed
	closing              chan struct{} // Close wants the farewell
	closeOnce            sync.Once
	senders              atomic.Int32 // Sends that wait for their turn

	mu      sync.Mutex
	cur     *lane   // guarded by mu, as is everything below
	next    *lane   // of the switch under way
	retired []*lane // waiting for their last completion, or for the program to read them
	err     error
	inband  []switchover.Event // from completions, for the control goroutine

	holding   bool      // new requests wait for the end of the switch
	draining  bool      // Drained is to be told when nothing is outstanding
	heldSince time.Time // first request that waited, zero when none did
	held      int
	drained   int // outstanding when the hold began
	paused    time.Duration
	leaving   bool // Close was called: no new messages

	sentSeq uint64 // last sequence with a segment posted
	sentOff int    // bytes posted of a message that was given up, to be abandoned
	posted  uint64 // messages posted whole
	done    uint64 // of these, complete
	refused uint64 // messages not posted at all because the connection ended
	partial bool   // a message ended midway

	arrived uint64 // messages whose last segment arrived
	recvSeq uint64 // next sequence for the program
	recvOff int
	stash   []byte // first bytes of a message whose Recv was cancelled
	bye     *controlMsg

	sentTraffic, recvTraffic control.Traffic
	generation               uint64
	switches                 []control.Switch
	lastSwitch               time.Time
}

func (t *Transport) newConn(tcp net.Conn, dialed bool, gid int) *Conn {
	c := &Conn{
		t: t, id: t.connID.Add(1), dialed: dialed, tcp: tcp, peer: tcp.RemoteAddr().String(), gid: gid,
		sendTurn: make(chan struct{}, 1), recvTurn: make(chan struct{}, 1),
		sendReady: make(chan struct{}, 1), recvReady: make(chan struct{}, 1),
		dead: make(chan struct{}), gone: make(chan struct{}), wake: make(chan struct{}, 1),
		requests: make(chan *request), fromPeer: make(chan *controlMsg), closing: make(chan struct{}),
		recvSeq: 1,
	}
	c.sendTurn <- struct{}{}
	c.recvTurn <- struct{}{}
	return c
}

// nudge wakes whoever waits on ch.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// fail ends the connection; the control goroutine cleans up. Caller holds mu.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	close(c.dead)
	nudge(c.sendReady)
	nudge(c.recvReady)
}

// failAsync is fail for a caller that does not hold mu.
func (c *Conn) failAsync(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(err)
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
	if c.partial || c.sentOff > 0 {
		e.NotDelivered++
	}
	return e
}

// recvError is the error of Recv once nothing more can come. Caller holds mu.
func (c *Conn) recvError() error {
	if c.bye != nil && c.recvSeq > c.bye.Last {
		return io.EOF
	}
	return c.connError()
}
