package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// headerLen is the size of the header of a message's segment, where it is not in the
// immediate data, longHeaderLen that of every other segment.
const (
	headerLen     = 16
	longHeaderLen = 32
)

// MaxMessage is the largest message, in bytes.
const MaxMessage = 1 << 30

// A segKind is what a segment is.
type segKind uint8

const (
	segData   segKind = 1 // a whole message
	segOffer  segKind = 2 // RTS: a message of total bytes waits at its sender
	segAnswer segKind = 3 // CTS: the offered message may be written to addr under rkey
	segFinish segKind = 4 // FIN: it is written
	segDrop   segKind = 5 // its sender gave it up, answered or not
	segGone   segKind = 6 // answers the drop of an offer that was not answered
	segCredit segKind = 7 // only the header's credits
	segMarker segKind = 8 // nothing: its completion says that what was before is complete
	segVote   segKind = 9 // drained
	segCommit segKind = 10
)

// wireVersion is the version of headers and control messages.
const wireVersion = 4

// A header says what a segment is. That of a message is in the send's immediate data
// where it fits (see compact): in front of the bytes it would make two packets of a
// message that fills one. Else it precedes them on the wire: kind, version, tier,
// serial, credits (32 bits), seq (64), and but for segData total (32), rkey (32), addr
// (64), big endian.
type header struct {
	kind segKind
	tier tier // of segData, as its sender counts it: inline or eager
	// serial counts the segments of the lane, from 1, and wraps: a device may deliver
	// one twice (see lane.repeated).
	serial    uint8
	immediate bool // it came in immediate data
	// credits counts the messages and offers, since the lane began, that the sender of
	// this header is ready to receive on it; it wraps.
	credits uint32
	seq     uint64 // of the message, from 1; for vote and commit the last one sent
	total   uint32 // bytes of the offered message; the epoch for vote and commit
	rkey    uint32
	// addr is where to write the message. For vote and commit: segments sent on lane 0
	// (upper half) and lane 1 of the old lanes, both wrapping.
	addr uint64
}

var errWire = errors.New("malformed segment")

// size returns how many bytes put writes.
func (h *header) size() int {
	if h.kind == segData {
		return headerLen
	}
	return longHeaderLen
}

func (h *header) put(b []byte) {
	_ = b[h.size()-1]
	b[0], b[1], b[2], b[3] = byte(h.kind), wireVersion, byte(h.tier), h.serial
	binary.BigEndian.PutUint32(b[4:], h.credits)
	binary.BigEndian.PutUint64(b[8:], h.seq)
	if h.kind == segData {
		return
	}
	binary.BigEndian.PutUint32(b[16:], h.total)
	binary.BigEndian.PutUint32(b[20:], h.rkey)
	binary.BigEndian.PutUint64(b[24:], h.addr)
}

// parseHeader reads the header of a segment of len(b) bytes and checks that the
// segment makes sense by itself.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerLen {
		return header{}, fmt.Errorf("%w: %d bytes", errWire, len(b))
	}
	h := header{kind: segKind(b[0]), tier: tier(b[2]), serial: b[3], credits: binary.BigEndian.Uint32(b[4:]), seq: binary.BigEndian.Uint64(b[8:])}
	if b[1] != wireVersion {
		return header{}, fmt.Errorf("%w: version %d", errWire, b[1])
	}
	if h.kind == segData {
		if h.seq == 0 || h.tier > tierEager {
			return header{}, fmt.Errorf("%w: message %d of tier %d", errWire, h.seq, h.tier)
		}
		return h, nil
	}
	if len(b) != longHeaderLen || h.tier != 0 {
		return header{}, fmt.Errorf("%w: kind %d with %d bytes", errWire, h.kind, len(b))
	}
	h.total = binary.BigEndian.Uint32(b[16:])
	h.rkey = binary.BigEndian.Uint32(b[20:])
	h.addr = binary.BigEndian.Uint64(b[24:])
	ok := false
	switch h.kind {
	case segOffer:
		ok = h.seq > 0 && h.total > 0 && h.total <= MaxMessage && h.rkey == 0 && h.addr == 0
	case segAnswer:
		ok = h.seq > 0 && h.total == 0 && h.addr <= math.MaxUint64-MaxMessage
	case segFinish, segDrop, segGone:
		ok = h.seq > 0 && h.total == 0 && h.rkey == 0 && h.addr == 0
	case segCredit, segMarker:
		ok = h.seq == 0 && h.total == 0 && h.rkey == 0 && h.addr == 0
	case segVote, segCommit:
		ok = h.rkey == 0
	}
	if !ok {
		return header{}, fmt.Errorf("%w: kind %d: seq %d, total %d, rkey %#x, addr %#x", errWire, h.kind, h.seq, h.total, h.rkey, h.addr)
	}
	return h, nil
}

// The header of a message in immediate data, from its highest bit: tier (1 bit),
// distance of seq from that of the message or offer before it on the lane (7), serial
// (8), credits (16). A distance of 0 means nothing. The version is that of the hello.
const (
	immTier     = 31
	immDistance = 24
	immSerial   = 16
	maxDistance = 1<<7 - 1
)

// The receiver knows the upper half of the credits: on a lane, whose segments come in
// order, they never fall and are never more than maxCredits above what it was told
// last, since that many were granted and each is granted again only when it was used.
const _ = uint(1<<16 - 1 - maxCredits)

// compact returns h, of a message, as immediate data; the message or offer before it
// on the lane was last. ok is false when it does not fit.
func (h *header) compact(last uint64) (imm uint32, ok bool) {
	distance := h.seq - last
	if distance-1 >= maxDistance {
		return 0, false
	}
	return uint32(h.tier)<<immTier | uint32(distance)<<immDistance | uint32(h.serial)<<immSerial | h.credits&0xffff, true
}

// expand is the way back, at an end where last arrived last on the lane and that may
// send limit messages; false for what makes no sense. Of a segment that was here before
// only the serial comes out right.
func (h *header) expand(imm uint32, last uint64, limit uint32) bool {
	*h = header{
		kind: segData, tier: tier(imm >> immTier), serial: uint8(imm >> immSerial), immediate: true,
		credits: limit + uint32(uint16(imm)-uint16(limit)),
		seq:     last + uint64(imm>>immDistance&maxDistance),
	}
	return h.seq > last
}

// laneCounts packs how many segments were sent on each lane.
func laneCounts(n [maxLanes]uint32) uint64 { return uint64(n[0])<<32 | uint64(n[1]) }

// countOf unpacks lane i of it.
func countOf(packed uint64, i int) uint32 {
	if i == 0 {
		return uint32(packed >> 32)
	}
	return uint32(packed)
}
