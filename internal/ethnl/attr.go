package ethnl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// native is the byte order of netlink: the machine's own.
var native = binary.NativeEndian

// Sizes of a generic netlink header and of an attribute's header.
const (
	genlHeader = 4
	attrHeader = 4
)

// message starts a generic netlink message.
func message(command, version uint8) []byte { return []byte{command, version, 0, 0} }

// appendAttr appends an attribute, padded to 4 bytes.
func appendAttr(b []byte, typ uint16, value []byte) []byte {
	b = native.AppendUint16(b, uint16(attrHeader+len(value)))
	b = native.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(value)%4)%4)...)
}

var errTruncated = errors.New("truncated netlink message")

// answer returns the attributes of a generic netlink message by type.
func answer(b []byte) (map[uint16][]byte, error) {
	if len(b) < genlHeader {
		return nil, errTruncated
	}
	return attributes(b[genlHeader:])
}

// attributes returns a row of attributes by type. A type given twice keeps its last
// value, as in the kernel's own parser.
func attributes(b []byte) (map[uint16][]byte, error) {
	attrs := map[uint16][]byte{}
	for len(b) > 0 {
		if len(b) < attrHeader {
			return nil, errTruncated
		}
		size := int(native.Uint16(b))
		if size < attrHeader || size > len(b) {
			return nil, errTruncated
		}
		typ := native.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		attrs[typ] = b[attrHeader:size]
		b = b[min((size+3)&^3, len(b)):]
	}
	return attrs, nil
}

// parseCoalesce reads the answer to a COALESCE_GET. The kernel leaves out the
// fields that the driver does not offer.
func parseCoalesce(b []byte) (Coalesce, error) {
	attrs, err := answer(b)
	if err != nil {
		return Coalesce{}, err
	}
	var c Coalesce
	for typ, field := range c.words() {
		if value, ok := attrs[typ]; ok {
			if len(value) != 4 {
				return Coalesce{}, fmt.Errorf("coalescing attribute %d has %d bytes, not 4", typ, len(value))
			}
			*field = new(native.Uint32(value))
		}
	}
	for typ, field := range c.switches() {
		if value, ok := attrs[typ]; ok {
			if len(value) != 1 {
				return Coalesce{}, fmt.Errorf("coalescing attribute %d has %d bytes, not 1", typ, len(value))
			}
			*field = new(value[0] != 0)
		}
	}
	return c, nil
}

// words and switches tell which attribute carries which field.
func (c *Coalesce) words() map[uint16]**uint32 {
	return map[uint16]**uint32{
		unix.ETHTOOL_A_COALESCE_RX_USECS:      &c.RXUsecs,
		unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES: &c.RXFrames,
		unix.ETHTOOL_A_COALESCE_TX_USECS:      &c.TXUsecs,
		unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES: &c.TXFrames,
	}
}

func (c *Coalesce) switches() map[uint16]**bool {
	return map[uint16]**bool{
		unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: &c.AdaptiveRX,
		unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX: &c.AdaptiveTX,
	}
}

// appendCoalesce appends the fields of c that are not nil.
func appendCoalesce(b []byte, c Coalesce) []byte {
	for typ, field := range c.words() {
		if *field != nil {
			b = appendAttr(b, typ, native.AppendUint32(nil, **field))
		}
	}
	for typ, field := range c.switches() {
		if *field != nil {
			on := byte(0)
			if **field {
				on = 1
			}
			b = appendAttr(b, typ, []byte{on})
		}
	}
	return b
}
