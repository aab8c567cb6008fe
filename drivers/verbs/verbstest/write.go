package verbstest

import (
	"bytes"
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// write is an RDMA write of n bytes at offset from of a's memory to offset to of b's.
func (b *bench) write(id uint64, from, to, n int) verbs.SendWR {
	w := b.a.wr(id, from, n)
	w.Op, w.RemoteAddr, w.RKey = verbs.OpWrite, b.b.mr.Addr()+uint64(to), b.b.mr.RKey()
	return w
}

// fill gives the memory a content that differs by place and seed.
func fill(mem []byte, seed int) {
	for i := range mem {
		mem[i] = byte((i + seed) % 251)
	}
}

// testWrite: data lands, takes no receive and completes at the sender only.
func testWrite(t *testing.T, b *bench) {
	b.connect(t, 7)
	fill(b.a.mem, 3)
	b.b.recv(t, 1, 500_000, 8)
	sizes := []int{0, 1, 8, 1000, 4096, 70_000}
	at := 0
	for i, n := range sizes {
		b.a.send(t, b.write(uint64(10+i), i, at, n))
		if wc := b.a.expect(t, uint64(10+i), verbs.StatusSuccess); wc.Recv {
			t.Fatalf("write completed as %+v", wc)
		}
		at += n
	}
	// The receive is still there for the message that follows, whose arrival makes
	// the writes' data visible.
	b.a.send(t, b.a.wr(20, 0, 8))
	b.b.expect(t, 1, verbs.StatusSuccess)
	b.b.none(t)
	at = 0
	for i, n := range sizes {
		if !bytes.Equal(b.b.mem[at:at+n], b.a.mem[i:i+n]) {
			t.Errorf("write of %d bytes: data differs", n)
		}
		at += n
	}
}

// testWriteRefused: a write to where the peer allows none fails at the sender, loses
// the queue pair, and touches nothing.
func testWriteRefused(t *testing.T, b *bench) {
	for _, c := range []struct {
		name  string
		spoil func(w *verbs.SendWR, readOnly verbs.MR)
	}{
		{"bad key", func(w *verbs.SendWR, _ verbs.MR) { w.RKey += 0x100 }},
		{"before the region", func(w *verbs.SendWR, _ verbs.MR) { w.RemoteAddr -= 1 }},
		{"over its end", func(w *verbs.SendWR, _ verbs.MR) { w.RemoteAddr += memSize - 63 }},
		{"far away", func(w *verbs.SendWR, _ verbs.MR) { w.RemoteAddr = 1<<64 - 32 }},
		{"no remote write access", func(w *verbs.SendWR, mr verbs.MR) { w.RemoteAddr, w.RKey = mr.Addr(), mr.RKey() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, b.provider, b.dev.Name())
			b.connect(t, 7)
			other, err := verbs.AllocMem(4096)
			must(t, err)
			defer verbs.FreeMem(other)
			readOnly, err := b.pd.RegMR(other, verbs.AccessLocalWrite)
			must(t, err)
			defer readOnly.Close()
			fill(b.a.mem, 1)
			w := b.write(1, 0, 0, 64)
			c.spoil(&w, readOnly)
			b.a.send(t, w)
			b.a.expect(t, 1, verbs.StatusRemAccess)
			if s := b.a.qp.State(); s != verbs.QPError {
				t.Errorf("the sender's queue pair is in state %d", s)
			}
			if !bytes.Equal(b.b.mem, make([]byte, memSize)) || !bytes.Equal(other, make([]byte, len(other))) {
				t.Error("the peer's memory was written to")
			}
			// What follows goes nowhere.
			b.a.send(t, b.write(2, 0, 0, 64))
			b.a.expect(t, 2, verbs.StatusFlushed)
		})
	}
}

// testWriteThenSend: a send's arrival means that the writes before it have landed.
func testWriteThenSend(t *testing.T, b *bench) {
	b.connect(t, 7)
	const n = 30_000
	for round := range 50 {
		fill(b.a.mem[:2*n], round)
		b.b.recv(t, 1, memSize-8, 8)
		first, second := b.write(2, 0, 0, n), b.write(3, n, n, n)
		first.Signaled, second.Signaled = false, false
		if _, err := b.a.qp.PostSend([]verbs.SendWR{first, second, b.a.wr(4, 0, 8)}); err != nil {
			t.Fatal(err)
		}
		b.b.expect(t, 1, verbs.StatusSuccess)
		if !bytes.Equal(b.b.mem[:2*n], b.a.mem[:2*n]) {
			t.Fatalf("round %d: the send arrived before the data of the writes", round)
		}
		b.a.expect(t, 4, verbs.StatusSuccess)
	}
}

