package verbstest

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

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
