package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// headerLen is the size of a segment's header.
const headerLen = 24

// MaxMessage is the largest message, in bytes.
const MaxMessage = 1 << 30

// A segKind is what a segment is.
type segKind uint8

const (
	segData    segKind = 1
	segAbandon segKind = 2 // the message's sender gave up after some segments
	segCredit  segKind = 3 // only the header's credits
	segMarker  segKind = 4 // nothing: its completion says that what was before is complete
	segVote    segKind = 5 // drained; seq is the last sequence sent
	segCommit  segKind = 6 // the opener's decision; seq as above
)

// wireVersion is the version of header and control messages.
const wireVersion = 1

// A header precedes each segment's bytes on the wire: kind, version, two zero
// bytes, credits (32 bits), seq (64), total (32), offset (32), big endian.
type header struct {
	kind segKind
	// credits counts the data segments, since the lane began, that the sender of
	// this header is ready to receive on it; it wraps.
	credits uint32
	seq     uint64 // of the message, from 1; for vote and commit the last one sent
	total   uint32 // bytes of the message; the epoch for vote and commit
	offset  uint32 // of this segment's first byte in the message
}

var errWire = errors.New("malformed segment")

func (h header) put(b []byte) {
	_ = b[headerLen-1]
	b[0], b[1], b[2], b[3] = byte(h.kind), wireVersion, 0, 0
	binary.BigEndian.PutUint32(b[4:], h.credits)
	binary.BigEndian.PutUint64(b[8:], h.seq)
	binary.BigEndian.PutUint32(b[16:], h.total)
	binary.BigEndian.PutUint32(b[20:], h.offset)
}

// parseHeader reads the header of a segment of len(b) bytes and checks that the
// segment makes sense by itself.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerLen {
		return header{}, fmt.Errorf("%w: %d bytes", errWire, len(b))
	}
	h := header{
		kind:    segKind(b[0]),
		credits: binary.BigEndian.Uint32(b[4:]),
		seq:     binary.BigEndian.Uint64(b[8:]),
		total:   binary.BigEndian.Uint32(b[16:]),
		offset:  binary.BigEndian.Uint32(b[20:]),
	}
	if b[1] != wireVersion || b[2] != 0 || b[3] != 0 {
		return header{}, fmt.Errorf("%w: version %d", errWire, b[1])
	}
	n := uint64(len(b) - headerLen)
	switch h.kind {
	case segData:
		// Only an empty message has an empty segment.
		if h.total > MaxMessage || uint64(h.offset)+n > uint64(h.total) || n == 0 && h.total != 0 || h.seq == 0 {
			return header{}, fmt.Errorf("%w: %d bytes at %d of %d", errWire, n, h.offset, h.total)
		}
	case segAbandon, segCredit, segMarker, segVote, segCommit:
		if n != 0 || h.offset != 0 {
			return header{}, fmt.Errorf("%w: kind %d with %d bytes", errWire, h.kind, n)
		}
	default:
		return header{}, fmt.Errorf("%w: kind %d", errWire, h.kind)
	}
	return h, nil
}
