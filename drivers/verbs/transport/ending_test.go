package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// TestCloseBesideRecv closes a connection while its program receives: what the farewell
// counts as received is all that the program was given, copied or written.
func TestCloseBesideRecv(t *testing.T) {
	for _, size := range []int{8, 100_000} {
		for range 20 {
			a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
			ca, cb := connect(t, a, b)
			var sends, recvs sync.WaitGroup
			for range 4 {
				sends.Go(func() {
					for ca.Send(context.Background(), make([]byte, size)) == nil {
					}
				})
			}
			var got atomic.Uint64
			for range 2 {
				recvs.Go(func() {
					for buf := make([]byte, size); ; {
						if _, err := cb.Recv(context.Background(), buf); err != nil {
							return
						}
						got.Add(1)
					}
				})
			}
			eventually(t, "some are received", func() bool { return got.Load() >= 3 })
			if err := cb.Close(); err != nil {
				t.Fatal(err)
			}
			recvs.Wait()
			sends.Wait()
			var ce *ConnError
			if err := ca.Close(); !errors.As(err, &ce) || ce.Delivered != got.Load() || ce.Unknown != 0 {
				t.Fatalf("messages of %d bytes: %d received, and the sender hears: %v", size, got.Load(), err)
			}
		}
	}
}

// TestFarewellBeforeBrokenChannel has a peer say farewell and go while this end is about
// to say something: that this cannot be sent is not why the connection ended.
func TestFarewellBeforeBrokenChannel(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	closed := make(chan error, 1)
	a.hook = func(c *Conn, act switchover.Action) {
		if act.Act == switchover.SendPropose {
			closed <- cb.Close()
			if err := c.tcp.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := ca.Send(t.Context(), []byte("dropped")); err != nil {
		t.Fatal(err)
	}
	if err := cb.Send(t.Context(), []byte("last")); err != nil {
		t.Fatal(err)
	}
	order(t, a, 1, 8192, control.Gone)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	buf := make([]byte, 8)
	if n, err := ca.Recv(t.Context(), buf); err != nil || string(buf[:n]) != "last" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := ca.Recv(t.Context(), buf); err != io.EOF {
		t.Errorf("after the last message: %v", err)
	}
	var ce *ConnError
	if err := ca.Close(); !errors.As(err, &ce) || ce.NotDelivered != 1 || ce.Delivered+ce.Unknown != 0 || !errors.Is(err, ErrPeerClosed) {
		t.Errorf("close: %v", err)
	}
}

// TestBrokenChannel has a channel that takes nothing any more and a peer that never says
// farewell: that one is gone.
func TestBrokenChannel(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	a.hook = func(c *Conn, act switchover.Action) {
		if act.Act == switchover.SendPropose {
			if err := c.tcp.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
		}
	}
	order(t, a, 1, 8192, control.Gone)
	for _, c := range []*Conn{ca, cb} {
		if _, err := c.Recv(t.Context(), nil); !errors.Is(err, ErrPeerGone) {
			t.Errorf("%v", err)
		}
	}
}

// TestPostedBeforeDecision has a peer that posts on new lanes and gives the switch up: the
// connection ends, and nothing of it stays.
func TestPostedBeforeDecision(t *testing.T) {
	for name, post := range map[string]func(*lane) error{
		"a marker":  func(l *lane) error { return l.postControl(header{kind: segMarker}) },
		"a message": func(l *lane) error { return l.postMessage(1, make([]byte, 100), tierEager) },
		"an offer":  func(l *lane) error { return l.postOffer(1, 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
			ca, cb := connect(t, a, b)
			a.hook = func(c *Conn, act switchover.Action) {
				if act.Act != switchover.Hold {
					return
				}
				err := state(c, func() error { return post(c.next.lanes[0]) })
				eventually(t, "it has arrived", func() bool {
					b.eng.progress()
					return state(cb, func() bool { return cb.next != nil && cb.next.lanes[0].recvs > 0 })
				})
				err = errors.Join(err, writeControl(c.tcp, &controlMsg{Type: msgAbort, Epoch: act.Epoch, Reason: "on purpose"}))
				if err != nil {
					t.Error(err)
				}
				<-cb.gone
			}
			// Whether the hostile end thinks that it has switched is its own affair.
			if _, err := a.Order(t.Context(), control.Order{ID: "t", Generation: 1, Settings: &control.Settings{Size: bytesPtr(8192)}, Open: true}); err != nil {
				t.Error(err)
			}
			if _, err := cb.Recv(t.Context(), nil); !errors.Is(err, ErrProtocol) {
				t.Errorf("%v", err)
			}
			ca.Close() // the message that was never given to Send makes its counts wrong
			if err := cb.Close(); err != nil {
				t.Error(err)
			}
			b.mem.mu.Lock()
			defer b.mem.mu.Unlock()
			if b.mem.bytes != 0 {
				t.Errorf("%d bytes are still registered", b.mem.bytes)
			}
		})
	}
}

// TestCloseBesideOffers closes a connection whose Sends wait for an answer while the
// places of their offers go to others.
func TestCloseBesideOffers(t *testing.T) {
	for range 20 {
		a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
		ca, cb := connect(t, a, b)
		var sends sync.WaitGroup
		for range maxRendezvous + 2 {
			sends.Go(func() {
				if err := ca.Send(context.Background(), make([]byte, 1<<20)); !errors.Is(err, ErrClosed) {
					t.Errorf("send: %v", err)
				}
			})
		}
		offered(t, cb, maxRendezvous)
		eventually(t, "a Send waits for a place", func() bool { return state(ca, func() bool { return ca.cur.lanes[0].waiting }) })
		if n := ca.FullEvents(); n != 0 {
			t.Errorf("the queue was full %d times, though only places were taken", n)
		}
		var ce *ConnError
		if err := ca.Close(); !errors.As(err, &ce) || ce.Delivered+ce.Unknown != 0 {
			t.Errorf("close: %v", err)
		}
		sends.Wait()
		eventually(t, "the peer hears that all is withdrawn", func() bool {
			_, err := cb.Recv(t.Context(), nil)
			return err == io.EOF
		})
	}
}

// TestSendAfterTheEnd of its context, whatever the size and the tier.
func TestSendAfterTheEnd(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for _, size := range []int{0, 8, 4096, 1 << 20} {
		if err := ca.Send(ctx, make([]byte, size)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	b1, err := a.Register(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.SendBuffer(ctx, b1, 0, 4096); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("from a buffer: %v", err)
	}
	if err := b1.Close(); err != nil {
		t.Errorf("the buffer is not given back: %v", err)
	}
	exchange(t, ca, cb, []byte("first"), make([]byte, 8))
}
