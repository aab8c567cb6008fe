package transport

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// TestImmediateLayout pins the bits on the wire, and what does not fit into them.
func TestImmediateLayout(t *testing.T) {
	h := header{kind: segData, tier: tierEager, serial: 7, credits: 0x01020304, seq: 1<<40 + 5}
	if imm, ok := h.compact(1 << 40); imm != 0x85070304 || !ok {
		t.Errorf("%#08x, %v", imm, ok)
	}
	for last, fits := range map[uint64]bool{h.seq - 1: true, h.seq - 127: true, h.seq - 128: false, h.seq: false, h.seq + 1: false, 0: false} {
		if imm, ok := h.compact(last); ok != fits {
			t.Errorf("message %d after %d: %#08x, %v", h.seq, last, imm, ok)
		}
	}
	// The upper half of the credits is the receiver's.
	for _, c := range []struct{ limit, credits uint32 }{
		{16, 16}, {16, 20}, {1<<16 - 4, 1<<16 + 12}, {math.MaxUint32 - 3, 9}, {5 << 16, 5<<16 + maxCredits},
	} {
		h := header{kind: segData, serial: 200, credits: c.credits, seq: 70}
		imm, _ := h.compact(3)
		h.immediate = true
		var got header
		if ok := got.expand(imm, 3, c.limit); got != h || !ok {
			t.Errorf("%d credits, known %d: read as %+v, %v", c.credits, c.limit, got, ok)
		}
	}
	for imm, last := range map[uint32]uint64{0: 0, 0x80ffffff: 9, 0x00070010: 9, 0x01070010: math.MaxUint64, 0x7f070010: math.MaxUint64 - 5} {
		var h header
		if h.expand(imm, last, 16) {
			t.Errorf("%#08x after message %d: accepted as %+v", imm, last, h)
		}
	}
}

func FuzzImmediate(f *testing.F) {
	f.Add(uint32(0x85070304), uint64(1<<40), uint32(0x01020300))
	f.Add(uint32(0x7f00ffff), uint64(math.MaxUint64-126), uint32(math.MaxUint32))
	f.Add(uint32(0), uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, imm uint32, last uint64, limit uint32) {
		var h header
		if !h.expand(imm, last, limit) {
			if imm>>immDistance&maxDistance != 0 && last < math.MaxUint64-maxDistance {
				t.Fatalf("%#08x after %d is refused", imm, last)
			}
			return
		}
		if h.seq <= last || h.seq-last > maxDistance || h.credits-limit > math.MaxUint16 || h.tier > tierEager || h.size() != headerLen {
			t.Fatalf("%#08x after %d with limit %d is accepted as %+v", imm, last, limit, h)
		}
		if again, ok := h.compact(last); again != imm || !ok {
			t.Fatalf("%#08x reads as %+v, which is %#08x, %v", imm, h, again, ok)
		}
	})
}

