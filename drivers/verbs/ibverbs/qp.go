package ibverbs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

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

// fits reports whether n can be a segment's length: a longer one would be cut to its
// low bits.
func fits(n int) bool { return uint64(n) <= math.MaxUint32 }

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.sends.Lock()
	defer q.sends.Unlock()
	done := 0
	for done < len(wrs) {
		n := min(len(wrs)-done, len(q.sbuf))
		for i := range n {
			w := &wrs[done+i]
			if !fits(w.Size()) || w.HasImm && w.Op == verbs.OpWrite {
				return done, syscall.EINVAL // nothing of this batch has gone out
			}
			s := ibv.SendWR{ID: w.ID, Addr: address(w.Buf), Len: uint32(w.Size()), LKey: w.LKey, Opcode: ibv.Send}
			if w.Buf == nil {
				s.Addr = w.Addr
			}
			if w.Op == verbs.OpWrite {
				s.Opcode, s.RemoteAddr, s.RKey = ibv.RDMAWrite, w.RemoteAddr, w.RKey
			}
			if w.HasImm {
				s.Opcode, s.Imm = ibv.SendWithImm, w.Imm
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
		runtime.KeepAlive(wrs) // C has read what is inline
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
			if !fits(len(w.Buf)) {
				return done, syscall.EINVAL
			}
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
