package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// A watching provider counts the messages that its queue pairs send by where the header
// is. An eager message that is sent inline counts as wrong.
type watching struct {
	verbs.Provider
	n *forms
}

type forms struct{ immediate, header, wrong atomic.Int64 }

func (p watching) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return watchingDevice{d, p.n}, err
}

type watchingDevice struct {
	verbs.Device
	n *forms
}

func (d watchingDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return watchingPD{pd, d.n}, err
}

type watchingPD struct {
	verbs.PD
	n *forms
}

func (p watchingPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	q, err := p.PD.CreateQP(a)
	return watchingQP{q, p.n}, err
}

type watchingQP struct {
	verbs.QP
	n *forms
}

func (q watchingQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		w := &wrs[i]
		switch {
		case w.HasImm:
			q.n.immediate.Add(1)
			if w.Inline == (w.Imm>>immTier == uint32(tierEager)) {
				q.n.wrong.Add(1)
			}
		case w.Op == verbs.OpSend && w.Buf[0] == byte(segData):
			q.n.header.Add(1)
			if w.Inline == (w.Buf[2] == byte(tierEager)) {
				q.n.wrong.Add(1)
			}
		}
	}
	return q.QP.PostSend(wrs)
}

// TestForms sends messages over two lanes, ordered or not, and over a switch with some
// unread on the lanes from before, and checks where the header of each is.
func TestForms(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) { countForms(t, ordered) })
	}
}

func countForms(t *testing.T, ordered bool) {
	n := &forms{}
	a := openOn(t, Options{}, watching{soft.Provider{}, n})
	t.Cleanup(func() { a.Close() })
	b := openSoft(t, Options{}, soft.Provider{Shuffle: true})
	settle(t, a, 1, hinted(1024, true, ordered))
	ca, cb := connect(t, a, b)
	buf, sent := make([]byte, 8000), byte(0)
	msg := func(size int) []byte {
		sent++
		return bytes.Repeat([]byte{sent}, size)
	}
	check := func(what string, immediate, header int64) {
		t.Helper()
		if i, h, w := n.immediate.Swap(0), n.header.Swap(0), n.wrong.Swap(0); i != immediate || h != header || w != 0 {
			t.Errorf("%s: %d in immediates, %d with a header, want %d and %d; %d wrong", what, i, h, immediate, header, w)
		}
	}
	many := func(count, size int) {
		t.Helper()
		for range count {
			exchange(t, ca, cb, msg(size), buf)
		}
	}
	many(126, 1)
	many(1, 5000) // 127th on the other lane
	check("as far as it goes", 127, 0)
	many(127, 900)
	many(1, 5000) // 128 after the one before
	check("one too far", 127, 1)
	many(3, 0)
	many(2, 8)
	check("empty ones", 2, 3)
	// Some stay unread while lanes change.
	const unread = 10
	for k := range unread {
		if err := ca.Send(t.Context(), bytes.Repeat([]byte{byte(k)}, k%3*500)); err != nil {
			t.Fatal(err)
		}
	}
	check("unread", 6, 4)
	to := hinted(4096, true, ordered)
	to.DrainTimeoutMS = &slow
	if o := switchTo(t, a, 2, to); len(o) != 1 || o[0].Outcome != control.Switched {
		t.Fatalf("switch: %+v", o)
	}
	for k := range 2 {
		if err := ca.Send(t.Context(), bytes.Repeat([]byte{byte(unread + k)}, 600)); err != nil {
			t.Fatal(err)
		}
	}
	check("after the switch", 1, 1) // the first is far from none
	for k := range unread + 2 {
		size := k % 3 * 500
		if k >= unread {
			size = 600
		}
		if got, err := cb.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:got], bytes.Repeat([]byte{byte(k)}, size)) {
			t.Fatalf("unread message %d: %d bytes of %d, %v", k, got, buf[0], err)
		}
	}
}

// TestCreditsWrap exchanges messages while the counts of credits, serials and
// segments pass the ends of 16 and 32 bits.
func TestCreditsWrap(t *testing.T) {
	for _, start := range []uint32{1<<16 - 40, math.MaxUint32 - 40} {
		a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{}), openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{})
		ca, cb := connect(t, a, b)
		for _, ends := range [][2]*Conn{{ca, cb}, {cb, ca}} {
			ends[0].mu.Lock()
			l := ends[0].cur.lanes[0]
			l.limit, l.sentData = l.limit+start, l.sentData+start
			ends[0].mu.Unlock()
			ends[1].mu.Lock()
			l = ends[1].cur.lanes[0]
			l.ready, l.told = l.ready+start, l.told+start
			ends[1].mu.Unlock()
		}
		buf, msg := make([]byte, 1024), make([]byte, 1024)
		for i := range uint32(300) {
			binary.BigEndian.PutUint32(msg, i)
			exchange(t, ca, cb, msg[:4+i%1000], buf)
			exchange(t, cb, ca, msg[:4+i%7], buf)
		}
		for _, c := range []*Conn{ca, cb} {
			if n := state(c, func() uint32 { return c.cur.lanes[0].limit - start }); n < 300 || n > 300+2*lowLatencyDepth {
				t.Errorf("from %d on: %d credits", start, n)
			}
		}
	}
}
