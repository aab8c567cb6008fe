package soft

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

func FuzzFrame(f *testing.F) {
	for _, fr := range []frame{{frameData, flagSolicited, 7, 1000}, {frameAck, 0, 1 << 31, 0}, {frameInvalid, 0, 3, 0}} {
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
		if fr.length > maxMsg || again != b {
			t.Fatalf("%x reads as %+v, which is %x", b, fr, again)
		}
	})
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
	q := &cq{ring: make([]verbs.WC, 3)}
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
}

func TestShuffleKeepsOrderPerQueuePair(t *testing.T) {
	q := &cq{ring: make([]verbs.WC, 1023), shuffle: true}
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
	q := &cq{ring: make([]verbs.WC, 7), ch: ch}
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
