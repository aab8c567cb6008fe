package rdmanl

import (
	"fmt"
	"math"
	"strconv"
)

// Attributes of RDMA_NLDEV.
const (
	attrDevIndex   = 1
	attrDevName    = 2
	attrPortIndex  = 3
	attrFirmware   = 5
	attrPortState  = 12
	attrPhysState  = 13
	attrQP         = 19 // table; its entries are one higher, as with all tables
	attrLQPN       = 21
	attrRQPN       = 22
	attrRQPSN      = 23
	attrSQPSN      = 24
	attrPathMig    = 25
	attrType       = 26
	attrState      = 27
	attrPID        = 28
	attrKernelName = 29
	attrCMID       = 30
	attrPS         = 32
	attrSrcAddr    = 33
	attrDstAddr    = 34
	attrCQ         = 35
	attrCQE        = 37
	attrUseCount   = 38
	attrPollCtx    = 39
	attrMR         = 40
	attrMRLen      = 45
	attrNdevIndex  = 50
	attrNdevName   = 51
	attrPDN        = 60
	attrCQN        = 61
	attrMRN        = 62
	attrCMIDN      = 63
	attrCTXN       = 64
	attrProtocol   = 67
	attrDIM        = 84
	attrCtx        = 86
)

// reader takes fields of one nest and keeps the first error.
type reader struct {
	attrs
	err error
}

func (r *reader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// opt returns a number of at most 32 bits, nil when it is absent.
func (r *reader) opt(typ uint16) *uint32 {
	n, err := r.number(typ)
	if err == nil && n != nil && *n > math.MaxUint32 {
		err = fmt.Errorf("attribute %d: %d has more than 32 bits", typ, *n)
	}
	if err != nil || n == nil {
		r.keep(err)
		return nil
	}
	return new(uint32(*n))
}

// num is opt with 0 for an absent number.
func (r *reader) num(typ uint16) uint32 {
	if n := r.opt(typ); n != nil {
		return *n
	}
	return 0
}

func (r *reader) long(typ uint16) uint64 {
	n, err := r.number(typ)
	r.keep(err)
	if n == nil {
		return 0
	}
	return *n
}

func (r *reader) flag(typ uint16) *bool {
	n, err := r.number(typ)
	r.keep(err)
	if n == nil {
		return nil
	}
	return new(*n != 0)
}

// word names a number; "" when it is absent, the number itself when it has no name.
func (r *reader) word(typ uint16, names map[uint64]string) string {
	n, err := r.number(typ)
	r.keep(err)
	if n == nil {
		return ""
	}
	if name, ok := names[*n]; ok {
		return name
	}
	return strconv.FormatUint(*n, 10)
}

func (r *reader) owner() Owner {
	o := Owner{Kernel: r.text(attrKernelName)}
	if tid := r.num(attrPID); tid <= math.MaxInt32 {
		o.TID = int(tid)
	}
	return o
}

// list decodes the entries of a table in a message.
func list[T any](b []byte, table uint16, decode func(*reader) T) ([]T, error) {
	es, err := entries(b, table, table+1)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(es))
	for _, e := range es {
		r := &reader{attrs: e}
		v := decode(r)
		if r.err != nil {
			return out, r.err
		}
		out = append(out, v)
	}
	return out, nil
}

func decodeDevice(b []byte) (Device, error) {
	a, err := parse(b)
	if err != nil {
		return Device{}, err
	}
	r := &reader{attrs: a}
	d := Device{
		Index: r.num(attrDevIndex), Name: r.text(attrDevName), Ports: r.num(attrPortIndex),
		Firmware: r.text(attrFirmware), Protocol: r.text(attrProtocol), AdaptiveModeration: r.flag(attrDIM),
	}
	if r.err == nil && d.Name == "" {
		r.err = fmt.Errorf("device %d has no name", d.Index)
	}
	return d, r.err
}

func decodeLink(device string, b []byte) (Link, error) {
	a, err := parse(b)
	if err != nil {
		return Link{}, err
	}
	r := &reader{attrs: a}
	l := Link{
		Device: device, Port: r.num(attrPortIndex), State: r.word(attrPortState, portStates),
		PhysState: r.word(attrPhysState, physStates), Netdev: r.text(attrNdevName), NetdevIndex: r.num(attrNdevIndex),
	}
	return l, r.err
}

func decodeQPs(device string, b []byte) ([]QP, error) {
	return list(b, attrQP, func(r *reader) QP {
		return QP{
			Device: device, Port: r.opt(attrPortIndex), Number: r.num(attrLQPN), Peer: r.opt(attrRQPN),
			Type: r.word(attrType, qpTypes), State: r.word(attrState, qpStates), SQPSN: r.opt(attrSQPSN), RQPSN: r.opt(attrRQPSN),
			PathMig: r.word(attrPathMig, migStates), PDNumber: r.opt(attrPDN), Owner: r.owner(),
		}
	})
}

func decodeCQs(device string, b []byte) ([]CQ, error) {
	return list(b, attrCQ, func(r *reader) CQ {
		return CQ{
			Device: device, Number: r.num(attrCQN), Entries: r.num(attrCQE), Users: r.long(attrUseCount),
			PollCtx: r.word(attrPollCtx, pollCtxs), AdaptiveModeration: r.flag(attrDIM), Context: r.opt(attrCTXN), Owner: r.owner(),
		}
	})
}

func decodeMRs(device string, b []byte) ([]MR, error) {
	return list(b, attrMR, func(r *reader) MR {
		return MR{Device: device, Number: r.num(attrMRN), Bytes: r.long(attrMRLen), PD: r.opt(attrPDN), Owner: r.owner()}
	})
}

func decodeContexts(device string, b []byte) ([]Context, error) {
	return list(b, attrCtx, func(r *reader) Context {
		return Context{Device: device, Number: r.num(attrCTXN), Owner: r.owner()}
	})
}

func decodeCMIDs(device string, b []byte) ([]CMID, error) {
	return list(b, attrCMID, func(r *reader) CMID {
		return CMID{
			Device: device, Port: r.opt(attrPortIndex), Number: r.num(attrCMIDN), QP: r.opt(attrLQPN), Type: r.word(attrType, qpTypes),
			State: r.word(attrState, cmStates), Space: r.word(attrPS, cmPortSpace),
			Src: r.address(attrSrcAddr), Dst: r.address(attrDstAddr), Owner: r.owner(),
		}
	})
}
