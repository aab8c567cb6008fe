package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A work request's id is its lane's id and, below, recvBit and the buffer's index
// or the send's position.
const recvBit = 1 << 31

// A lane is one queue pair with its buffers, for one epoch of a connection.
type lane struct {
	conn  *Conn
	id    uint32
	index int // in its set
	prof  profile

	cq  *sharedCQ
	qp  verbs.QP
	mr  verbs.MR
	mem []byte // message slots, control slots, receive buffers

	granted want // what this end gives: receive buffers and their size
	inline  int  // bytes granted
	local   verbs.Endpoint
	peerQPN uint32

	// Guarded by conn.mu from here on.

	peer       want   // what the peer gives
	records    []sent // ring of outstanding sends: [completed, posted)
	posted     uint64
	completed  uint64
	unsignaled int    // since the last signaled one
	signaled   uint64 // so far
	dataPosted uint64 // message slots used so far; slot = dataPosted % depth
	dataFreed  uint64
	writes     int // RDMA writes outstanding
	ctlPosted  uint64
	ctlFreed   uint64
	limit      uint32 // messages and offers that the peer is ready for, since the lane began
	sentData   uint32 // messages and offers posted, as above
	postedSeq  uint64 // last message or offer posted
	sends      uint32 // segments posted, since the lane began
	recvs      uint32 // segments arrived, as above
	repeats    uint64 // segments that the device delivered again

	fifo       []arrived // ring of arrived messages and offers: [fhead, ftail)
	fhead      uint64
	ftail      uint64
	free       []verbs.RecvWR // consumed, not posted again yet
	spare      []verbs.RecvWR // same of segments without a message
	ready      uint32         // messages and offers that this end was ever ready for
	told       uint32         // what the peer knows of ready
	reading    int            // messages being copied out
	arrivedSeq uint64         // last message or offer that arrived here
	waiting    bool           // a sender found no room
	highWater  int
	full       uint64 // times that a sender found no slot or credit
	sick       bool   // a completion failed, with status
	status     verbs.Status
	seen       uint64 // completed, when the transport looked last
	still      int    // looks since then that found no other
	sendsSeen  uint32 // sends, when the transport looked last
	marked     uint32 // sends, after the marker of the last pause
	closed     bool   // nothing is posted any more
	quiet      bool   // the queue pair is gone: the device touches the memory no more
	freed      bool   // so is the memory
	batch      [sendBatch]verbs.SendWR
	batched    int
}

// sendBatch is how many work requests are posted at once.
const sendBatch = 16

// arrived is a message or an offer in a receive buffer.
type arrived struct {
	header
	buf int // index
	len int // bytes of a message
}

// at is where in the buffer the message is.
func (a *arrived) at() int {
	if a.immediate {
		return 0
	}
	return headerLen
}

// size is that of the message.
func (a *arrived) size() int {
	if a.kind == segOffer {
		return int(a.total)
	}
	return a.len
}

// newLane creates a lane's queue pair and buffers: for sending by p, for receiving
// by granted.
func (c *Conn) newLane(index int, p profile, granted want) (_ *lane, err error) {
	t := c.t
	l := &lane{conn: c, index: index, prof: p, granted: granted}
	if l.cq, err = t.eng.reserve(l.entries(), p.moderate); err != nil {
		return nil, fmt.Errorf("lane: completion queue: %w", err)
	}
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	l.qp, err = t.eng.pd.CreateQP(verbs.QPInitAttr{SendCQ: l.cq.CQ, RecvCQ: l.cq.CQ, Cap: verbs.QPCap{
		SendWR: p.depth + controlSlots, RecvWR: l.buffers(), Inline: min(p.inline, t.maxInline),
	}})
	if err != nil {
		return nil, fmt.Errorf("lane: queue pair: %w", err)
	}
	l.inline = min(l.qp.Cap().Inline, p.inline)
	size := l.recvStart() + l.buffers()*granted.Segment
	if l.mem, err = verbs.AllocMem(size); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	if l.mr, err = t.register(l.mem, verbs.AccessLocalWrite); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	if err = l.qp.Init(t.port); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	l.records = make([]sent, p.depth+controlSlots)
	l.fifo = make([]arrived, granted.Credits)
	l.free = make([]verbs.RecvWR, 0, granted.Credits)
	l.spare = make([]verbs.RecvWR, 0, controlBatch)
	t.eng.add(l)
	wrs := make([]verbs.RecvWR, l.buffers())
	for i := range wrs {
		wrs[i] = l.recvWR(i)
	}
	if _, err = l.qp.PostRecv(wrs); err != nil {
		return nil, fmt.Errorf("lane: post receives: %w", err)
	}
	l.ready, l.told = uint32(granted.Credits), uint32(granted.Credits)
	if l.local, err = l.qp.Local(t.port, c.gid); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	return l, nil
}

