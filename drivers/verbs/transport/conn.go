package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
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

// Send sends msg; it blocks while the peer has no room and while a switch drains.
// msg may be reused on return. When ctx ends before the first byte went out, nothing
// is sent; midway, the peer drops what it has of the message. The error after the
// connection ended is a *ConnError.
func (c *Conn) Send(ctx context.Context, msg []byte) error {
	if len(msg) > MaxMessage {
		return fmt.Errorf("send %d bytes: %w", len(msg), ErrTooLarge)
	}
	select {
	case <-c.sendTurn:
	default:
		c.senders.Add(1)
		defer c.senders.Add(-1)
		select {
		case <-c.sendTurn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { c.sendTurn <- struct{}{} }()
	if err := c.abandon(ctx); err != nil {
		return err
	}
	off, first, segments := 0, true, 0
	for {
		c.mu.Lock()
		n, k, err := c.push(segData, msg, off, first)
		segments += k
		off += n
		if k > 0 {
			first = false
		}
		complete := k > 0 && off == len(msg)
		if complete {
			c.countSent(len(msg), segments)
		}
		low := c.cur != nil && c.cur.dataPosted-c.cur.dataFreed > uint64(c.cur.prof.depth)*3/4
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if low {
			c.t.eng.tryProgress()
		}
		if complete {
			return nil
		}
		if k > 0 {
			continue
		}
		if err := c.wait(ctx, c.sendReady); err != nil {
			if !first {
				c.mu.Lock()
				c.sentOff = off
				c.mu.Unlock()
			}
			return err
		}
	}
}

// push posts segments of msg from off on; none when there is no room or a switch
// holds new requests. first says that none of the message is out. Caller holds mu.
func (c *Conn) push(kind segKind, msg []byte, off int, first bool) (n, segments int, err error) {
	if c.err != nil || c.leaving {
		if first {
			c.refused++
		} else {
			c.partial = true
		}
		return 0, 0, c.connError()
	}
	if c.holding {
		if c.heldSince.IsZero() {
			c.heldSince = time.Now()
		}
		return 0, 0, nil
	}
	if c.cur.room() <= 0 || c.cur.sick {
		c.cur.full++
		return 0, 0, nil
	}
	if first && kind == segData {
		c.sentSeq++
	}
	if n, segments, err = c.cur.postData(kind, c.sentSeq, msg, off); err != nil {
		c.fail(err)
		return n, segments, c.connError()
	}
	return n, segments, nil
}

// abandon tells the peer to drop a message whose Send was cancelled midway.
func (c *Conn) abandon(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.sentOff == 0 {
			c.mu.Unlock()
			return nil
		}
		_, k, err := c.push(segAbandon, nil, 0, false)
		if k > 0 {
			c.sentOff = 0
		}
		c.mu.Unlock()
		if err != nil || k > 0 {
			return err
		}
		if err := c.wait(ctx, c.sendReady); err != nil {
			return err
		}
	}
}

// countSent counts a message that was posted whole. Caller holds mu.
func (c *Conn) countSent(size, segments int) {
	c.posted++
	count(&c.sentTraffic, size, segments, c.cur.inline-headerLen)
}

func count(t *control.Traffic, size, segments, inline int) {
	t.Messages++
	t.Bytes += uint64(size)
	switch {
	case segments > 1:
		t.Rendezvous++
	case size <= inline:
		t.Inline++
	default:
		t.Eager++
	}
}

// Recv receives the next message into buf and returns its size. io.EOF: the peer
// closed and everything was received. A *SizeError leaves the message in place.
// Messages that arrived before the connection ended are still received.
func (c *Conn) Recv(ctx context.Context, buf []byte) (int, error) {
	select {
	case <-c.recvTurn:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { c.recvTurn <- struct{}{} }()
	segments := 0
	for {
		n, more, err := c.pull(buf, &segments)
		if err != nil || !more && n >= 0 {
			return max(n, 0), err
		}
		if more {
			continue
		}
		if err := c.wait(ctx, c.recvReady); err != nil {
			c.mu.Lock()
			if c.recvOff > 0 && c.stash == nil {
				c.stash = append([]byte(nil), buf[:c.recvOff]...)
			}
			c.mu.Unlock()
			return 0, err
		}
	}
}

// pull takes one segment. n is the message's size when it is whole, else -1; more
// says that another segment may be there.
func (c *Conn) pull(buf []byte, segments *int) (n int, more bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, a := c.head()
	if l == nil {
		if c.err != nil {
			return -1, false, c.recvError()
		}
		return -1, false, nil
	}
	if a.kind == segAbandon {
		l.fhead++
		c.recvSeq++
		c.recvOff, c.stash = 0, nil
		return -1, true, c.consumed(l, a.buf)
	}
	if int(a.total) > len(buf) {
		return 0, false, &SizeError{int(a.total), io.ErrShortBuffer}
	}
	if c.stash != nil {
		copy(buf, c.stash)
		c.stash = nil
	}
	l.fhead++
	l.reading++
	c.mu.Unlock()
	copy(buf[a.offset:], l.recvBuf(a.buf)[headerLen:headerLen+a.len])
	c.mu.Lock()
	l.reading--
	*segments++
	c.recvOff += a.len
	if err := c.consumed(l, a.buf); err != nil {
		return -1, false, err
	}
	if c.recvOff < int(a.total) {
		return -1, true, nil
	}
	c.recvSeq++
	c.recvOff = 0
	count(&c.recvTraffic, int(a.total), *segments, l.inline-headerLen)
	return int(a.total), false, nil
}

// head returns the segment that comes next by sequence and offset, on any lane.
// Caller holds mu.
func (c *Conn) head() (*lane, arrived) {
	try := func(l *lane) (arrived, bool) {
		if l == nil || l.fhead == l.ftail {
			return arrived{}, false
		}
		a := l.fifo[l.fhead%uint64(len(l.fifo))]
		return a, a.seq == c.recvSeq && (a.kind == segAbandon || int(a.offset) == c.recvOff)
	}
	for _, l := range c.retired {
		if a, ok := try(l); ok {
			return l, a
		}
	}
	if a, ok := try(c.cur); ok {
		return c.cur, a
	}
	if a, ok := try(c.next); ok {
		return c.next, a
	}
	return nil, arrived{}
}

// consumed gives a receive buffer back. Caller holds mu.
func (c *Conn) consumed(l *lane, buf int) error {
	if l.closed {
		err := l.freeIfRead()
		c.forgetRead()
		return err
	}
	if err := l.repost(buf); err != nil {
		c.fail(err)
	}
	if l != c.cur {
		nudge(c.wake) // a retired lane may be empty now
	}
	return nil
}

// forgetRead drops retired lanes that nothing needs any more. Caller holds mu.
func (c *Conn) forgetRead() {
	keep := c.retired[:0]
	for _, l := range c.retired {
		if !l.freed {
			keep = append(keep, l)
		}
	}
	clear(c.retired[len(keep):])
	c.retired = keep
}

// spinTime is how long an adaptive wait polls before it sleeps.
const spinTime = 20 * time.Microsecond

// wait waits for ready, the end of ctx (an error) or of the connection.
func (c *Conn) wait(ctx context.Context, ready chan struct{}) error {
	select {
	case <-ready:
		return nil
	default:
	}
	c.mu.Lock()
	mode := completionEvent
	if c.cur != nil && c.err == nil {
		mode = c.cur.prof.completion
	}
	c.mu.Unlock()
	if mode != completionEvent && c.spin(ctx, ready, mode == completionBusy) {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.dead:
		return nil
	}
}

// spin polls until ready, or until it is time to sleep; true means ready.
func (c *Conn) spin(ctx context.Context, ready chan struct{}, forever bool) bool {
	eng := c.t.eng
	eng.beginSpin()
	defer eng.endSpin()
	start := time.Now()
	for forever || time.Since(start) < spinTime {
		eng.tryProgress()
		select {
		case <-ready:
			return true
		case <-c.dead:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		runtime.Gosched()
	}
	return false
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
