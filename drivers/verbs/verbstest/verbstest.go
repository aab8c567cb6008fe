// Package verbstest is the suite of semantics that every verbs provider passes: on
// the soft one wherever Go runs, on ibverbs where there is a device.
package verbstest

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// patience is the longest wait for anything; a test that passes never waits so long.
const patience = 30 * time.Second

// Run runs the suite on a device of p.
func Run(t *testing.T, p verbs.Provider, device string) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, b *bench)
	}{
		{"Order", testOrder},
		{"Inline", testInline},
		{"QueueFull", testQueueFull},
		{"Unsignaled", testUnsignaled},
		{"Immediate", testImmediate},
		{"TooLong", testTooLong},
		{"BadKey", testBadKey},
		{"Flush", testFlush},
		{"NotReadyWaits", testNotReadyWaits},
		{"NotReadyFails", testNotReadyFails},
		{"PeerGone", testPeerGone},
		{"Events", testEvents},
		{"Solicited", testSolicited},
		{"Moderation", testModeration},
		{"Vectors", testVectors},
		{"Spin", testSpin},
		{"Write", testWrite},
		{"WriteRefused", testWriteRefused},
		{"WriteThenSend", testWriteThenSend},
		{"WriteInline", testWriteInline},
		{"ClosedRegion", testClosedRegion},
		{"HeapMemory", testHeapMemory},
		{"ByAddress", testByAddress},
		{"DMABuf", testDMABuf},
		{"Access", testAccess},
		{"CloseEndsEvents", testCloseEndsEvents},
		{"Allocations", testAllocations},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newBench(t, p, device)) })
	}
}

// A side is one queue pair with its queues and memory.
type side struct {
	ch  verbs.CompChannel
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
	mem []byte
	loc verbs.Endpoint
}

// A bench is two sides on one device.
type bench struct {
	provider verbs.Provider
	dev      verbs.Device
	pd       verbs.PD
	gid      int
	mtu      int
	a, b     *side
}

const memSize = 1 << 20

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newBench(t *testing.T, p verbs.Provider, device string) *bench {
	t.Helper()
	dev, err := p.Open(device)
	must(t, err)
	b := &bench{provider: p, dev: dev, gid: -1}
	b.pd, err = dev.AllocPD()
	must(t, err)
	port, err := dev.Port(1)
	must(t, err)
	b.mtu = port.ActiveMTU
	gids, err := dev.GIDs(1)
	must(t, err)
	for _, g := range gids {
		if _, ok := g.GID.IPv4(); ok && b.gid < 0 {
			b.gid = g.Index
		}
	}
	if b.gid < 0 {
		t.Fatalf("no IPv4 address among %v", gids)
	}
	b.a, b.b = b.newSide(t), b.newSide(t)
	t.Cleanup(func() {
		for _, s := range []*side{b.a, b.b} {
			for _, c := range []interface{ Close() error }{s.qp, s.cq, s.ch, s.mr} {
				must(t, c.Close())
			}
			must(t, verbs.FreeMem(s.mem))
		}
		must(t, b.pd.Close())
		must(t, b.dev.Close())
	})
	return b
}

func (b *bench) newSide(t *testing.T) *side {
	t.Helper()
	s := &side{}
	var err error
	s.ch, err = b.dev.NewCompChannel()
	must(t, err)
	s.cq, err = b.dev.NewCQ(1024, s.ch, 0)
	must(t, err)
	s.qp, err = b.pd.CreateQP(verbs.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Cap: verbs.QPCap{SendWR: 16, RecvWR: 200, Inline: 64}})
	must(t, err)
	got := s.qp.Cap()
	if got.SendWR < 16 || got.RecvWR < 200 || got.Inline < 64 {
		t.Fatalf("granted %+v, less than asked", got)
	}
	s.mem, err = verbs.AllocMem(memSize)
	must(t, err)
	s.mr, err = b.pd.RegMR(s.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(t, err)
	must(t, s.qp.Init(1))
	s.loc, err = s.qp.Local(1, b.gid)
	must(t, err)
	return s
}

// connect takes both sides to RTS.
func (b *bench) connect(t *testing.T, rnrRetry int) {
	t.Helper()
	for _, x := range []struct{ from, to *side }{{b.a, b.b}, {b.b, b.a}} {
		must(t, x.from.qp.Connect(verbs.ConnectAttr{
			Port: 1, GIDIndex: b.gid, Local: x.from.loc, Remote: x.to.loc, MTU: b.mtu,
			RNRRetry: rnrRetry, RetryCount: 3, TimeoutExp: 10,
		}))
	}
	if b.a.qp.State() != verbs.QPRTS {
		t.Fatalf("state %d after connect", b.a.qp.State())
	}
}

func (s *side) recv(t *testing.T, id uint64, at, n int) {
	t.Helper()
	_, err := s.qp.PostRecv([]verbs.RecvWR{{ID: id, Buf: s.mem[at : at+n], LKey: s.mr.LKey()}})
	must(t, err)
}

func (s *side) wr(id uint64, at, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Buf: s.mem[at : at+n], LKey: s.mr.LKey(), Signaled: true}
}

func (s *side) send(t *testing.T, w verbs.SendWR) {
	t.Helper()
	_, err := s.qp.PostSend([]verbs.SendWR{w})
	must(t, err)
}

// next returns the next completion.
func (s *side) next(t *testing.T) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := s.cq.Poll(wc[:])
		must(t, err)
		if n == 1 {
			return wc[0]
		}
		time.Sleep(20 * time.Microsecond)
	}
	t.Fatal("no completion came")
	return wc[0]
}

// expect returns the next completion, which must be of id with one of the statuses.
func (s *side) expect(t *testing.T, id uint64, statuses ...verbs.Status) verbs.WC {
	t.Helper()
	wc := s.next(t)
	if wc.ID != id || !slices.Contains(statuses, wc.Status) || wc.QPN != s.qp.Num() {
		t.Fatalf("completion %+v (%s), want id %d %s", wc, wc.Status, id, statuses)
	}
	return wc
}

// none checks that nothing is there now.
func (s *side) none(t *testing.T) {
	t.Helper()
	var wc [1]verbs.WC
	if n, err := s.cq.Poll(wc[:]); n != 0 || err != nil {
		t.Fatalf("completion %+v (%s), %v; want none", wc[0], wc[0].Status, err)
	}
}
