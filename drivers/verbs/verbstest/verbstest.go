// Package verbstest is the suite of semantics that every verbs provider passes: on
// the soft one wherever Go runs, on ibverbs where there is a device.
package verbstest

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"syscall"
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
		{"TooLong", testTooLong},
		{"BadKey", testBadKey},
		{"Flush", testFlush},
		{"NotReadyWaits", testNotReadyWaits},
		{"NotReadyFails", testNotReadyFails},
		{"PeerGone", testPeerGone},
		{"Events", testEvents},
		{"Solicited", testSolicited},
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
	dev  verbs.Device
	pd   verbs.PD
	gid  int
	mtu  int
	a, b *side
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
	b := &bench{dev: dev, gid: -1}
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
	s.mr, err = b.pd.RegMR(s.mem)
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

func testOrder(t *testing.T, b *bench) {
	b.connect(t, 7)
	sizes := []int{0, 1, 64, 1000, 4096, 70000}
	for i := range sizes {
		b.b.recv(t, uint64(100+i), i*100000, 100000)
	}
	for i := range b.a.mem {
		b.a.mem[i] = byte(i % 251)
	}
	for i, n := range sizes {
		b.a.send(t, b.a.wr(uint64(i), i, n))
	}
	for i, n := range sizes {
		wc := b.b.expect(t, uint64(100+i), verbs.StatusSuccess)
		if !wc.Recv || wc.ByteLen != n || !bytes.Equal(b.b.mem[i*100000:i*100000+n], b.a.mem[i:i+n]) {
			t.Fatalf("message %d of %d bytes: %+v", i, n, wc)
		}
		if wc := b.a.expect(t, uint64(i), verbs.StatusSuccess); wc.Recv {
			t.Fatalf("send completed as %+v", wc)
		}
	}
}

func testInline(t *testing.T, b *bench) {
	b.connect(t, 7)
	max := b.a.qp.Cap().Inline
	w := b.a.wr(1, 0, max+1)
	w.Inline, w.LKey = true, 0
	if n, err := b.a.qp.PostSend([]verbs.SendWR{w}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("inline of %d bytes above %d: %d, %v", max+1, max, n, err)
	}
	copy(b.a.mem, bytes.Repeat([]byte{7}, max))
	w.Buf = b.a.mem[:max]
	b.a.send(t, w)
	clear(b.a.mem[:max]) // taken already
	b.b.recv(t, 2, 0, max)
	b.b.expect(t, 2, verbs.StatusSuccess)
	if !bytes.Equal(b.b.mem[:max], bytes.Repeat([]byte{7}, max)) {
		t.Fatal("inline data was read after the post")
	}
}

func testQueueFull(t *testing.T, b *bench) {
	b.connect(t, 7)
	depth := b.a.qp.Cap().SendWR
	// Without a receive nothing completes.
	for i := range depth {
		b.a.send(t, b.a.wr(uint64(i), 0, 8))
	}
	if n, err := b.a.qp.PostSend([]verbs.SendWR{b.a.wr(999, 0, 8)}); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("post %d on a queue of %d: %d, %v", depth+1, depth, n, err)
	}
	for i := range depth {
		b.b.recv(t, uint64(i), 0, 8)
	}
	for i := range depth {
		b.a.expect(t, uint64(i), verbs.StatusSuccess)
	}
	b.b.recv(t, 1000, 0, 8)
	b.a.send(t, b.a.wr(1000, 0, 8))
	b.a.expect(t, 1000, verbs.StatusSuccess)
}

func testUnsignaled(t *testing.T, b *bench) {
	b.connect(t, 7)
	for i := range 5 {
		b.b.recv(t, uint64(i), 0, 8)
		w := b.a.wr(uint64(i), 0, 8)
		w.Signaled = i == 4
		b.a.send(t, w)
	}
	b.a.expect(t, 4, verbs.StatusSuccess)
	b.a.none(t)
}

func testTooLong(t *testing.T, b *bench) {
	b.connect(t, 7)
	b.b.recv(t, 1, 0, 8)
	b.b.recv(t, 2, 0, 8)
	b.a.send(t, b.a.wr(1, 0, 9))
	b.b.expect(t, 1, verbs.StatusLocLen, verbs.StatusLocQPOp)
	b.b.expect(t, 2, verbs.StatusFlushed)
	b.a.expect(t, 1, verbs.StatusRemInvalid, verbs.StatusRemOp)
	if b.a.qp.State() != verbs.QPError || b.b.qp.State() != verbs.QPError {
		t.Errorf("states %d and %d", b.a.qp.State(), b.b.qp.State())
	}
}

