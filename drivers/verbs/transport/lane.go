package transport

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A work request's id is its lane's id and, below, recvBit and the buffer's index
// or the send's position.
const recvBit = 1 << 31

// A lane is one queue pair with its buffers, for one epoch of a connection.
type lane struct {
	conn  *Conn
	id    uint32
	epoch uint32
	prof  profile
	// follows is what the lane was set up for, snapshot when it was made.
	follows follow

	cq  *sharedCQ
	qp  verbs.QP
	mr  verbs.MR
	mem []byte // data slots, control slots, receive buffers

	granted want // what this end gives: receive buffers and their size
	sendSeg int  // bytes of a segment to send: ours and the peer's grant
	inline  int  // granted
	local   verbs.Endpoint
	peerQPN uint32

	// Guarded by conn.mu from here on.

	records    []sent // ring of outstanding sends: [completed, posted)
	posted     uint64
	completed  uint64
	unsignaled int    // since the last signaled one
	dataPosted uint64 // data slots used so far; slot = dataPosted % depth
	dataFreed  uint64
	ctlPosted  uint64
	ctlFreed   uint64
	limit      uint32 // data segments that the peer is ready for, since the lane began
	sentData   uint32 // data segments posted, as above

	fifo       []arrived // ring of arrived data segments: [fhead, ftail)
	fhead      uint64
	ftail      uint64
	free       []verbs.RecvWR // consumed, not posted again yet
	ready      uint32         // data segments that this end was ever ready for
	told       uint32         // what the peer knows of ready
	reading    int            // segments being copied out
	arrivedSeq uint64         // last message with a segment here, or before this lane
	highWater  int
	full       uint64 // times that a sender found no slot or credit
	sick       bool   // a completion failed, with status
	status     verbs.Status
	closed     bool // nothing is posted any more
	quiet      bool // the queue pair is gone: the device touches the memory no more
	freed      bool // so is the memory
	batch      [sendBatch]verbs.SendWR
	one        [1]verbs.RecvWR
}

// sendBatch is how many segments are posted at once.
const sendBatch = 16

// sent is what is remembered of an outstanding send.
type sent struct {
	data bool // holds a data slot, else a control slot
	end  bool // last segment of a message
}

// arrived is a data segment in a receive buffer.
type arrived struct {
	header
	buf int // index
	len int // payload bytes
}

