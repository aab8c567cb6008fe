// Package ibverbs is the verbs provider over libibverbs, which is opened at run
// time: a program that contains it starts without the library and says so when it
// is needed.
package ibverbs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

// Provider serves the devices that libibverbs finds.
type Provider struct{}

// Name is "ibverbs".
func (Provider) Name() string { return "ibverbs" }

// Devices lists the devices.
func (Provider) Devices() ([]string, error) {
	names, err := ibv.Devices()
	slices.Sort(names)
	return names, err
}

// Open opens a device.
func (p Provider) Open(name string) (verbs.Device, error) {
	ctx, err := ibv.Open(name)
	if err != nil {
		if names, lerr := ibv.Devices(); lerr == nil {
			return nil, fmt.Errorf("%w (devices: %s)", err, strings.Join(names, ", "))
		}
		return nil, err
	}
	a, err := ctx.Query()
	if err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &device{name, ctx, verbs.DeviceAttr{
		Firmware: a.Firmware, NodeGUID: a.NodeGUID, VendorID: a.VendorID, VendorPartID: a.VendorPartID,
		MaxQPWR: a.MaxQPWR, MaxSGE: a.MaxSGE, MaxCQE: a.MaxCQE, CompVectors: a.CompVectors,
	}}
	if err := d.probe(); err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

type device struct {
	name string
	ctx  ibv.Context
	attr verbs.DeviceAttr
}

func (d *device) Name() string           { return d.name }
func (d *device) Attr() verbs.DeviceAttr { return d.attr }
func (d *device) Close() error           { return d.wrap(d.ctx.Close()) }

func (d *device) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", d.name, err)
}

func (d *device) Port(port uint8) (verbs.PortAttr, error) {
	a, err := d.ctx.QueryPort(port)
	if err != nil {
		return verbs.PortAttr{}, d.wrap(err)
	}
	if a.ActiveMTU < 1 || a.ActiveMTU > 5 {
		return verbs.PortAttr{}, fmt.Errorf("%s: port %d: unknown MTU %d", d.name, port, a.ActiveMTU)
	}
	return verbs.PortAttr{Active: a.Active, LID: a.LID, ActiveMTU: 128 << a.ActiveMTU, Ethernet: a.Ethernet}, nil
}

// maxGIDs bounds how much of a GID table is read.
const maxGIDs = 1024

func (d *device) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	a, err := d.ctx.QueryPort(port)
	if err != nil {
		return nil, d.wrap(err)
	}
	var out []verbs.GIDEntry
	for i := range min(a.GIDs, maxGIDs) {
		g, err := d.ctx.QueryGID(port, i)
		if err != nil || g == [16]byte{} {
			continue // an unused entry
		}
		out = append(out, verbs.GIDEntry{Index: i, GID: g, RoCEv2: d.isRoCEv2(port, i)})
	}
	return out, nil
}

// isRoCEv2 reads the entry's type, which only sysfs tells in every version of the
// library: /sys/class/infiniband/DEV/ports/P/gid_attrs/types/I.
func (d *device) isRoCEv2(port uint8, index int) bool {
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", d.name, "ports", strconv.Itoa(int(port)),
		"gid_attrs/types", strconv.Itoa(index)))
	return err == nil && strings.TrimSpace(string(b)) == "RoCE v2"
}

func (d *device) AllocPD() (verbs.PD, error) {
	p, err := d.ctx.AllocPD()
	if err != nil {
		return nil, d.wrap(err)
	}
	return &pd{d, p}, nil
}

func (d *device) NewCQ(cqe int, ch verbs.CompChannel, vector int) (verbs.CQ, error) {
	var c ibv.Channel
	if ch != nil {
		own, ok := ch.(*channel)
		if !ok {
			return nil, fmt.Errorf("%s: create cq: channel of another provider: %w", d.name, syscall.EINVAL)
		}
		c = own.ch
	}
	q, err := d.ctx.NewCQ(cqe, c, vector)
	if err != nil {
		return nil, d.wrap(err)
	}
	return &cq{CQ: q}, nil
}

func (d *device) NewCompChannel() (verbs.CompChannel, error) {
	ch, err := d.ctx.NewChannel()
	if err != nil {
		return nil, d.wrap(err)
	}
	c, err := newChannel(ch)
	if err != nil {
		ch.Close()
		return nil, d.wrap(err)
	}
	return c, nil
}

type qp struct {
	dev   *device
	qp    ibv.QP
	num   uint32
	cap   verbs.QPCap
	psn   uint32
	sends sync.Mutex
	sbuf  [ibv.Batch]ibv.SendWR // guarded by sends
	recvs sync.Mutex
	rbuf  [ibv.Batch]ibv.RecvWR // guarded by recvs
}

