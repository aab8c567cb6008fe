package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

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
		h.serial = uint8(l.recvs + 1)
		h.put(buf)
		if err := l.receive(0, h.size()); err != nil {
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
	if err := cb.cur.lanes[0].receive(0, 3); !errors.Is(err, ErrProtocol) {
		t.Errorf("3 bytes: %v", err)
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
	f.Fuzz(func(t *testing.T, in []byte, unordered bool) {
		a := openSoft(t, Options{}, soft.Provider{})
		settle(t, a, 1, hinted(1024, true, !unordered))
		ca, cb := connect(t, a, a)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 3)
		go func() { done <- cb.Send(ctx, make([]byte, 5000)) }()
		go func() {
			for {
				if _, err := cb.Recv(ctx, make([]byte, 2000)); err != nil && !errors.As(err, new(*SizeError)) || ctx.Err() != nil {
					done <- err
					return
				}
			}
		}()
		cb.mu.Lock()
		for k := 0; len(in) > 0 && k < 64 && cb.err == nil; k++ {
			n := min(len(in), longHeaderLen)
			if in[0] == byte(segData) {
				n = min(len(in), headerLen)
			}
			l := cb.cur.lanes[k*7%5%2]
			buf := l.recvBuf(k % l.buffers())
			if len(in) >= headerLen { // sequences close to each other meet more often
				seq := binary.BigEndian.Uint64(in[8:])
				in = bytes.Clone(in)
				binary.BigEndian.PutUint64(in[8:], seq%8)
			}
			copy(buf, in[:n])
			cb.check(l.receive(k%l.buffers(), n))
			in = in[n:]
			if cb.inOpen < 0 || cb.inOpen > len(cb.in) || cb.offers > 2*maxRendezvous {
				t.Errorf("%d answered, %d offers", cb.inOpen, cb.offers)
			}
		}
		cb.mu.Unlock()
		cancel()
		<-done
		cb.failAsync(errors.New("the test is over"))
		<-done
		ca.Close()
		cb.Close()
	})
}