// newLane creates a lane's queue pair and buffers: for sending by prof, for
// receiving by granted.
func (c *Conn) newLane(epoch uint32, f follow, granted want) (_ *lane, err error) {
	t := c.t
	p := profileFor(f.hint, f.eagerMax, f.completion, t.maxInline)
	l := &lane{conn: c, epoch: epoch, prof: p, follows: f, granted: granted, sendSeg: p.segment}
	if l.cq, err = t.eng.reserve(l.entries()); err != nil {
		return nil, fmt.Errorf("lane: completion queue: %w", err)
	}
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	l.qp, err = t.eng.pd.CreateQP(verbs.QPInitAttr{SendCQ: l.cq.CQ, RecvCQ: l.cq.CQ, Cap: verbs.QPCap{
		SendWR: p.depth + controlDepth, RecvWR: granted.Credits + controlDepth, Inline: p.inline,
	}})
	if err != nil {
		return nil, fmt.Errorf("lane: queue pair: %w", err)
	}
	l.inline = min(l.qp.Cap().Inline, p.inline)
	size := p.depth*p.segment + controlDepth*headerLen + (granted.Credits+controlDepth)*granted.Segment
	if l.mem, err = verbs.AllocMem(size); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	if l.mr, err = t.eng.pd.RegMR(l.mem, verbs.AccessLocalWrite); err != nil {
		if errors.Is(err, syscall.ENOMEM) {
			err = fmt.Errorf("%w (is RLIMIT_MEMLOCK, `ulimit -l`, large enough?)", err)
		}
		return nil, fmt.Errorf("lane: register %d bytes: %w", size, err)
	}
	if err = l.qp.Init(t.port); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	l.records = make([]sent, p.depth+controlDepth)
	l.fifo = make([]arrived, granted.Credits)
	l.free = make([]verbs.RecvWR, 0, granted.Credits)
	t.eng.add(l)
	wrs := make([]verbs.RecvWR, granted.Credits+controlDepth)
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

// entries is how many completions the lane can have waiting.
func (l *lane) entries() int {
	return l.prof.depth + l.granted.Credits + 2*controlDepth
}

// connect takes the queue pair to RTS towards the peer, which grants g.
func (l *lane) connect(e *endpoint, g want) error {
	remote, err := e.verbs()
	if err != nil {
		return err
	}
	t := l.conn.t
	err = l.qp.Connect(verbs.ConnectAttr{
		Port: t.port, GIDIndex: l.conn.gid, Local: l.local, Remote: remote, MTU: min(t.mtu, e.MTU),
		RNRRetry: 7, RetryCount: 7, TimeoutExp: 14, // 8 tries of 67 ms
	})
	if err != nil {
		return fmt.Errorf("lane: %w", err)
	}
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	l.peerQPN = remote.QPN
	l.limit = uint32(g.Credits)
	l.sendSeg = min(l.prof.segment, g.Segment)
	return nil
}

// recvBuf returns receive buffer i.
func (l *lane) recvBuf(i int) []byte {
	at := l.prof.depth*l.prof.segment + controlDepth*headerLen + i*l.granted.Segment
	return l.mem[at : at+l.granted.Segment : at+l.granted.Segment]
}

func (l *lane) recvWR(i int) verbs.RecvWR {
	return verbs.RecvWR{ID: uint64(l.id)<<32 | recvBit | uint64(i), Buf: l.recvBuf(i), LKey: l.mr.LKey()}
}

// room returns how many data segments can be posted now. Caller holds conn.mu.
func (l *lane) room() int {
	slots := l.prof.depth - int(l.dataPosted-l.dataFreed)
	credits := int(int32(l.limit - l.sentData))
	return min(slots, credits)
}

// outstanding returns how many sends have not completed. Caller holds conn.mu.
func (l *lane) outstanding() int { return int(l.posted - l.completed) }

// postData posts the segments of msg from offset off on, as far as there is room,
// and returns how many bytes and segments went out. Caller holds conn.mu.
func (l *lane) postData(kind segKind, seq uint64, msg []byte, off int) (bytes, segments int, err error) {
	room := min(l.room(), sendBatch)
	payload := l.sendSeg - headerLen
	for segments < room {
		n := min(len(msg)-off-bytes, payload)
		at := int(l.dataPosted%uint64(l.prof.depth)) * l.prof.segment
		b := l.mem[at : at+headerLen+n]
		h := header{kind: kind, seq: seq, total: uint32(len(msg)), offset: uint32(off + bytes)}
		if kind == segAbandon {
			h.total, h.offset = 0, 0
		}
		copy(b[headerLen:], msg[off+bytes:off+bytes+n])
		end := off+bytes+n == len(msg)
		l.put(&l.batch[segments], b, h, sent{data: true, end: end && kind == segData})
		l.dataPosted++
		l.sentData++
		bytes += n
		segments++
		if end {
			break
		}
	}
	return bytes, segments, l.post(segments)
}

// put fills a work request and its record.
func (l *lane) put(w *verbs.SendWR, b []byte, h header, r sent) {
	h.credits = l.ready
	l.told = l.ready
	h.put(b)
	l.unsignaled++
	signal := !r.data || l.unsignaled >= min(l.prof.signal, max(l.prof.depth/4, 1))
	if signal {
		l.unsignaled = 0
	}
	*w = verbs.SendWR{
		ID: uint64(l.id)<<32 | l.posted&(recvBit-1), Buf: b, LKey: l.mr.LKey(),
		Signaled: signal, Inline: len(b) <= l.inline,
	}
	l.records[l.posted%uint64(len(l.records))] = r
	l.posted++
	l.highWater = max(l.highWater, l.outstanding())
}

// post hands the first n work requests of the batch to the device.
func (l *lane) post(n int) error {
	if n == 0 || l.closed {
		return nil
	}
	if took, err := l.qp.PostSend(l.batch[:n]); err != nil {
		return fmt.Errorf("post %d sends, %d taken: %w", n, took, err)
	}
	return nil
}

// postControl posts a segment without data. A switch and a farewell need fewer
// slots than tellCredits leaves them. Caller holds conn.mu.
func (l *lane) postControl(h header) error {
	if l.ctlPosted-l.ctlFreed == controlDepth {
		return fmt.Errorf("post: %d control segments outstanding", controlDepth)
	}
	at := l.prof.depth*l.prof.segment + int(l.ctlPosted%controlDepth)*headerLen
	l.put(&l.batch[0], l.mem[at:at+headerLen], h, sent{})
	l.ctlPosted++
	return l.post(1)
}

// repost makes a consumed buffer ready again, in batches of a quarter. Caller
// holds conn.mu.
func (l *lane) repost(buf int) error {
	l.free = append(l.free, l.recvWR(buf))
	if len(l.free) < max(l.granted.Credits/4, 1) {
		return nil
	}
	return l.refill()
}

// refill posts the consumed buffers of the lane in use and tells the peer once half
// of its credits are news to it. Caller holds conn.mu.
func (l *lane) refill() error {
	if l.closed || l.conn.cur != l || len(l.free) == 0 {
		return nil
	}
	if _, err := l.qp.PostRecv(l.free); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	l.ready += uint32(len(l.free))
	l.free = l.free[:0]
	return l.tellCredits()
}

// tellCredits sends the credits on their own where no data has carried them. When
// the control slots are taken it waits for the next completion; some stay free for
// a switch. Caller holds conn.mu.
func (l *lane) tellCredits() error {
	if l.conn.holding || l.ready-l.told < uint32(max(l.granted.Credits/2, 1)) ||
		l.ctlPosted-l.ctlFreed >= controlDepth/2 || l.conn.err != nil {
		return nil
	}
	return l.postControl(header{kind: segCredit})
}

// destroy gives back everything; memory that holds segments not yet received by
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
	errs = append(errs, c.t.eng.release(l.cq, l.entries()))
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
		errs = append(errs, l.mr.Close())
	}
	if l.mem != nil {
		errs = append(errs, verbs.FreeMem(l.mem))
		l.mem = nil
	}
	return errors.Join(errs...)
}
