package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// segments returns hs as FuzzSegments reads them.
func segments(hs ...header) []byte {
	var out []byte
	for _, h := range hs {
		b := make([]byte, longHeaderLen)
		h.put(b)
		out = append(out, b...)
	}
	return out
}

// TestLateBallot lets a vote wait for what another lane is to bring, while its switch
// is given up and messages go on.
func TestLateBallot(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{})
	settle(t, a, 1, hinted(1024, true, true))
	_, cb := connect(t, a, a)
	cb.mu.Lock()
	defer cb.mu.Unlock()
	arrive := func(lane int, h header) {
		l := cb.cur.lanes[lane]
		buf := l.recvBuf(0)
		h.serial, h.credits = uint8(l.recvs+1), l.limit
		h.put(buf)
		if err := l.receive(0, &verbs.WC{ByteLen: h.size()}); err != nil {
			t.Fatal(err)
		}
	}
	arrive(0, header{kind: segVote, total: 9, addr: laneCounts([maxLanes]uint32{0, 1})})
	if len(cb.inband) != 0 {
		t.Error("the vote counts before all is here")
	}
	arrive(0, header{kind: segData, seq: 1})
	arrive(1, header{kind: segMarker})
	if len(cb.inband) != 1 || cb.inband[0].Epoch != 9 {
		t.Errorf("in-band events %+v", cb.inband)
	}
	if err := cb.cur.lanes[0].receive(0, &verbs.WC{ByteLen: 3}); !errors.Is(err, ErrProtocol) {
		t.Errorf("3 bytes: %v", err)
	}
}

// A deafQP takes whatever is posted, and completes nothing.
type deafQP struct{ verbs.QP }

func (deafQP) PostSend(wrs []verbs.SendWR) (int, error) { return len(wrs), nil }
func (deafQP) PostRecv(wrs []verbs.RecvWR) (int, error) { return len(wrs), nil }

// deaf is a provider of such queue pairs.
func deaf() verbs.Provider {
	return wrapping{Provider: soft.Provider{}, wrap: func(q verbs.QP) verbs.QP { return deafQP{q} }}
}

// lone returns a connection that follows f, with lanes that lead nowhere and no
// control goroutine.
func lone(t *testing.T, tr *Transport, f *follow) *Conn {
	t.Helper()
	tcp, other := net.Pipe()
	t.Cleanup(func() { tcp.Close(); other.Close() })
	c := tr.newConn(tcp, false, 0)
	lay := layoutFor(f, tr.maxInline)
	s, err := c.newSet(1, *f, &controlMsg{Wants: lay.wants(), Unordered: f.unordered})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range s.lanes {
		l.peer, l.limit = l.granted, uint32(l.granted.Credits)
	}
	c.install(s)
	return c
}

// endLone ends what lone made, waits for its callers and gives back the lanes; nobody
// receives what is left.
func (c *Conn) endLone(t *testing.T, callers *sync.WaitGroup) {
	t.Helper()
	c.failAsync(errors.New("the test is over"))
	close(c.gone)
	callers.Wait()
	c.mu.Lock()
	for _, l := range c.cur.lanes {
		l.fhead = l.ftail
	}
	c.mu.Unlock()
	if err := c.cur.destroy(); err != nil {
		t.Error(err)
	}
}

