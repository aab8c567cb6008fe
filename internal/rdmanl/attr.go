package rdmanl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// native is the byte order of netlink: the machine's own.
var native = binary.NativeEndian

// attrHeader is the size of an attribute's header.
const attrHeader = 4

// typeMask takes the flags off an attribute's type.
const typeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

var errTruncated = errors.New("truncated netlink message")

// attrs are the attributes of one message or nest by type. Of a type given twice the
// last stands, as in the kernel's own parser.
type attrs map[uint16][]byte

// each calls f for every attribute of b in order.
func each(b []byte, f func(typ uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < attrHeader {
			return errTruncated
		}
		size := int(native.Uint16(b))
		if size < attrHeader || size > len(b) {
			return errTruncated
		}
		if err := f(native.Uint16(b[2:])&typeMask, b[attrHeader:size]); err != nil {
			return err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

func parse(b []byte) (attrs, error) {
	a := attrs{}
	err := each(b, func(typ uint16, value []byte) error {
		a[typ] = value
		return nil
	})
	return a, err
}

// entries returns the nests of type entry inside the nest of type table.
func entries(b []byte, table, entry uint16) ([]attrs, error) {
	var out []attrs
	err := each(b, func(typ uint16, nest []byte) error {
		if typ != table {
			return nil
		}
		return each(nest, func(typ uint16, value []byte) error {
			if typ != entry {
				return nil
			}
			a, err := parse(value)
			out = append(out, a)
			return err
		})
	})
	return out, err
}

// number returns an unsigned attribute of whatever width, nil when it is absent.
func (a attrs) number(typ uint16) (*uint64, error) {
	v, ok := a[typ]
	if !ok {
		return nil, nil
	}
	switch len(v) {
	case 1:
		return new(uint64(v[0])), nil
	case 4:
		return new(uint64(native.Uint32(v))), nil
	case 8:
		return new(native.Uint64(v)), nil
	}
	return nil, fmt.Errorf("attribute %d has %d bytes: no number", typ, len(v))
}

// maxText bounds a text: names of devices, modules and firmware are shorter.
const maxText = 64

// text returns a NUL-terminated attribute with what is not printable replaced, ""
// when it is absent.
func (a attrs) text(typ uint16) string {
	v := a[typ]
	if end := bytes.IndexByte(v, 0); end >= 0 {
		v = v[:end]
	}
	return printable.Line(string(v[:min(len(v), maxText)]))
}

// address returns the socket address of an attribute (struct sockaddr_in or
// sockaddr_in6), the zero AddrPort when there is none of a known family.
func (a attrs) address(typ uint16) netip.AddrPort {
	v := a[typ]
	if len(v) < 8 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(v[2:])
	switch native.Uint16(v) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(v[4:8])), port)
	case unix.AF_INET6:
		if len(v) >= 24 {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(v[8:24])), port)
		}
	}
	return netip.AddrPort{}
}