func testBadKey(t *testing.T, b *bench) {
	b.connect(t, 7)
	b.b.recv(t, 1, 0, 4096)
	w := b.a.wr(1, 0, 2048)
	w.LKey = b.a.mr.LKey() + 0x100
	if n, err := b.a.qp.PostSend([]verbs.SendWR{w}); err != nil {
		// Some devices look at once.
		if n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("bad key: %d, %v", n, err)
		}
		return
	}
	b.a.expect(t, 1, verbs.StatusLocProt, verbs.StatusLocQPOp)
}

func testFlush(t *testing.T, b *bench) {
	b.connect(t, 7)
	b.a.recv(t, 1, 0, 8)
	must(t, b.a.qp.Fail())
	wc := b.a.expect(t, 1, verbs.StatusFlushed)
	if b.a.qp.State() != verbs.QPError {
		t.Errorf("state %d, completion %+v", b.a.qp.State(), wc)
	}
	b.a.none(t)
}

func testNotReadyWaits(t *testing.T, b *bench) {
	b.connect(t, 7)
	b.a.send(t, b.a.wr(1, 0, 8))
	time.Sleep(30 * time.Millisecond) // longer than a few retries; the result is the same if not
	b.a.none(t)
	b.b.recv(t, 2, 0, 8)
	b.b.expect(t, 2, verbs.StatusSuccess)
	b.a.expect(t, 1, verbs.StatusSuccess)
}

func testNotReadyFails(t *testing.T, b *bench) {
	b.connect(t, 1)
	b.a.send(t, b.a.wr(1, 0, 8))
	b.a.expect(t, 1, verbs.StatusRNRRetryExc)
}

func testPeerGone(t *testing.T, b *bench) {
	b.connect(t, 7)
	must(t, b.b.qp.Fail())
	b.b.recv(t, 1, 0, 8)
	b.a.send(t, b.a.wr(1, 0, 8))
	b.a.send(t, b.a.wr(2, 0, 8))
	b.a.expect(t, 1, verbs.StatusRetryExc)
	b.a.expect(t, 2, verbs.StatusFlushed)
}

func testEvents(t *testing.T, b *bench) {
	b.connect(t, 7)
	for i := range 3 {
		b.b.recv(t, uint64(i), 0, 8)
		must(t, b.b.cq.ReqNotify(false))
		b.b.none(t)
		got := make(chan error, 1)
		go func() { got <- b.b.ch.Wait() }()
		b.a.send(t, b.a.wr(uint64(i), 0, 8))
		must(t, <-got)
		b.b.expect(t, uint64(i), verbs.StatusSuccess)
		b.a.expect(t, uint64(i), verbs.StatusSuccess)
	}
	got := make(chan error, 1)
	go func() { got <- b.b.ch.Wait() }()
	must(t, b.b.ch.Shutdown())
	if err := <-got; !errors.Is(err, os.ErrClosed) {
		t.Errorf("wait after shutdown: %v", err)
	}
}

func testSolicited(t *testing.T, b *bench) {
	b.connect(t, 7)
	b.b.recv(t, 1, 0, 8)
	b.b.recv(t, 2, 0, 8)
	must(t, b.b.cq.ReqNotify(true))
	got := make(chan error, 1)
	go func() { got <- b.b.ch.Wait() }()
	b.a.send(t, b.a.wr(1, 0, 8))
	b.a.expect(t, 1, verbs.StatusSuccess)
	select {
	case err := <-got:
		t.Fatalf("event for a message that asked for none: %v", err)
	default:
	}
	w := b.a.wr(2, 0, 8)
	w.Solicited = true
	b.a.send(t, w)
	must(t, <-got)
	b.b.expect(t, 1, verbs.StatusSuccess)
	b.b.expect(t, 2, verbs.StatusSuccess)
}

func testAllocations(t *testing.T, b *bench) {
	b.connect(t, 7)
	recv := []verbs.RecvWR{{ID: 1, Buf: b.b.mem[:64], LKey: b.b.mr.LKey()}}
	send := []verbs.SendWR{b.a.wr(2, 0, 64)}
	var wc [4]verbs.WC
	n := testing.AllocsPerRun(200, func() {
		if _, err := b.b.qp.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if _, err := b.a.qp.PostSend(send); err != nil {
			t.Fatal(err)
		}
		for _, cq := range []verbs.CQ{b.b.cq, b.a.cq} {
			for {
				n, err := cq.Poll(wc[:])
				if err != nil {
					t.Fatal(err)
				}
				if n > 0 {
					break
				}
				time.Sleep(time.Microsecond)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}
