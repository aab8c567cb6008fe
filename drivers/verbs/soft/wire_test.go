package soft

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

func FuzzFrame(f *testing.F) {
	for _, fr := range []frame{
		{frameData, flagSolicited, 7, 1000, 0}, {frameData, flagImmediate, 7, 0, 1 << 31}, {frameData, flagSolicited | flagImmediate, 8, 5, 0},
		{frameAck, 0, 1 << 31, 0, 0}, {frameInvalid, 0, 3, 0, 0}, {frameWrite, 0, 9, maxMsg, 0}, {frameAccess, 0, 1, 0, 0},
		// These are refused.
		{frameData, 0, 7, 1000, 5}, {frameWrite, flagImmediate, 9, 8, 5}, {frameAck, flagImmediate, 3, 0, 5},
	} {
		var b [frameLen]byte
		fr.put(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) != frameLen {
			return
		}
		b := [frameLen]byte(in)
		fr, ok := parseFrame(&b)
		if !ok {
			return
		}
		var again [frameLen]byte
		fr.put(&again)
		if fr.length > maxMsg || again != b || fr.flags&flagImmediate != 0 && fr.kind != frameData || fr.flags&flagImmediate == 0 && fr.imm != 0 {
			t.Fatalf("%x reads as %+v, which is %x", b, fr, again)
		}
	})
}

func FuzzRemoteWrite(f *testing.F) {
	f.Add(make([]byte, remoteWriteLen))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) != remoteWriteLen {
			return
		}
		b := [remoteWriteLen]byte(in)
		var again [remoteWriteLen]byte
		parseRemoteWrite(&b).put(&again)
		if again != b {
			t.Fatalf("%x reads as %+v", b, parseRemoteWrite(&b))
		}
	})
}

// arenaAt is where the region of a receiver starts in its arena, arenaKey its key.
const (
	arenaAt  = 1000
	arenaKey = 7
)

// newReceiver is a queue pair with two receives of 32 bytes in a region of 64 that
// peers may write to, which lies in an arena that is to stay clean.
func newReceiver() (q *qp, arena []byte) {
	arena = make([]byte, 4096)
	d := &device{name: "soft0", events: verbs.NewEventQueue()}
	p := &pd{dev: d, mrs: map[uint32]*mr{}}
	m := &mr{pd: p, key: arenaKey, buf: arena[arenaAt : arenaAt+64], access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}
	p.mrs[arenaKey] = m
	cq := &cq{dev: d, ring: make([]verbs.WC, 7)}
	q = &qp{
		dev: d, pd: p, num: 5, sendCQ: cq, recvCQ: cq, state: verbs.QPRTS,
		failed: make(chan struct{}), reaped: make(chan struct{}),
		rq: []verbs.RecvWR{{ID: 1, Buf: m.buf[:32], LKey: arenaKey}, {ID: 2, Buf: m.buf[32:], LKey: arenaKey}}, rtail: 2,
	}
	q.sendCond.L, q.recvCond.L = &q.mu, &q.mu
	return q, arena
}

// hear lets a peer say in, hang up, and waits until the queue pair has failed.
func (q *qp) hear(in []byte) {
	here, there := net.Pipe()
	q.in = here
	q.workers.Go(func() { q.read(here) })
	go io.Copy(io.Discard, there) // acknowledgements
	there.SetWriteDeadline(time.Now().Add(10 * time.Second))
	there.Write(in) // the reader may hang up in the middle
	there.Close()
	q.workers.Wait()
	q.Fail()
	<-q.reaped
}

func (f frame) bytes() []byte {
	var b [frameLen]byte
	f.put(&b)
	return b[:]
}

func (w remoteWrite) bytes() []byte {
	var b [remoteWriteLen]byte
	w.put(&b)
	return b[:]
}

// FuzzStream lets a peer say anything on a data connection: it may fill what was
// posted and write where it may, and nothing else.
func FuzzStream(f *testing.F) {
	// Addresses in the corpus count from the region's start; the test adds it.
	write := func(n uint32, to remoteWrite, data int) []byte {
		return slices.Concat(frame{frameWrite, 0, 0, n, 0}.bytes(), to.bytes(), bytes.Repeat([]byte{1}, data))
	}
	f.Add(slices.Concat(frame{frameData, 0, 0, 4, 0}.bytes(), []byte("abcd"), frame{frameData, 1, 1, 0, 0}.bytes()))
	f.Add(slices.Concat(frame{frameData, flagImmediate, 0, 4, 9}.bytes(), []byte("abcd"), frame{frameData, 0, 1, 0, 9}.bytes()))
	f.Add(slices.Concat(write(4, remoteWrite{0, arenaKey}, 4), frame{frameWrite, 0, 1, 0, 0}.bytes(), remoteWrite{5, 5}.bytes()))
	f.Add(write(64, remoteWrite{0, arenaKey}, 64))
	f.Add(write(65, remoteWrite{0, arenaKey}, 65))
	f.Add(write(4, remoteWrite{1<<64 - 2, arenaKey}, 4))
	f.Add(slices.Concat(frame{frameData, 0, 0, 100, 0}.bytes(), make([]byte, 100)))
	f.Fuzz(func(t *testing.T, in []byte) {
		q, arena := newReceiver()
		// The first write's address becomes one near the region.
		if len(in) >= frameLen+8 && in[0] == frameWrite {
			in = bytes.Clone(in)
			addr := binary.BigEndian.Uint64(in[frameLen:])
			binary.BigEndian.PutUint64(in[frameLen:], addr+address(arena)+arenaAt)
		}
		q.hear(in)
		for i, b := range arena {
			if b != 0 && (i < arenaAt || i >= arenaAt+64) {
				t.Fatalf("byte %d was written, the region is %d to %d", i, arenaAt, arenaAt+64)
			}
		}
	})
}

