package verbstest

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// testImmediate: an immediate arrives beside the bytes of its own message, and only of
// that, whatever else is in the batch and whether or not sends are signaled.
func testImmediate(t *testing.T, b *bench) {
	b.connect(t, 7)
	fill(b.a.mem, 6)
	sends := []struct {
		n        int
		inline   bool
		has      bool
		imm      uint32
		signaled bool
	}{
		{0, false, true, 0x01020304, false},
		{0, true, true, 0xfffffffe, false},
		{8, true, true, 1, false},
		{8, true, false, 0, false},
		{5000, false, true, 0x80000000, true}, // several packets
		{64, true, false, 0, true},
		{64, false, true, 0, false}, // an immediate of 0 is one, too
		{0, false, false, 0, false},
		{b.mtu, false, true, 0xdeadbeef, false},
		{1, false, true, 7, true},
	}
	const size = 8192
	var batch []verbs.SendWR
	for i, s := range sends {
		b.b.recv(t, uint64(100+i), i*size, size)
		w := b.a.wr(uint64(i), i, s.n)
		w.Inline, w.HasImm, w.Imm, w.Signaled = s.inline, s.has, s.imm, s.signaled
		batch = append(batch, w)
	}
	if n, err := b.a.qp.PostSend(batch); n != len(batch) || err != nil {
		t.Fatalf("posted %d of %d: %v", n, len(batch), err)
	}
	for i, s := range sends {
		wc := b.b.expect(t, uint64(100+i), verbs.StatusSuccess)
		if !wc.Recv || wc.ByteLen != s.n || wc.HasImm != s.has || s.has && wc.Imm != s.imm {
			t.Errorf("message %d, sent as %+v: %+v", i, s, wc)
		}
		if !bytes.Equal(b.b.mem[i*size:i*size+s.n], b.a.mem[i:i+s.n]) {
			t.Errorf("message %d of %d bytes: data differs", i, s.n)
		}
	}
	for i, s := range sends {
		if !s.signaled {
			continue
		}
		if wc := b.a.expect(t, uint64(i), verbs.StatusSuccess); wc.Recv || wc.HasImm {
			t.Errorf("send %d completed as %+v", i, wc)
		}
	}
	b.a.none(t)
	// An RDMA write takes none.
	w := b.write(50, 0, 0, 8)
	w.HasImm, w.Imm = true, 5
	if n, err := b.a.qp.PostSend([]verbs.SendWR{w}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("write with an immediate: %d, %v", n, err)
	}
}
