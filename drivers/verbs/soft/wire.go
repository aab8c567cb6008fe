package soft

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A frame header is 12 bytes: kind, flags, two zero bytes, the message's position
// (low 32 bits) and its length. Only data frames have a payload.
const frameLen = 12

const (
	frameData    = 1
	frameAck     = 2 // everything before position is in the peer's memory
	frameNotNow  = 3 // no receive is posted
	frameInvalid = 4 // longer than the receive: the queue pair is lost

	flagSolicited = 1
)

// maxUntold is how many messages may be in memory without an acknowledgement.
const maxUntold = 32

// rnrWait is the time that one receiver-not-ready retry lasts.
const rnrWait = time.Millisecond

type frame struct {
	kind, flags byte
	pos, length uint32
}

func (f frame) put(b *[frameLen]byte) {
	*b = [frameLen]byte{f.kind, f.flags}
	binary.BigEndian.PutUint32(b[4:], f.pos)
	binary.BigEndian.PutUint32(b[8:], f.length)
}

func parseFrame(b *[frameLen]byte) (frame, bool) {
	f := frame{b[0], b[1], binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])}
	if b[2] != 0 || b[3] != 0 || f.flags&^flagSolicited != 0 {
		return f, false
	}
	switch f.kind {
	case frameData:
		return f, f.length <= maxMsg
	case frameAck, frameNotNow, frameInvalid:
		return f, f.length == 0 && f.flags == 0
	}
	return f, false
}

// write sends what is posted, until the queue pair fails.
func (q *qp) write(c net.Conn) {
	bw := bufio.NewWriterSize(c, 64<<10)
	var hdr [frameLen]byte
	for {
		w, pos, ok := q.nextSend(bw.Buffered() == 0)
		if !ok {
			return
		}
		var err error
		switch {
		case w == nil:
			err = bw.Flush()
		case !w.Inline && !q.pd.covers(w.LKey, w.Buf):
			q.failFrom(pos, verbs.StatusLocProt)
			return
		default:
			f := frame{kind: frameData, pos: uint32(pos), length: uint32(len(w.Buf))}
			if w.Solicited {
				f.flags = flagSolicited
			}
			f.put(&hdr)
			if _, err = bw.Write(hdr[:]); err == nil {
				_, err = bw.Write(w.Buf)
			}
		}
		if err != nil {
			q.lost()
			return
		}
	}
}

// nextSend returns the next entry to write, waiting for one when idle is true, or
// nil when there is none now. ok is false in the error state.
func (q *qp) nextSend(idle bool) (w *swqe, pos uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.written == q.tail && idle && q.state == verbs.QPRTS {
		q.sendCond.Wait()
	}
	if q.state != verbs.QPRTS {
		return nil, 0, false
	}
	if q.written == q.tail {
		return nil, 0, true
	}
	pos = q.written
	q.written++
	return &q.sq[pos%uint64(len(q.sq))], pos, true
}

// lost is the far end's silence: an error once something is outstanding, as a
// device notices only by retrying.
func (q *qp) lost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.state == verbs.QPRTS && q.acked == q.tail {
		q.sendCond.Wait()
	}
	if q.state == verbs.QPRTS {
		q.fail(verbs.StatusRetryExc)
	}
}

// failFrom completes what was posted before pos only with the flush; the send at
// pos has the status.
func (q *qp) failFrom(pos uint64, status verbs.Status) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pos == q.acked {
		q.fail(status)
		return
	}
	q.fail(verbs.StatusFlushed)
}

// readAcks completes sends as the peer acknowledges them.
func (q *qp) readAcks(c net.Conn) {
	br := bufio.NewReaderSize(c, 4<<10)
	var hdr [frameLen]byte
	for {
		if _, err := io.ReadFull(br, hdr[:]); err != nil {
			q.lost()
			return
		}
		f, ok := parseFrame(&hdr)
		if !ok || !q.handleAck(f) {
			q.lost()
			return
		}
	}
}

// handleAck reports whether f makes sense.
func (q *qp) handleAck(f frame) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ahead := uint64(f.pos - uint32(q.acked)) // wraps with the position
	if ahead > q.written-q.acked {
		return false
	}
	switch f.kind {
	case frameAck:
		q.complete(q.acked + ahead)
	case frameInvalid:
		q.complete(q.acked + ahead)
		q.fail(verbs.StatusRemInvalid)
	case frameNotNow:
		q.complete(q.acked + ahead)
		if q.attr.RNRRetry < 7 {
			at := q.acked
			time.AfterFunc(time.Duration(q.attr.RNRRetry+1)*rnrWait, func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				if q.acked == at && q.acked < q.tail && q.state == verbs.QPRTS {
					q.fail(verbs.StatusRNRRetryExc)
				}
			})
		}
	default:
		return false
	}
	return true
}

// complete completes the sends before to. Caller holds mu.
func (q *qp) complete(to uint64) {
	for q.state == verbs.QPRTS && q.acked < to {
		w := &q.sq[q.acked%uint64(len(q.sq))]
		q.acked++
		if !w.Signaled {
			continue
		}
		q.freed = q.acked
		if !q.sendCQ.push(verbs.WC{ID: w.ID, QPN: q.num}, false) {
			q.fail(verbs.StatusFlushed)
		}
	}
}

// read places arriving messages into posted receives.
func (q *qp) read(c net.Conn) {
	br := bufio.NewReaderSize(c, 64<<10)
	var hdr [frameLen]byte
	var pos, told uint32 // next message, and what the peer knows
	tell := func(kind byte) bool {
		told = pos
		frame{kind: kind, pos: pos}.put(&hdr)
		_, err := c.Write(hdr[:])
		return err == nil
	}
	for {
		if (pos-told >= maxUntold || told != pos && br.Buffered() < frameLen) && !tell(frameAck) {
			return
		}
		if _, err := io.ReadFull(br, hdr[:]); err != nil {
			return
		}
		f, ok := parseFrame(&hdr)
		if !ok || f.kind != frameData || f.pos != pos {
			return
		}
		w, ready := q.nextRecv(false)
		if !ready {
			if !tell(frameNotNow) {
				return
			}
			if w, ready = q.nextRecv(true); !ready {
				return
			}
		}
		wc := verbs.WC{ID: w.ID, Recv: true, ByteLen: int(f.length), QPN: q.num}
		switch {
		case int(f.length) > len(w.Buf):
			wc.Status = verbs.StatusLocLen
			tell(frameInvalid)
		case !q.pd.covers(w.LKey, w.Buf):
			wc.Status = verbs.StatusLocProt
			tell(frameInvalid)
		default:
			if _, err := io.ReadFull(br, w.Buf[:f.length]); err != nil {
				return
			}
		}
		pos++
		if !q.received(wc, f.flags&flagSolicited != 0) {
			return
		}
	}
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