// TestAccessEvent: the device says that a peer wrote where it may not.
func TestAccessEvent(t *testing.T) {
	q, arena := newReceiver()
	to := address(arena) + arenaAt
	q.hear(slices.Concat(
		frame{frameWrite, 0, 0, 4, 0}.bytes(), remoteWrite{to + 60, arenaKey}.bytes(), []byte("good"),
		frame{frameWrite, 0, 1, 4, 0}.bytes(), remoteWrite{to + 61, arenaKey}.bytes(), []byte("evil")))
	if !bytes.Equal(arena[arenaAt+60:arenaAt+64], []byte("good")) || bytes.Contains(arena, []byte("evil")) {
		t.Errorf("the region ends with %q", arena[arenaAt+56:arenaAt+68])
	}
	select {
	case e := <-q.dev.events:
		if e != (verbs.Event{Kind: verbs.EventQPAccess, QPN: q.num}) {
			t.Errorf("event: %s", e)
		}
	default:
		t.Error("no event")
	}
}

func FuzzGreeting(f *testing.F) {
	f.Add(greeting{dst: 1, src: 1<<24 - 1, psn: 5}.encode())
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, ok := decodeGreeting(b); ok && !bytes.Equal(g.encode(), b) {
			t.Fatalf("%x reads as %+v", b, g)
		}
	})
}

func TestOverflow(t *testing.T) {
	q := &cq{dev: &device{events: verbs.NewEventQueue()}, ring: make([]verbs.WC, 3)}
	for i := range 4 {
		if ok := q.push(verbs.WC{ID: uint64(i)}, false); ok != (i < 3) {
			t.Errorf("push %d: %v", i, ok)
		}
	}
	var wc [8]verbs.WC
	if n, err := q.Poll(wc[:]); n != 3 || err != nil {
		t.Errorf("poll: %d, %v", n, err)
	}
	if n, err := q.Poll(wc[:]); n != 0 || err == nil {
		t.Errorf("poll after the overflow: %d, %v", n, err)
	}
	if q.push(verbs.WC{}, false) {
		t.Error("a queue that overflowed took a completion")
	}
	if n := len(q.dev.events); n != 1 {
		t.Errorf("%d events of one overflow", n)
	}
}

func TestShuffleKeepsOrderPerQueuePair(t *testing.T) {
	q := &cq{dev: &device{mode: Provider{Shuffle: true}}, ring: make([]verbs.WC, 1023)}
	for i := range 1000 {
		if !q.push(verbs.WC{ID: uint64(i), QPN: uint32(i % 3)}, false) {
			t.Fatal("overflow")
		}
	}
	wc := make([]verbs.WC, 1000)
	if n, err := q.Poll(wc); n != 1000 || err != nil {
		t.Fatal(n, err)
	}
	last, mixed := map[uint32]uint64{}, false
	for i, w := range wc {
		if prev, seen := last[w.QPN]; seen && w.ID <= prev {
			t.Fatalf("%d after %d on one queue pair", w.ID, prev)
		}
		last[w.QPN] = w.ID
		mixed = mixed || w.ID != uint64(i)
	}
	if !mixed {
		t.Error("nothing was shuffled")
	}
}

func TestModeration(t *testing.T) {
	ch := &compChannel{wake: make(chan struct{}, 1), done: make(chan struct{})}
	q := &cq{dev: &device{events: verbs.NewEventQueue()}, ring: make([]verbs.WC, 7), ch: ch}
	event := func() bool {
		select {
		case <-ch.wake:
			return true
		default:
			return false
		}
	}
	if err := q.Moderate(3, 60_000); err != nil {
		t.Fatal(err)
	}
	q.ReqNotify(false)
	for i := range 3 {
		if event() {
			t.Fatalf("event after %d completions", i)
		}
		q.push(verbs.WC{}, false)
	}
	if !event() {
		t.Error("no event after 3 completions")
	}
	if err := q.Moderate(100, 1000); err != nil {
		t.Fatal(err)
	}
	q.ReqNotify(false)
	q.push(verbs.WC{}, false)
	select {
	case <-ch.wake: // by time
	case <-time.After(30 * time.Second):
		t.Error("no event after the period")
	}
	if err := q.Moderate(-1, 0); err == nil {
		t.Error("a negative count was taken")
	}
}
