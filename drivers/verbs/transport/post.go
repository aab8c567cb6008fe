package transport

import (
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A sentKind is what an outstanding send holds until it completes.
type sentKind uint8

const (
	sentMessage sentKind = iota // a message slot, and a whole message
	sentOffer                   // a message slot
	sentWrite                   // a place among the writes
	sentControl                 // a control slot
)

// sent is what is remembered of an outstanding send.
type sent struct {
	kind sentKind
	tier tier
	end  *outgoing     // the rendezvous that this ends, or nil
	at   time.Duration // posted, since the transport was opened; 0 = not timed
}

// room returns how many messages and offers can be posted now. Caller holds conn.mu,
// here and below.
func (l *lane) room() int {
	credits := int(int32(l.limit - l.sentData))
	return min(l.slots(), credits)
}

// slots returns how many of the lane's depth are free.
func (l *lane) slots() int {
	return l.prof.depth - int(l.dataPosted-l.dataFreed) - l.writes
}

// postMessage posts a message that the tier k copies.
func (l *lane) postMessage(seq uint64, msg []byte, k tier) error {
	h, last := header{kind: segData, tier: k, seq: seq}, l.postedSeq
	l.number(&h)
	w := verbs.SendWR{Buf: l.dataSlot(seq), LKey: l.mr.LKey(), Inline: k == tierInline}
	// An empty segment is one that was here before (see repeated).
	if imm, ok := h.compact(last); ok && len(msg) > 0 {
		w.Imm, w.HasImm = imm, true
		w.Buf = w.Buf[:copy(w.Buf, msg)]
	} else {
		h.put(w.Buf)
		w.Buf = w.Buf[:headerLen+copy(w.Buf[headerLen:], msg)]
	}
	l.add(&w, sent{kind: sentMessage, tier: k})
	return l.flush()
}

// postOffer posts the offer of a message of size bytes.
func (l *lane) postOffer(seq uint64, size int) error {
	l.addSegment(l.dataSlot(seq)[:longHeaderLen], header{kind: segOffer, seq: seq, total: uint32(size)}, sent{kind: sentOffer})
	return l.flush()
}

// controlRoom is how many control slots are free beyond what a switch and a farewell
// need.
func (l *lane) controlRoom() int {
	return controlSlots - controlDepth/2 - int(l.ctlPosted-l.ctlFreed)
}

// addControl adds a segment without a message to the batch.
func (l *lane) addControl(h header, end *outgoing) error {
	if l.ctlPosted-l.ctlFreed == controlSlots {
		return fmt.Errorf("post: %d control segments outstanding", controlSlots)
	}
	at := l.prof.depth*l.prof.segment + int(l.ctlPosted%controlSlots)*longHeaderLen
	l.ctlPosted++
	l.addSegment(l.mem[at:at+longHeaderLen], h, sent{kind: sentControl, end: end})
	return nil
}

// postControl posts a segment without a message.
func (l *lane) postControl(h header) error {
	if err := l.addControl(h, nil); err != nil {
		return err
	}
	return l.flush()
}

// dataSlot takes the slot for the next message or offer, which is seq.
func (l *lane) dataSlot(seq uint64) []byte {
	b := l.slot(l.dataPosted)
	l.dataPosted++
	l.sentData++
	l.postedSeq = seq
	return b
}

// number gives the header of the next segment its serial and credits.
func (l *lane) number(h *header) {
	l.sends++
	h.credits, h.serial = l.ready, uint8(l.sends)
	l.told = l.ready
}

// addSegment adds a segment that is only a header, which b is for, to the batch.
func (l *lane) addSegment(b []byte, h header, r sent) {
	l.number(&h)
	h.put(b)
	l.add(&verbs.SendWR{Buf: b, LKey: l.mr.LKey(), Inline: len(b) <= l.inline}, r)
}

// addWrite adds an RDMA write of a rendezvous to the batch.
func (l *lane) addWrite(w verbs.SendWR) {
	l.writes++
	l.add(&w, sent{kind: sentWrite})
}

// add completes a work request and its record, and adds it to the batch.
func (l *lane) add(w *verbs.SendWR, r sent) {
	l.unsignaled++
	w.Signaled = r.kind == sentControl || l.unsignaled >= min(l.prof.signal, max(l.prof.depth/4, 1))
	if w.Signaled {
		l.unsignaled = 0
		l.signaled++
		if r.kind == sentMessage && (l.prof.signal >= sampleEvery || l.signaled%sampleEvery == 0) {
			r.at = l.conn.t.now()
		}
	}
	w.ID = uint64(l.id)<<32 | l.posted&(recvBit-1)
	l.records[l.posted%uint64(len(l.records))] = r
	l.posted++
	l.highWater = max(l.highWater, l.outstanding())
	l.batch[l.batched] = *w
	l.batched++
}

// batchRoom is how many work requests can be added before flush.
func (l *lane) batchRoom() int { return sendBatch - l.batched }

// flush hands the batch to the device.
func (l *lane) flush() error {
	n := l.batched
	l.batched = 0
	if n == 0 || l.closed {
		return nil
	}
	if took, err := l.qp.PostSend(l.batch[:n]); err != nil {
		return fmt.Errorf("post %d sends, %d taken: %w", n, took, err)
	}
	return nil
}

// repost makes a consumed buffer ready again, in batches of a quarter.
func (l *lane) repost(buf int) error {
	l.free = append(l.free, l.recvWR(buf))
	if len(l.free) < max(l.granted.Credits/4, 1) {
		return nil
	}
	return l.refill()
}

// refill posts the consumed buffers of a lane in use and tells the peer once half of
// its credits are news to it.
func (l *lane) refill() error {
	if l.closed || !l.conn.cur.has(l) || len(l.free) == 0 {
		return nil
	}
	if _, err := l.qp.PostRecv(l.free); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	l.ready += uint32(len(l.free))
	l.free = l.free[:0]
	return l.tellCredits()
}

// repostControl makes the buffer of a segment without a message ready again.
func (l *lane) repostControl(buf int) error {
	l.spare = append(l.spare, l.recvWR(buf))
	if len(l.spare) < controlBatch {
		return nil
	}
	_, err := l.qp.PostRecv(l.spare)
	l.spare = l.spare[:0]
	if err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	return nil
}

// tellCredits sends the credits on their own where no message has carried them. When
// the control slots are taken it waits for the next completion.
func (l *lane) tellCredits() error {
	if l.conn.holding || l.ready-l.told < uint32(max(l.granted.Credits/2, 1)) || l.controlRoom() <= 0 || l.conn.err != nil {
		return nil
	}
	return l.postControl(header{kind: segCredit})
}
