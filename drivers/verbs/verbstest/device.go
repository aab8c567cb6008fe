package verbstest

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// testModeration: where moderation is granted no event gets lost to it; where not,
// the error says so.
func testModeration(t *testing.T, b *bench) {
	b.connect(t, 7)
	err := b.b.cq.Moderate(100, 1000)
	if !b.dev.Attr().Moderation {
		if !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("moderate where the device cannot: %v", err)
		}
		return
	}
	must(t, err)
	if err := b.b.cq.Moderate(-1, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("moderate by -1 completions: %v", err)
	}
	for i := range 3 {
		b.b.recv(t, uint64(i), 0, 8)
		must(t, b.b.cq.ReqNotify(false))
		b.b.none(t)
		b.a.send(t, b.a.wr(uint64(i), 0, 8))
		must(t, b.b.ch.Wait()) // by time: the count is never reached
		b.b.expect(t, uint64(i), verbs.StatusSuccess)
		b.a.expect(t, uint64(i), verbs.StatusSuccess)
	}
}

// testVectors: each completion vector serves a queue, and there is none beyond.
func testVectors(t *testing.T, b *bench) {
	n := b.dev.Attr().CompVectors
	if n < 1 {
		t.Fatalf("%d completion vectors", n)
	}
	for v := range n {
		q, err := b.dev.NewCQ(8, nil, v)
		must(t, err)
		must(t, q.Close())
	}
	for _, v := range []int{-1, n} {
		if q, err := b.dev.NewCQ(8, nil, v); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("queue on vector %d of %d: %v, %v", v, n, q, err)
		}
	}
}

func testSpin(t *testing.T, b *bench) {
	b.connect(t, 7)
	var wc [4]verbs.WC
	for _, polls := range []int{-1, 0, 1, 1000} {
		if n, err := b.b.cq.Spin(wc[:], polls); n != 0 || err != nil {
			t.Fatalf("spin of %d on an empty queue: %d, %v", polls, n, err)
		}
	}
	if n, err := b.b.cq.Spin(nil, 10); n != 0 || err != nil {
		t.Fatalf("spin for nothing: %d, %v", n, err)
	}
	for i := range 20 {
		b.b.recv(t, uint64(i), 0, 8)
		b.a.send(t, b.a.wr(uint64(i), 0, 8))
		for _, s := range []*side{b.b, b.a} {
			wc := s.spin(t)
			if wc.ID != uint64(i) || wc.Recv != (s == b.b) || wc.QPN != s.qp.Num() {
				t.Fatalf("round %d: %+v", i, wc)
			}
		}
	}
}

// spin waits for one completion by Spin.
func (s *side) spin(t *testing.T) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := s.cq.Spin(wc[:], 1000)
		must(t, err)
		if n == 1 {
			return wc[0]
		}
	}
	t.Fatal("no completion came")
	return wc[0]
}

// testAccess: a region is registered with rights that make sense, or not at all.
func testAccess(t *testing.T, b *bench) {
	if mr, err := b.pd.RegMR(b.a.mem, verbs.AccessRemoteWrite); err == nil {
		mr.Close()
		t.Error("remote write access without local write access was granted")
	}
	if mr, err := b.pd.RegMR(nil, verbs.AccessLocalWrite); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("registered no memory: %v, %v", mr, err)
	}
	// Reading needs no right, receiving does.
	b.connect(t, 7)
	mem, err := verbs.AllocMem(4096)
	must(t, err)
	defer verbs.FreeMem(mem)
	ro, err := b.pd.RegMR(mem, 0)
	must(t, err)
	defer ro.Close()
	b.b.recv(t, 1, 0, 64)
	b.a.send(t, verbs.SendWR{ID: 1, Buf: mem[:64], LKey: ro.LKey(), Signaled: true})
	b.b.expect(t, 1, verbs.StatusSuccess)
	b.a.expect(t, 1, verbs.StatusSuccess)
	if _, err := b.b.qp.PostRecv([]verbs.RecvWR{{ID: 2, Buf: mem[:64], LKey: ro.LKey()}}); err != nil {
		return // some devices look at once
	}
	b.a.send(t, b.a.wr(2, 0, 64))
	b.b.expect(t, 2, verbs.StatusLocProt, verbs.StatusLocAccess, verbs.StatusLocQPOp)
}

// testCloseEndsEvents: the channel of a device's events ends with the device.
func testCloseEndsEvents(t *testing.T, b *bench) {
	dev, err := b.provider.Open(b.dev.Name())
	must(t, err)
	events := dev.Events()
	must(t, dev.Close())
	for end := time.After(patience); ; {
		select {
		case e, more := <-events:
			if !more {
				return
			}
			t.Log(e)
		case <-end:
			t.Fatal("events go on after Close")
		}
	}
}

// testAllocations: posting, polling and spinning allocate nothing.
func testAllocations(t *testing.T, b *bench) {
	b.connect(t, 7)
	recv := []verbs.RecvWR{{ID: 1, Buf: b.b.mem[:64], LKey: b.b.mr.LKey()}}
	send := []verbs.SendWR{b.write(3, 0, 64, 4096), b.a.wr(2, 0, 64)}
	send[0].Signaled = false
	send[1].Imm, send[1].HasImm = 9, true
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
				if err == nil && n == 0 {
					n, err = cq.Spin(wc[:], 10)
				}
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