// FuzzSegments gives one end segments that its peer never sent, in any order, on any
// of two lanes, while it waits to send and to receive. It may end the connection, and
// nothing else.
func FuzzSegments(f *testing.F) {
	f.Add(segments(header{kind: segData, seq: 1}, header{kind: segData, seq: 2}, header{kind: segData, seq: 2}), false)
	f.Add(segments(header{kind: segOffer, seq: 1, total: 100}, header{kind: segFinish, seq: 1}, header{kind: segDrop, seq: 1}), true)
	f.Add(segments(header{kind: segOffer, seq: 1, total: MaxMessage}, header{kind: segDrop, seq: 1}, header{kind: segDrop, seq: 1}), true)
	f.Add(segments(header{kind: segAnswer, seq: 1, rkey: 1, addr: 4096}, header{kind: segAnswer, seq: 1}), false)
	f.Add(segments(header{kind: segGone, seq: 1}), false)
	f.Add(segments(header{kind: segVote, seq: 9, total: 2}, header{kind: segCommit, total: 2, addr: 1 << 32}), true)
	f.Add(segments(header{kind: segCredit, credits: 1 << 30}, header{kind: segMarker}), false)
	f.Add(segments(header{kind: segCredit}, header{kind: segCredit, serial: repeat}, header{kind: segCredit, serial: skip}), false)
	f.Add(slices.Concat(brief(header{tier: tierEager}, 1, 4), segments(header{kind: segData, seq: 3}), brief(header{}, 2, 65), brief(header{serial: repeat}, 9, 1)), false)
	f.Add(slices.Concat(brief(header{}, maxDistance, 1), brief(header{}, 1, 0), brief(header{credits: 3}, 1, 1), brief(header{credits: maxCredits + 1}, 1, 1)), true)
	f.Add(slices.Concat(segments(header{kind: segOffer, seq: 1, total: 100}), brief(header{}, 1, 255), brief(header{}, 0, 1)), false)
	f.Add(slices.Concat(brief(header{}, 1, 1), brief(header{serial: skip}, 1, 1), brief(header{credits: 0xffff}, 1, 1)), false)
	tr, err := openProvider(f.Context(), Options{Device: "soft0"}, deaf())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { tr.Close() })
	size := int64(1024)
	f.Fuzz(func(t *testing.T, in []byte, unordered bool) {
		c := lone(t, tr, &follow{hint: &size, dual: true, unordered: unordered, completion: completionEvent})
		var callers sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		callers.Go(func() { c.Send(ctx, make([]byte, 5000)) })
		callers.Go(func() {
			for buf := make([]byte, 2000); ; {
				if _, err := c.Recv(ctx, buf); err != nil {
					return
				}
			}
		})
		for k := 0; len(in) > 0 && k < 64; k++ {
			n := min(len(in), longHeaderLen)
			switch in[0] {
			case byte(segData):
				n = min(len(in), headerLen)
			case briefly:
				n = min(len(in), brieflyLen)
			}
			c.mu.Lock()
			if c.err == nil {
				c.hear(k, in[:n])
			}
			if c.inOpen < 0 || c.inOpen > len(c.in) || c.offers < 0 || c.offers > 2*maxRendezvous {
				t.Errorf("%d answered, %d offers", c.inOpen, c.offers)
			}
			c.mu.Unlock()
			in = in[n:]
		}
		cancel()
		c.endLone(t, &callers)
	})
}

// Serials that FuzzSegments does not mend: a segment that was here, and one after a gap.
const (
	repeat = 1
	skip   = 2
)

// What begins with briefly is the immediate data of a message and a 16th of its size.
const (
	briefly    = 0x80
	brieflyLen = 6
)

// brief returns h, of a message of size bytes that comes distance after the one before,
// as FuzzSegments reads it.
func brief(h header, distance, size byte) []byte {
	h.seq = uint64(distance)
	imm, _ := h.compact(0)
	return append(binary.BigEndian.AppendUint32([]byte{briefly}, imm), size)
}

// hear makes in arrive as segment k of a test. Sequences are made to lie close to each
// other, so that they meet more often, serials mostly right, and credits count from
// those that were there. Caller holds mu.
func (c *Conn) hear(k int, in []byte) {
	l := c.cur.lanes[k*7%5%2]
	buf := k % l.buffers()
	b := l.recvBuf(buf)[:len(in)]
	copy(b, in)
	mend := func(serial byte) byte {
		switch next := byte(l.recvs + 1); serial {
		case repeat:
			return next - 1
		case skip:
			return next + 1
		default:
			return next
		}
	}
	wc := verbs.WC{ByteLen: len(b)}
	switch {
	case b[0] == briefly && len(b) == brieflyLen:
		binary.BigEndian.PutUint16(b[3:], binary.BigEndian.Uint16(b[3:])+uint16(l.limit))
		b[2] = mend(b[2])
		wc = verbs.WC{Imm: binary.BigEndian.Uint32(b[1:]), HasImm: true, ByteLen: min(int(b[5])*16, l.granted.Segment)}
	case len(b) >= headerLen:
		binary.BigEndian.PutUint32(b[4:], binary.BigEndian.Uint32(b[4:])+l.limit)
		binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])%8)
		b[3] = mend(b[3])
	}
	c.check(l.receive(buf, &wc))
}