func (p *pd) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	send, ok1 := a.SendCQ.(*cq)
	recv, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s: create qp: a cq of this provider is needed for both queues: %w", p.dev.name, syscall.EINVAL)
	}
	h, err := p.p.CreateQP(send.CQ, recv.CQ, ibv.Cap(a.Cap))
	if err != nil {
		return nil, p.dev.wrap(err)
	}
	// What create returns is what was asked on some devices; the query is true.
	_, got, err := h.Query()
	if err != nil {
		h.Close()
		return nil, p.dev.wrap(err)
	}
	return &qp{dev: p.dev, qp: h, num: h.Num(), cap: verbs.QPCap(got), psn: rand.Uint32N(1 << 24)}, nil
}

func (q *qp) Num() uint32      { return q.num }
func (q *qp) Cap() verbs.QPCap { return q.cap }
func (q *qp) Close() error     { return q.dev.wrap(q.qp.Close()) }
func (q *qp) Fail() error      { return q.dev.wrap(q.qp.Fail()) }

func (q *qp) Init(port uint8) error { return q.dev.wrap(q.qp.Init(port)) }

// State maps SQD and SQE, which are not used, to the error state.
func (q *qp) State() verbs.QPState {
	s, _, err := q.qp.Query()
	if err != nil || s > int(verbs.QPRTS) || s < 0 {
		return verbs.QPError
	}
	return verbs.QPState(s)
}

func (q *qp) Local(port uint8, gidIndex int) (verbs.Endpoint, error) {
	a, err := q.dev.ctx.QueryPort(port)
	if err != nil {
		return verbs.Endpoint{}, q.dev.wrap(err)
	}
	g, err := q.dev.ctx.QueryGID(port, gidIndex)
	if err != nil {
		return verbs.Endpoint{}, fmt.Errorf("%s: index %d: %w", q.dev.name, gidIndex, err)
	}
	return verbs.Endpoint{GID: g, LID: a.LID, QPN: q.num, PSN: q.psn}, nil
}

// minRNRTimer is 0.64 ms.
const minRNRTimer = 12

func (q *qp) Connect(a verbs.ConnectAttr) error {
	port, err := q.dev.Port(a.Port)
	if err != nil {
		return err
	}
	mtu := 0
	for n := 1; n <= 5; n++ {
		if a.MTU == 128<<n {
			mtu = n
		}
	}
	if mtu == 0 || a.GIDIndex < 0 || a.GIDIndex > 255 || a.RNRRetry < 0 || a.RNRRetry > 7 ||
		a.RetryCount < 0 || a.RetryCount > 7 || a.TimeoutExp < 0 || a.TimeoutExp > 31 {
		return fmt.Errorf("%s: qp %#x: connect: %w", q.dev.name, q.num, syscall.EINVAL)
	}
	err = q.qp.Connect(ibv.Connect{
		Port: a.Port, GIDIndex: uint8(a.GIDIndex), Global: port.Ethernet, MTU: mtu, LocalPSN: a.Local.PSN,
		RemoteGID: a.Remote.GID, RemoteLID: a.Remote.LID, RemoteQPN: a.Remote.QPN, RemotePSN: a.Remote.PSN,
		MinRNRTimer: minRNRTimer, RNRRetry: uint8(a.RNRRetry), RetryCount: uint8(a.RetryCount), Timeout: uint8(a.TimeoutExp),
	})
	if err != nil {
		return fmt.Errorf("%s: qp %#x: %w", q.dev.name, q.num, err)
	}
	return nil
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.sends.Lock()
	defer q.sends.Unlock()
	done := 0
	for done < len(wrs) {
		n := min(len(wrs)-done, len(q.sbuf))
		for i := range n {
			w := &wrs[done+i]
			s := ibv.SendWR{ID: w.ID, Addr: address(w.Buf), Len: uint32(w.Size()), LKey: w.LKey, Opcode: ibv.Send}
			if w.Buf == nil {
				s.Addr = w.Addr
			}
			if w.Op == verbs.OpWrite {
				s.Opcode, s.RemoteAddr, s.RKey = ibv.RDMAWrite, w.RemoteAddr, w.RKey
			}
			if w.Signaled {
				s.Flags |= ibv.Signaled
			}
			if w.Inline {
				s.Flags |= ibv.Inline
			}
			if w.Solicited {
				s.Flags |= ibv.Solicited
			}
			q.sbuf[i] = s
		}
		took, err := q.qp.PostSend(q.sbuf[:n])
		done += took
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.recvs.Lock()
	defer q.recvs.Unlock()
	done := 0
	for done < len(wrs) {
		n := min(len(wrs)-done, len(q.rbuf))
		for i := range n {
			w := &wrs[done+i]
			q.rbuf[i] = ibv.RecvWR{ID: w.ID, Addr: address(w.Buf), Len: uint32(len(w.Buf)), LKey: w.LKey}
		}
		took, err := q.qp.PostRecv(q.rbuf[:n])
		done += took
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