// ears are the lanes of a connection that is told what arrives.
func ears(t *testing.T, f *follow) *Conn {
	t.Helper()
	tr := openOn(t, Options{}, deaf())
	c := lone(t, tr, f)
	t.Cleanup(func() {
		c.endLone(t, &sync.WaitGroup{})
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// carry lets what from posted last arrive at to, in buffer buf.
func carry(from, to *lane, buf int) error {
	w := &from.batch[0]
	return to.receive(buf, &verbs.WC{ByteLen: copy(to.recvBuf(buf), w.Buf), Imm: w.Imm, HasImm: w.HasImm})
}

// TestBothEndsCount posts messages and offers at all distances and sizes, with credits
// that wrap, and checks what the other end makes of them, and which have a header.
func TestBothEndsCount(t *testing.T) {
	size := int64(1024)
	f := &follow{hint: &size, completion: completionEvent}
	from, to := ears(t, f), ears(t, f)
	from.mu.Lock()
	defer from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	out, in := from.cur.lanes[0], to.cur.lanes[0]
	out.ready, in.limit = math.MaxUint32-5000, math.MaxUint32-5000
	seq, withHeader := uint64(0), 0
	for i, d := range []uint64{1, 1, 126, 127, 128, 1, 129, 1 << 40, 5, 127, 128} {
		for _, n := range []int{1, 1024, 0, 700, -1} {
			seq += d
			out.ready += uint32(i * n / 3 & 0xfff)
			var err error
			switch {
			case n < 0:
				err = out.postOffer(seq, 5000)
			default:
				err = out.postMessage(seq, bytes.Repeat([]byte{byte(seq)}, n), out.tier(n))
			}
			if err != nil {
				t.Fatal(err)
			}
			w := &out.batch[0]
			long := d > 127 || n <= 0
			if w.HasImm == long || len(w.Buf) != max(n, 0)+map[bool]int{true: headerLen}[long]+map[bool]int{true: headerLen}[n < 0] {
				t.Errorf("message %d of %d bytes, %d after the one before: %d bytes, immediate %v", seq, n, d, len(w.Buf), w.HasImm)
			}
			if w.Inline != (max(n, headerLen)+headerLen <= out.inline) {
				t.Errorf("message of %d bytes inline: %v, granted %d", n, w.Inline, out.inline)
			}
			if long {
				withHeader++
			}
			if err := carry(out, in, 0); err != nil {
				t.Fatal(err)
			}
			a := &in.fifo[in.fhead%uint64(len(in.fifo))]
			in.fhead++
			if a.seq != seq || in.arrivedSeq != seq || in.limit != out.ready || in.recvs != out.sends {
				t.Fatalf("message %d with %d credits arrived as %+v", seq, out.ready, a)
			}
			if n < 0 {
				to.offers--
				continue
			}
			if a.tier != out.tier(n) || !bytes.Equal(in.recvBuf(0)[a.at():][:a.len], bytes.Repeat([]byte{byte(seq)}, n)) {
				t.Errorf("message %d of %d bytes arrived as %+v", seq, n, a)
			}
			out.dataFreed, out.completed = out.dataPosted, out.posted
		}
	}
	if withHeader == 0 || in.limit > math.MaxUint32/2 {
		t.Errorf("%d messages with a header, %d credits", withHeader, in.limit)
	}
}

// TestHostileImmediates gives an end that knows of message 5 and 16 credits immediates
// that make no sense.
func TestHostileImmediates(t *testing.T) {
	size := int64(1024)
	good := header{serial: 1, credits: 16, seq: 6}
	with := func(change func(*header)) uint32 {
		h := good
		change(&h)
		imm, _ := h.compact(5)
		return imm
	}
	plain := with(func(*header) {})
	// Credits are as strictly looked at in a header.
	fallen := ears(t, &follow{hint: &size, completion: completionEvent})
	fallen.mu.Lock()
	l := fallen.cur.lanes[0]
	h := header{kind: segCredit, serial: 1, credits: l.limit - 1}
	h.put(l.recvBuf(0))
	if err := l.receive(0, &verbs.WC{ByteLen: h.size()}); !errors.Is(err, ErrProtocol) {
		t.Errorf("credits fall in a header: %v", err)
	}
	fallen.mu.Unlock()
	for _, c := range []struct {
		name  string
		imm   uint32
		n     int
		spoil func(*lane)
		ok    bool
	}{
		{"the good one", plain, 1, nil, true},
		{"of the full size", plain, 1024, nil, true},
		{"a byte more", plain, 1025, nil, false},
		{"all of the buffer", plain, 1024 + headerLen, nil, false},
		{"no distance", plain &^ (maxDistance << immDistance), 1, nil, false},
		{"beyond the last sequence", plain, 1, func(l *lane) { l.arrivedSeq = math.MaxUint64 }, false},
		{"credits fall", with(func(h *header) { h.credits = 15 }), 1, nil, false},
		{"most credits", with(func(h *header) { h.credits = 16 + maxCredits }), 1, nil, true},
		{"more than that", with(func(h *header) { h.credits = 17 + maxCredits }), 1, nil, false},
		{"a gap", with(func(h *header) { h.serial = 2 }), 1, nil, false},
		{"a gap of half a round", with(func(h *header) { h.serial = 128 }), 1, nil, false},
		{"here before", with(func(h *header) { h.serial = 0 }), 1, nil, true},
		{"without credit", plain, 1, func(l *lane) { l.ftail = l.fhead + uint64(len(l.fifo)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := ears(t, &follow{hint: &size, completion: completionEvent})
			to.mu.Lock()
			defer to.mu.Unlock()
			l := to.cur.lanes[0]
			if l.granted.Segment != 1024+headerLen {
				t.Fatalf("segments of %d bytes", l.granted.Segment)
			}
			l.arrivedSeq, l.limit = 5, 16
			if c.spoil != nil {
				c.spoil(l)
			}
			err := l.receive(0, &verbs.WC{ByteLen: c.n, Imm: c.imm, HasImm: true})
			if c.ok != (err == nil) || err != nil && !errors.Is(err, ErrProtocol) {
				t.Errorf("%#08x with %d bytes: %v", c.imm, c.n, err)
			}
		})
	}
}

// TestRepeatedImmediate delivers segments again as soft RoCE does (see lane.repeated):
// whole, with a serial, a distance and credits of old, or what is left after some of its
// packets, which may be nothing, with the same immediate.
func TestRepeatedImmediate(t *testing.T) {
	size := int64(1024)
	f := &follow{hint: &size, completion: completionEvent}
	from, to := ears(t, f), ears(t, f)
	from.mu.Lock()
	defer from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	out, in := from.cur.lanes[0], to.cur.lanes[0]
	var old []verbs.SendWR
	for seq := uint64(1); seq <= 5; seq++ {
		out.ready += uint32(seq)
		if err := out.postMessage(seq*3, bytes.Repeat([]byte{byte(seq)}, 9), tierInline); err != nil {
			t.Fatal(err)
		}
		w := out.batch[0]
		w.Buf = bytes.Clone(w.Buf)
		old = append(old, w)
		if err := carry(out, in, int(seq)); err != nil {
			t.Fatal(err)
		}
	}
	type lasts struct {
		seq, tail     uint64
		limit, recvs  uint32
		posted, freed int
	}
	now := func() lasts {
		return lasts{in.arrivedSeq, in.ftail, in.limit, in.recvs, len(in.spare), len(in.free)}
	}
	before := now()
	for i, w := range old {
		for _, n := range []int{9, 1, 0} {
			wc := verbs.WC{ByteLen: n, Imm: w.Imm, HasImm: true}
			copy(in.recvBuf(6), w.Buf[:n])
			if err := in.receive(6, &wc); err != nil {
				t.Errorf("segment %d again, %d bytes: %v", i, n, err)
			}
		}
	}
	// An empty one is none, whatever its immediate says.
	imm := uint32(1)<<immDistance | uint32(uint8(in.recvs+1))<<immSerial | in.limit&0xffff
	if err := in.receive(6, &verbs.WC{Imm: imm, HasImm: true}); err != nil {
		t.Error(err)
	}
	if after := now(); after != before || in.repeats != 16 {
		t.Errorf("%d segments are new to the receiver: %+v, then %+v", 16-in.repeats, before, after)
	}
	if err := errors.Join(out.postMessage(16, []byte("next"), tierInline), carry(out, in, 6)); err != nil || in.arrivedSeq != 16 {
		t.Errorf("after that: message %d, %v", in.arrivedSeq, err)
	}
}
