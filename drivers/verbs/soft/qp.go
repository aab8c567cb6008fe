package soft

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A swqe is one entry of a send queue.
type swqe struct {
	verbs.SendWR
}

// A qp is a queue pair. Queue positions count up for ever; the entry of position
// p is queue[p % len(queue)].
type qp struct {
	dev            *device
	pd             *pd
	num, psn       uint32
	cap            verbs.QPCap
	sendCQ, recvCQ *cq
	attr           verbs.ConnectAttr // set before connected is closed
	connected      chan struct{}
	failed         chan struct{} // closed on the way to the error state
	reaped         chan struct{} // closed when nothing touches posted memory any more
	workers        sync.WaitGroup

	mu        sync.Mutex
	sendCond  sync.Cond // of mu: something to write, or failed
	recvCond  sync.Cond // of mu: a receive was posted, or failed
	state     verbs.QPState
	destroyed bool         // completions go nowhere
	status    verbs.Status // of the oldest send in the error state
	out, in   net.Conn
	sq        []swqe // outstanding: [freed, tail); acked and written lie between
	freed     uint64
	acked     uint64
	written   uint64
	tail      uint64
	inline    []byte // copies of inline sends, cap.Inline bytes per entry
	rq        []verbs.RecvWR
	rhead     uint64
	rtail     uint64
}

func (p *pd) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	scq, ok1 := a.SendCQ.(*cq)
	rcq, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s: create qp: a cq of this provider is needed for both queues: %w", p.dev.name, syscall.EINVAL)
	}
	if a.Cap.SendWR < 1 || a.Cap.SendWR > maxQPWR || a.Cap.RecvWR < 1 || a.Cap.RecvWR > maxQPWR ||
		a.Cap.Inline < 0 || a.Cap.Inline > maxInline {
		return nil, fmt.Errorf("%s: create qp with %+v: %w", p.dev.name, a.Cap, syscall.EINVAL)
	}
	q := &qp{
		dev: p.dev, pd: p, psn: rand.Uint32N(1 << 24),
		cap: verbs.QPCap{
			SendWR: roundCap(a.Cap.SendWR), RecvWR: roundCap(a.Cap.RecvWR),
			Inline: max(a.Cap.Inline, minInline),
		},
		sendCQ: scq, recvCQ: rcq,
		connected: make(chan struct{}), failed: make(chan struct{}), reaped: make(chan struct{}),
	}
	q.sendCond.L, q.recvCond.L = &q.mu, &q.mu
	q.sq = make([]swqe, q.cap.SendWR)
	q.rq = make([]verbs.RecvWR, q.cap.RecvWR)
	q.inline = make([]byte, q.cap.SendWR*q.cap.Inline)
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%s: closed: %w", d.name, syscall.ENODEV)
	}
	for d.qps[d.nextQPN] != nil || d.nextQPN < 2 { // 0 and 1 are the management queue pairs
		d.nextQPN = (d.nextQPN + 1) % (1 << 24)
	}
	q.num = d.nextQPN
	d.nextQPN = (d.nextQPN + 1) % (1 << 24)
	d.qps[q.num] = q
	scq.use(1)
	rcq.use(1)
	return q, nil
}

func (q *qp) Num() uint32      { return q.num }
func (q *qp) Cap() verbs.QPCap { return q.cap }

func (q *qp) State() verbs.QPState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

func (q *qp) Local(port uint8, gidIndex int) (verbs.Endpoint, error) {
	gids, err := q.dev.GIDs(port)
	if err != nil {
		return verbs.Endpoint{}, err
	}
	if gidIndex < 0 || gidIndex >= len(gids) {
		return verbs.Endpoint{}, fmt.Errorf("%s: gid index %d: %w", q.dev.name, gidIndex, syscall.ENODATA)
	}
	a, _ := gids[gidIndex].GID.IPv4()
	service, err := q.dev.listen(a)
	if err != nil {
		return verbs.Endpoint{}, err
	}
	return verbs.Endpoint{GID: gids[gidIndex].GID, QPN: q.num, PSN: q.psn, Service: service}, nil
}

func (q *qp) Init(port uint8) error {
	if _, err := q.dev.Port(port); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != verbs.QPReset {
		return fmt.Errorf("%s: qp %#x: init in state %d: %w", q.dev.name, q.num, q.state, syscall.EINVAL)
	}
	q.state = verbs.QPInit
	return nil
}

