package soft

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A frame header is 16 bytes: kind, flags, two zero bytes, the message's position
// (low 32 bits), its length and its immediate. Only data and write frames have a
// payload; that of a write comes after the place that it goes to.
const frameLen = 16

const (
	frameData    = 1
	frameAck     = 2 // everything before position is in the peer's memory
	frameNotNow  = 3 // no receive is posted
	frameInvalid = 4 // longer than the receive: the queue pair is lost
	frameWrite   = 5 // RDMA write
	frameAccess  = 6 // no such place to write to: the queue pair is lost

	flagSolicited = 1 << 0
	flagImmediate = 1 << 1 // without it the immediate is 0
)

// maxUntold is how many messages may be in memory without an acknowledgement.
const maxUntold = 32

// rnrWait is the time that one receiver-not-ready retry lasts.
const rnrWait = time.Millisecond

type frame struct {
	kind, flags      byte
	pos, length, imm uint32
}

func (f frame) put(b *[frameLen]byte) {
	*b = [frameLen]byte{f.kind, f.flags}
	binary.BigEndian.PutUint32(b[4:], f.pos)
	binary.BigEndian.PutUint32(b[8:], f.length)
	binary.BigEndian.PutUint32(b[12:], f.imm)
}

// remoteWriteLen is how long a remoteWrite is: address and key.
const remoteWriteLen = 12

// A remoteWrite is where an RDMA write goes.
type remoteWrite struct {
	addr uint64
	rkey uint32
}

func (w remoteWrite) put(b *[remoteWriteLen]byte) {
	binary.BigEndian.PutUint64(b[:], w.addr)
	binary.BigEndian.PutUint32(b[8:], w.rkey)
}

func parseRemoteWrite(b *[remoteWriteLen]byte) remoteWrite {
	return remoteWrite{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint32(b[8:])}
}

func parseFrame(b *[frameLen]byte) (frame, bool) {
	f := frame{b[0], b[1], binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
	if b[2] != 0 || b[3] != 0 || f.flags&^(flagSolicited|flagImmediate) != 0 || f.flags&flagImmediate == 0 && f.imm != 0 {
		return f, false
	}
	switch f.kind {
	case frameData:
		return f, f.length <= maxMsg
	case frameWrite:
		return f, f.length <= maxMsg && f.flags == 0
	case frameAck, frameNotNow, frameInvalid, frameAccess:
		return f, f.length == 0 && f.flags == 0
	}
	return f, false
}

// write sends what is posted, until the queue pair fails. What a broken connection
// means is for readAcks to say: the peer's last word may still be there to read.
func (q *qp) write(c net.Conn) {
	bw := bufio.NewWriterSize(c, 64<<10)
	var hdr [frameLen]byte
	var to [remoteWriteLen]byte
	for {
		w, pos, ok := q.nextSend(bw.Buffered() == 0)
		if !ok {
			return
		}
		if w == nil {
			if bw.Flush() != nil {
				return
			}
			continue
		}
		buf, ok := q.pd.source(&w.SendWR)
		if !ok {
			q.failFrom(pos, verbs.StatusLocProt)
			return
		}
		f := frame{kind: frameData, pos: uint32(pos), length: uint32(len(buf))}
		if w.Op == verbs.OpWrite {
			f.kind = frameWrite
		} else {
			if w.Solicited {
				f.flags |= flagSolicited
			}
			if w.HasImm {
				f.flags |= flagImmediate
				f.imm = w.Imm
			}
		}
		f.put(&hdr)
		bw.Write(hdr[:]) // an error stays with the writer
		if w.Op == verbs.OpWrite {
			remoteWrite{w.RemoteAddr, w.RKey}.put(&to)
			bw.Write(to[:])
		}
		if _, err := bw.Write(buf); err != nil {
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
	case frameAccess:
		q.complete(q.acked + ahead)
		q.fail(verbs.StatusRemAccess)
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