// buffers is how many receive buffers the lane has.
func (l *lane) buffers() int { return l.granted.Credits + controlSlots }

// entries is how many completions the lane can have waiting.
func (l *lane) entries() int { return l.prof.depth + controlSlots + l.buffers() }

// connect takes the queue pair to RTS towards the peer's w.
func (l *lane) connect(w *wireLane) error {
	remote, err := w.Endpoint.verbs()
	if err != nil {
		return err
	}
	t := l.conn.t
	err = l.qp.Connect(verbs.ConnectAttr{
		Port: t.port, GIDIndex: l.conn.gid, Local: l.local, Remote: remote, MTU: min(t.mtu, w.Endpoint.MTU),
		RNRRetry: 7, RetryCount: retryCount, TimeoutExp: timeoutExp(t.deadTime),
	})
	if err != nil {
		return fmt.Errorf("lane: %w", err)
	}
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	l.peerQPN = remote.QPN
	l.peer = w.Grant
	l.limit = uint32(w.Grant.Credits)
	return nil
}

const retryCount = 7 // the most there is

// timeoutExp returns the queue pair's timeout as a power of two of 4.096 us: all
// tries together take a quarter of what a dead peer may take to be noticed, since
// devices may take four times as long. Not less: the control channel notices first
// anyway, and a peer that is merely slow to acknowledge is sent everything again.
func timeoutExp(dead time.Duration) int {
	exp := 8
	for exp < 18 && (retryCount+1)*4096*time.Nanosecond<<(exp+1) <= dead/4 {
		exp++
	}
	return exp
}

// segment is how many bytes of a segment both ends have.
func (l *lane) segment() int { return min(l.prof.segment, l.peer.Segment) }

// inlineMax is the largest message that is sent inline, -1 for none.
func (l *lane) inlineMax() int { return min(l.inline, l.segment()) - headerLen }

// eagerMax is the largest message that is copied.
func (l *lane) eagerMax() int {
	return max(min(l.prof.eager, l.segment()-headerLen), l.inlineMax(), 0)
}

// tier returns how a message of size bytes travels.
func (l *lane) tier(size int) tier {
	switch {
	case size <= l.inlineMax():
		return tierInline
	case size <= l.eagerMax():
		return tierEager
	}
	return tierRendezvous
}

func (l *lane) slot(i uint64) []byte {
	at := int(i%uint64(l.prof.depth)) * l.prof.segment
	return l.mem[at : at+l.prof.segment]
}

func (l *lane) recvStart() int {
	return l.prof.depth*l.prof.segment + controlSlots*longHeaderLen
}

// recvBuf returns receive buffer i.
func (l *lane) recvBuf(i int) []byte {
	at := l.recvStart() + i*l.granted.Segment
	return l.mem[at : at+l.granted.Segment : at+l.granted.Segment]
}

func (l *lane) recvWR(i int) verbs.RecvWR {
	return verbs.RecvWR{ID: uint64(l.id)<<32 | recvBit | uint64(i), Buf: l.recvBuf(i), LKey: l.mr.LKey()}
}

// outstanding returns how many sends have not completed. Caller holds conn.mu.
func (l *lane) outstanding() int { return int(l.posted - l.completed) }

// idle reports whether no send is outstanding, or none ever will complete. Caller
// holds conn.mu.
func (l *lane) idle() bool { return l.sick || l.outstanding() == 0 }

// destroy gives back everything; memory that holds messages not yet received by
// the program stays until it has them. It is safe on a lane that is half made.
func (l *lane) destroy() error {
	c := l.conn
	c.mu.Lock()
	already := l.closed
	l.closed = true
	c.mu.Unlock()
	if already {
		return nil
	}
	var errs []error
	if l.qp != nil {
		errs = append(errs, l.qp.Close())
	}
	if l.records != nil {
		c.t.eng.remove(l)
	}
	if l.cq != nil {
		errs = append(errs, c.t.eng.release(l.cq, l.entries()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.quiet = true
	return errors.Join(append(errs, l.freeIfRead())...)
}

// freeIfRead frees the memory of a destroyed lane once nothing in it is needed.
// Caller holds conn.mu.
func (l *lane) freeIfRead() error {
	if !l.quiet || l.freed || l.fhead != l.ftail || l.reading > 0 {
		return nil
	}
	l.freed = true
	var errs []error
	if l.mr != nil {
		errs = append(errs, l.conn.t.deregister(l.mr))
	}
	if l.mem != nil {
		errs = append(errs, verbs.FreeMem(l.mem))
		l.mem = nil
	}
	return errors.Join(errs...)
}