func testWriteInline(t *testing.T, b *bench) {
	b.connect(t, 7)
	w := b.write(1, 0, 0, 16)
	w.Inline, w.LKey = true, 0
	fill(b.a.mem[:16], 9)
	want := bytes.Clone(b.a.mem[:16])
	b.a.send(t, w)
	clear(b.a.mem[:16]) // taken already
	b.a.expect(t, 1, verbs.StatusSuccess)
	b.b.recv(t, 2, 100, 8)
	b.a.send(t, b.a.wr(2, 0, 8))
	b.b.expect(t, 2, verbs.StatusSuccess)
	if !bytes.Equal(b.b.mem[:16], want) {
		t.Errorf("%x arrived, want %x", b.b.mem[:16], want)
	}
}

// testClosedRegion: peers cannot write to what is no longer registered.
func testClosedRegion(t *testing.T, b *bench) {
	b.connect(t, 7)
	mem, err := verbs.AllocMem(4096)
	must(t, err)
	mr, err := b.pd.RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(t, err)
	w := b.a.wr(1, 0, 64)
	w.Op, w.RemoteAddr, w.RKey = verbs.OpWrite, mr.Addr(), mr.RKey()
	b.a.send(t, w)
	b.a.expect(t, 1, verbs.StatusSuccess)
	must(t, mr.Close())
	must(t, verbs.FreeMem(mem))
	w.ID = 2
	b.a.send(t, w)
	b.a.expect(t, 2, verbs.StatusRemAccess)
}

// testHeapMemory: pinned memory of the Go heap serves on both sides, also while the
// collector runs.
func testHeapMemory(t *testing.T, b *bench) {
	b.connect(t, 7)
	from, to := make([]byte, 100_000), make([]byte, 100_000)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&from[0])
	pin.Pin(&to[0])
	fill(from, 5)
	fm, err := b.pd.RegMR(from, verbs.AccessLocalWrite)
	must(t, err)
	defer fm.Close()
	tm, err := b.pd.RegMR(to, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(t, err)
	defer tm.Close()
	if tm.Len() != len(to) {
		t.Errorf("a region of %d bytes, registered %d", tm.Len(), len(to))
	}
	b.b.recv(t, 1, 0, 8)
	b.a.send(t, verbs.SendWR{
		ID: 2, Buf: from, LKey: fm.LKey(), Signaled: true,
		Op: verbs.OpWrite, RemoteAddr: tm.Addr(), RKey: tm.RKey(),
	})
	runtime.GC()
	b.a.send(t, verbs.SendWR{ID: 3, Buf: from[:8], LKey: fm.LKey(), Signaled: true})
	b.b.expect(t, 1, verbs.StatusSuccess)
	if !bytes.Equal(from, to) {
		t.Error("data differs")
	}
}

// testByAddress: a request may name its memory by address and length.
func testByAddress(t *testing.T, b *bench) {
	b.connect(t, 7)
	fill(b.a.mem, 2)
	b.b.recv(t, 1, 0, 64)
	w := verbs.SendWR{ID: 1, Addr: b.a.mr.Addr() + 100, Len: 64, LKey: b.a.mr.LKey(), Signaled: true}
	b.a.send(t, w)
	b.b.expect(t, 1, verbs.StatusSuccess)
	if !bytes.Equal(b.b.mem[:64], b.a.mem[100:164]) {
		t.Error("data differs")
	}
}

// testDMABuf: what is no dma-buf is refused, and where none can be registered the
// error says what is missing.
func testDMABuf(t *testing.T, b *bench) {
	a := b.dev.Attr()
	if a.DMABuf != (a.DMABufWhy == "") {
		t.Errorf("dma-buf granted: %v, because: %q", a.DMABuf, a.DMABufWhy)
	}
	mr, err := b.pd.RegDMABuf(-1, 0, 4096, verbs.AccessLocalWrite)
	if err == nil {
		mr.Close()
		t.Fatal("registered descriptor -1")
	}
	want := syscall.EOPNOTSUPP
	if a.DMABuf {
		want = syscall.EBADF
	}
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	t.Log(err)
}
