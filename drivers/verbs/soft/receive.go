package soft

import (
	"bufio"
	"io"
	"net"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A reader places what arrives on a data connection.
type reader struct {
	q         *qp
	c         net.Conn
	br        *bufio.Reader
	hdr       [frameLen]byte
	to        [remoteWriteLen]byte
	pos, told uint32 // next message, and what the peer knows
}

// read places arriving messages into posted receives, and writes where they go.
func (q *qp) read(c net.Conn) {
	r := &reader{q: q, c: c, br: bufio.NewReaderSize(c, 64<<10)}
	for r.step() {
	}
}

// tell sends a frame about everything before pos.
func (r *reader) tell(kind byte) bool {
	r.told = r.pos
	frame{kind: kind, pos: r.pos}.put(&r.hdr)
	_, err := r.c.Write(r.hdr[:])
	return err == nil
}

// step takes one message; false ends the reader.
func (r *reader) step() bool {
	if (r.pos-r.told >= maxUntold || r.told != r.pos && r.br.Buffered() < frameLen) && !r.tell(frameAck) {
		return false
	}
	if _, err := io.ReadFull(r.br, r.hdr[:]); err != nil {
		return false
	}
	f, ok := parseFrame(&r.hdr)
	if !ok || f.pos != r.pos {
		return false
	}
	switch f.kind {
	case frameData:
		return r.data(f)
	case frameWrite:
		return r.write(f)
	}
	return false
}

// data places a message into the oldest posted receive.
func (r *reader) data(f frame) bool {
	w, ready := r.q.nextRecv(false)
	if !ready {
		if !r.tell(frameNotNow) {
			return false
		}
		if w, ready = r.q.nextRecv(true); !ready {
			return false
		}
	}
	wc := verbs.WC{ID: w.ID, Recv: true, ByteLen: int(f.length), QPN: r.q.num, Imm: f.imm, HasImm: f.flags&flagImmediate != 0}
	switch {
	case int(f.length) > len(w.Buf):
		wc.Status = verbs.StatusLocLen
		r.tell(frameInvalid)
	case !r.q.pd.covers(w.LKey, w.Buf, verbs.AccessLocalWrite):
		wc.Status = verbs.StatusLocProt
		r.tell(frameInvalid)
	default:
		if _, err := io.ReadFull(r.br, w.Buf[:f.length]); err != nil {
			return false
		}
	}
	r.pos++
	return r.q.received(wc, f.flags&flagSolicited != 0)
}

// write places an RDMA write. The region may be closed at any time, also while the
// peer is slow: it is held only while bytes that are here are copied.
func (r *reader) write(f frame) bool {
	if _, err := io.ReadFull(r.br, r.to[:]); err != nil {
		return false
	}
	m, to, ok := r.q.pd.target(parseRemoteWrite(&r.to), int(f.length))
	for ok && len(to) > 0 {
		if _, err := r.br.Peek(1); err != nil {
			return false
		}
		b, _ := r.br.Peek(min(r.br.Buffered(), len(to)))
		ok = m.write(to, b)
		to = to[len(b):]
		r.br.Discard(len(b))
	}
	if !ok {
		r.tell(frameAccess)
		r.q.Fail()
		r.q.dev.emit(verbs.Event{Kind: verbs.EventQPAccess, QPN: r.q.num})
		return false
	}
	r.pos++
	return true
}

// nextRecv returns the oldest posted receive, waiting for one when wait is true.
func (q *qp) nextRecv(wait bool) (verbs.RecvWR, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for wait && q.rhead == q.rtail && (q.state == verbs.QPRTR || q.state == verbs.QPRTS) {
		q.recvCond.Wait()
	}
	if q.rhead == q.rtail || q.state == verbs.QPError {
		return verbs.RecvWR{}, false
	}
	return q.rq[q.rhead%uint64(len(q.rq))], true
}

// received completes the oldest posted receive; false ends the reader.
func (q *qp) received(wc verbs.WC, solicited bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == verbs.QPError {
		return false
	}
	q.rhead++
	if !q.recvCQ.push(wc, solicited) || wc.Status != verbs.StatusSuccess {
		q.fail(verbs.StatusFlushed)
		return false
	}
	return true
}
