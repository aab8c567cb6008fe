package bench

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
)

const (
	header = 8
	// stride is the distance of the copies of a message's number within its payload,
	// so that a part of an older message in its place fails the checksum. It is no
	// larger than the smallest segment that a transport sends (an RDMA path MTU).
	stride = 256
	// controlMark is the number that no test message has.
	controlMark = math.MaxUint32
	// maxControl bounds a control message.
	maxControl = 16 << 10
)

// A direction goes into the checksum, so that an end cannot take its own message for
// the peer's.
type direction byte

const (
	toServer direction = 'S'
	toClient direction = 'C'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A codec writes and checks the messages of one end.
type codec struct {
	send, recv direction
	// scratch is what the checksum covers beyond the payload. It is a field because a
	// local array would be allocated once per message.
	scratch [17]byte
}

func (c *codec) checksum(d direction, number uint64, msg []byte) uint32 {
	c.scratch[0] = byte(d)
	binary.LittleEndian.PutUint64(c.scratch[1:], number)
	binary.LittleEndian.PutUint64(c.scratch[9:], uint64(len(msg)))
	return crc32.Update(crc32.Update(0, castagnoli, c.scratch[:]), castagnoli, msg[header:])
}

// seal makes msg, filled by fill before, the message of that number.
func (c *codec) seal(msg []byte, number uint64) {
	for at := header + stride; at+8 <= len(msg); at += stride {
		binary.LittleEndian.PutUint64(msg[at:], number)
	}
	binary.LittleEndian.PutUint32(msg[4:], uint32(number))
	binary.LittleEndian.PutUint32(msg, c.checksum(c.send, number, msg))
}

// open returns the number of a received message, and whether its checksum is right.
func (c *codec) open(msg []byte, expected uint64) (number uint64, ok bool) {
	number, ok = peek(msg, expected)
	return number, ok && binary.LittleEndian.Uint32(msg) == c.checksum(c.recv, number, msg)
}

// peek returns the number that a received message gives itself. Its upper half is the
// one nearest to the number expected.
func peek(msg []byte, expected uint64) (number uint64, ok bool) {
	if len(msg) < header {
		return 0, false
	}
	distance := int64(int32(binary.LittleEndian.Uint32(msg[4:]) - uint32(expected)))
	if distance < 0 && uint64(-distance) > expected {
		return 0, false // a number before the first
	}
	return expected + uint64(distance), true
}

// fill gives a buffer the payload that all messages share: a fixed random-looking
// text, so that shifted or swapped parts do not look the same.
func fill(buf []byte) {
	x := uint64(0x9e3779b97f4a7c15)
	for i := range buf {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		buf[i] = byte(x)
	}
}

// A controlMsg is, from the client: hello, block, sync, finish; from the server:
// welcome, synced, result.
type controlMsg struct {
	Kind string `json:"kind"`

	// hello and welcome.
	Version  int     `json:"version,omitempty"`
	Workload string  `json:"workload,omitempty"`
	Device   string  `json:"device,omitempty"`
	Sizes    []int64 `json:"sizes,omitempty"`
	InFlight int     `json:"in_flight,omitempty"` // messages under way at once
	Error    string  `json:"error,omitempty"`

	// block and finish: the index of the size that follows, and the number that the
	// sender's next test message has; in synced and result the latter is the server's.
	Index int    `json:"index,omitempty"`
	Next  uint64 `json:"next,omitempty"`
	Mode  Mode   `json:"mode,omitempty"` // of a block
	// block of a stream: the messages that the client sends, and those of the server.
	Count int `json:"count,omitempty"`
	Back  int `json:"back,omitempty"`

	// result: by size, as in hello.
	Counts []Counts `json:"counts,omitempty"`
}

// Kinds of control messages.
const (
	kindHello   = "hello"
	kindWelcome = "welcome"
	kindBlock   = "block"
	kindSync    = "sync"   // all messages of the stream's block are sent
	kindSynced  = "synced" // and all of both ends received
	kindFinish  = "finish"
	kindResult  = "result"
)

// version is that of the wire; ends of different versions refuse each other.
const version = 2

// encode returns m as a message.
func (c *codec) encode(m controlMsg) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > maxControl-header {
		return nil, fmt.Errorf("%s message of %d bytes, more than %d", m.Kind, len(body), maxControl-header)
	}
	msg := append(make([]byte, header), body...)
	binary.LittleEndian.PutUint32(msg[4:], controlMark)
	binary.LittleEndian.PutUint32(msg, c.checksum(c.send, controlMark, msg))
	return msg, nil
}

// isControl reports whether a received message is an undamaged control message.
func (c *codec) isControl(msg []byte) bool {
	return len(msg) >= header && len(msg) <= maxControl &&
		binary.LittleEndian.Uint32(msg[4:]) == controlMark &&
		binary.LittleEndian.Uint32(msg) == c.checksum(c.recv, controlMark, msg)
}

// decode reads a control message of one of the kinds.
func (c *codec) decode(msg []byte, kinds ...string) (controlMsg, error) {
	var m controlMsg
	if !c.isControl(msg) {
		return m, fmt.Errorf("got %d bytes that are no control message; is the peer rdmatune bench?", len(msg))
	}
	if err := json.Unmarshal(msg[header:], &m); err != nil {
		return m, fmt.Errorf("control message: %w", err)
	}
	for _, k := range kinds {
		if m.Kind == k {
			return m, nil
		}
	}
	return m, fmt.Errorf("control message %.20q where %q was expected", m.Kind, kinds)
}