func (q *qp) Connect(a verbs.ConnectAttr) error {
	q.mu.Lock()
	if q.state != verbs.QPInit {
		defer q.mu.Unlock()
		return fmt.Errorf("%s: qp %#x: connect in state %d: %w", q.dev.name, q.num, q.state, syscall.EINVAL)
	}
	q.state = verbs.QPRTR
	q.attr = a
	close(q.connected)
	q.mu.Unlock()

	out, err := dial(a.Local, a.Remote)
	if err != nil {
		return fmt.Errorf("%s: qp %#x: connect: %w", q.dev.name, q.num, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != verbs.QPRTR {
		out.Close()
		return fmt.Errorf("%s: qp %#x: failed while connecting: %w", q.dev.name, q.num, syscall.EINVAL)
	}
	q.state = verbs.QPRTS
	q.out = out
	q.workers.Go(func() { q.write(out) })
	q.workers.Go(func() { q.readAcks(out) })
	return nil
}

// attach takes the connection that the peer dialed.
func (q *qp) attach(c net.Conn, g greeting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != verbs.QPRTR && q.state != verbs.QPRTS || q.in != nil ||
		g.src != q.attr.Remote.QPN || g.psn != q.attr.Remote.PSN {
		return false
	}
	q.in = c
	q.workers.Go(func() { q.read(c) })
	return true
}

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range wrs {
		w := &wrs[i]
		if q.state != verbs.QPRTS && q.state != verbs.QPError {
			return i, fmt.Errorf("post send in state %d: %w", q.state, syscall.EINVAL)
		}
		if w.Inline && (len(w.Buf) > q.cap.Inline || w.Buf == nil && w.Len != 0) || w.Size() < 0 || w.Size() > maxMsg || w.Op > verbs.OpWrite || w.HasImm && w.Op == verbs.OpWrite {
			return i, syscall.EINVAL
		}
		if q.tail-q.freed == uint64(len(q.sq)) {
			return i, syscall.ENOMEM
		}
		if q.state == verbs.QPError {
			if !q.destroyed {
				q.sendCQ.push(verbs.WC{ID: w.ID, Status: verbs.StatusFlushed, QPN: q.num}, false)
			}
			continue
		}
		at := int(q.tail % uint64(len(q.sq)))
		q.sq[at].SendWR = *w
		if w.Inline {
			room := q.inline[at*q.cap.Inline : (at+1)*q.cap.Inline]
			q.sq[at].Buf = room[:copy(room, w.Buf)]
		}
		q.tail++
	}
	q.sendCond.Broadcast()
	return len(wrs), nil
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range wrs {
		if q.state == verbs.QPReset {
			return i, syscall.EINVAL
		}
		if q.rtail-q.rhead == uint64(len(q.rq)) {
			return i, syscall.ENOMEM
		}
		if q.state == verbs.QPError {
			if !q.destroyed {
				q.recvCQ.push(verbs.WC{ID: wrs[i].ID, Status: verbs.StatusFlushed, Recv: true, QPN: q.num}, false)
			}
			continue
		}
		q.rq[q.rtail%uint64(len(q.rq))] = wrs[i]
		q.rtail++
	}
	q.recvCond.Signal()
	return len(wrs), nil
}

func (q *qp) Fail() error {
	q.mu.Lock()
	q.fail(verbs.StatusFlushed)
	q.mu.Unlock()
	return nil
}

// fail moves to the error state; status is the oldest outstanding send's. Caller
// holds mu. Flushing waits until no worker touches posted memory.
func (q *qp) fail(status verbs.Status) {
	if q.state == verbs.QPError {
		return
	}
	q.state = verbs.QPError
	q.status = status
	close(q.failed)
	for _, c := range []net.Conn{q.out, q.in} {
		if c != nil {
			c.Close()
		}
	}
	q.sendCond.Broadcast()
	q.recvCond.Broadcast()
	go q.reap()
}

// reap completes everything outstanding once the workers are gone.
func (q *qp) reap() {
	defer close(q.reaped)
	q.workers.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.destroyed {
		return
	}
	status := q.status
	for ; q.acked < q.tail; q.acked++ {
		w := &q.sq[q.acked%uint64(len(q.sq))]
		q.sendCQ.push(verbs.WC{ID: w.ID, Status: status, QPN: q.num}, false)
		status = verbs.StatusFlushed
	}
	q.freed = q.tail
	for ; q.rhead < q.rtail; q.rhead++ {
		w := &q.rq[q.rhead%uint64(len(q.rq))]
		q.recvCQ.push(verbs.WC{ID: w.ID, Status: verbs.StatusFlushed, Recv: true, QPN: q.num}, false)
	}
}

func (q *qp) Close() error {
	q.mu.Lock()
	if q.destroyed {
		q.mu.Unlock()
		return nil
	}
	q.destroyed = true
	q.fail(verbs.StatusFlushed)
	q.mu.Unlock()
	<-q.reaped
	q.dev.mu.Lock()
	delete(q.dev.qps, q.num)
	q.dev.mu.Unlock()
	q.sendCQ.use(-1)
	q.recvCQ.use(-1)
	return nil
}
