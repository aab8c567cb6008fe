package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// state reads something of c that its mutex guards.
func state[T any](c *Conn, f func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// answered waits until c has answered n rendezvous that are not written yet.
func answered(t *testing.T, c *Conn, n int) {
	t.Helper()
	eventually(t, "the rendezvous is answered", func() bool { return state(c, func() int { return c.inOpen }) == n })
}

// offered waits until n offers of the peer have come.
func offered(t *testing.T, c *Conn, n int) {
	t.Helper()
	eventually(t, "the offers arrive", func() bool { return state(c, func() int { return c.offers }) == n })
}

// TestManySendersAndReceivers has as many rendezvous in flight as there are callers.
func TestManySendersAndReceivers(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, p), openSoft(t, Options{}, p)
		ca, cb := connect(t, a, b)
		const size = 500_000
		var wg sync.WaitGroup
		for i := range maxRendezvous {
			wg.Go(func() {
				if err := ca.Send(t.Context(), bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			})
		}
		offered(t, cb, maxRendezvous) // before any is received
		var mu sync.Mutex
		got := map[byte]int{}
		for range maxRendezvous {
			wg.Go(func() {
				buf := make([]byte, size)
				n, err := cb.Recv(t.Context(), buf)
				if err != nil || n != size || !bytes.Equal(buf, bytes.Repeat(buf[:1], size)) {
					t.Errorf("received %d, %v", n, err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[buf[0]]++
			})
		}
		wg.Wait()
		if len(got) != maxRendezvous {
			t.Errorf("received %v", got)
		}
		// Many more callers than that wait for each other.
		load := newLoad(3, 400, 30_000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next := make(chan int)
		for range 20 {
			wg.Go(func() {
				buf := make([]byte, load.most())
				for i := range next {
					if err := ca.Send(ctx, load.fill(buf, i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		seen := make([]bool, len(load.sizes))
		for range 10 {
			wg.Go(func() {
				buf := make([]byte, load.most())
				for range len(load.sizes) / 10 {
					n, err := cb.Recv(ctx, buf)
					if err != nil {
						t.Error(err)
						return
					}
					i, err := load.index(buf[:n])
					mu.Lock()
					if err != nil || seen[i] {
						t.Errorf("message %d again, or %v", i, err)
					} else {
						seen[i] = true
					}
					mu.Unlock()
				}
			})
		}
		for i := range load.sizes {
			next <- i
		}
		close(next)
		wg.Wait()
	})
}

// TestFullReceiver fills a peer that does not receive: the sender blocks, or is told
// so, and no receive is ever missing.
func TestFullReceiver(t *testing.T) {
	for _, size := range []int{8, 4096} {
		a, b := openSoft(t, Options{Hint: bytesPtr(4096)}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
		ca, cb := connect(t, a, b)
		msg := make([]byte, size)
		sent := 0
		// Slots come back as sends complete, credits do not.
		eventually(t, "the credits are used up", func() bool {
			if err := ca.TrySend(msg); err == nil {
				sent++
			} else if !errors.Is(err, ErrWouldBlock) {
				t.Fatal(err)
			}
			return sent == lowLatencyDepth
		})
		eventually(t, "all is complete", func() bool { return ca.Info().Lanes[0].Depth == 0 })
		if err := ca.TrySend(msg); !errors.Is(err, ErrWouldBlock) {
			t.Errorf("one more: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		full := ca.FullEvents()
		go func() { done <- ca.Send(ctx, msg) }()
		eventually(t, "the sender waits", func() bool { return ca.FullEvents() > full })
		full = ca.FullEvents()
		if of := ca.Info().Lanes[0].FullEvents; full == 0 || of != full {
			t.Errorf("%d times full, and %d times on the only lane that there was", full, of)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("blocked and cancelled: %v", err)
		}
		for range sent {
			if n, err := cb.Recv(t.Context(), msg); n != size || err != nil {
				t.Fatal(n, err)
			}
		}
		eventually(t, "there is room again", func() bool { return ca.TrySend(msg) == nil })
		if err := ca.TrySend(make([]byte, 4097)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("above the eager limit: %v", err)
		}
		if n, err := cb.Recv(t.Context(), msg); n != size || err != nil {
			t.Fatal(n, err)
		}
		// The lanes of a connection come and go; what it counts does not.
		full = ca.FullEvents()
		order(t, a, 1, 0, control.Switched)
		if now := ca.FullEvents(); now != full {
			t.Errorf("%d times full before a switch, %d after it", full, now)
		}
	}
}

// TestCancelOffer cancels Sends that no Recv has answered: the peer goes on to the
// next message, also when the answer was on its way.
func TestCancelOffer(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, p), openSoft(t, Options{}, p)
		ca, cb := connect(t, a, b)
		big, buf := make([]byte, 100_000), make([]byte, 100_000)
		for round := range 50 { // far more than can be open at once
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			seq := func() uint64 { return state(ca, func() uint64 { return ca.sentSeq }) }
			before := seq()
			go func() { done <- ca.Send(ctx, big) }()
			if round%2 == 0 {
				offered(t, cb, 1)
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Fatalf("round %d: %v", round, err)
				}
				exchange(t, ca, cb, []byte{byte(round)}, buf)
				continue
			}
			// Cancelled while it is answered: either way the next message comes next.
			recv := make(chan error, 1)
			var n int
			go func() {
				var err error
				n, err = cb.Recv(t.Context(), buf)
				recv <- err
			}()
			eventually(t, "the offer is out", func() bool { return seq() > before })
			cancel()
			err := <-done
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("round %d: %v", round, err)
				}
				if err := ca.Send(t.Context(), []byte{1, 2, 3}); err != nil {
					t.Fatal(err)
				}
			}
			if rerr := <-recv; rerr != nil || err == nil && n != len(big) || err != nil && n != 3 {
				t.Fatalf("round %d: sent %v, received %d, %v", round, err, n, rerr)
			}
		}
		eventually(t, "nothing stays open", func() bool {
			open := func(c *Conn) int { return c.outOpen[0] + c.offers + c.inOpen }
			return state(ca, func() int { return open(ca) })+state(cb, func() int { return open(cb) }) == 0
		})
	})
}

// TestCancelAnswered cancels a Send half way: it ends early and the receiver goes on
// to the next message.
func TestCancelAnswered(t *testing.T) {
	a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	big, buf := make([]byte, 64<<20), make([]byte, 64<<20)
	ctx, cancel := context.WithCancel(t.Context())
	sent, recv := make(chan error, 1), make(chan error, 1)
	go func() { sent <- ca.Send(ctx, big) }()
	offered(t, cb, 1)
	var n int
	go func() {
		var err error
		n, err = cb.Recv(t.Context(), buf)
		recv <- err
	}()
	// The sender's completions stop when it has begun to write.
	begun := func() int { return state(ca, func() int { return ca.out[0].off }) }
	eventually(t, "writing has begun", func() bool { return begun() > 0 })
	a.eng.mu.Lock()
	off := begun()
	if off == 0 || off == len(big) {
		t.Fatalf("%d bytes posted", off)
	}
	cancel()
	eventually(t, "the cancellation is seen", func() bool { return state(ca, func() bool { return ca.out[0].cancelled }) })
	a.eng.mu.Unlock()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled half way: %v", err)
	}
	if err := ca.Send(t.Context(), []byte("next")); err != nil {
		t.Fatal(err)
	}
	if err := <-recv; err != nil || string(buf[:n]) != "next" {
		t.Fatalf("received %d, %v", n, err)
	}
	if i := ca.Info(); i.Sent.Messages != 1 {
		t.Errorf("sent %+v", i.Sent)
	}
}

// TestCancelRecv cancels Recvs: before the answer the message stays for the next one,
// after it the Recv waits for the message, since the peer writes to its memory.
func TestCancelRecv(t *testing.T) {
	a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	buf := make([]byte, 200_000)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cb.Recv(gone, buf); !errors.Is(err, context.Canceled) {
		t.Errorf("nothing there, cancelled: %v", err)
	}
	big := bytes.Repeat([]byte("x"), 200_000)
	sent := make(chan error, 1)
	go func() { sent <- ca.Send(t.Context(), big) }()
	offered(t, cb, 1)
	var se *SizeError
	if _, err := cb.Recv(t.Context(), buf[:5]); !errors.As(err, &se) || se.Size != len(big) || !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("too short: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a.eng.mu.Lock() // the answer is not seen
	recv := make(chan error, 1)
	go func() {
		n, err := cb.Recv(ctx, buf)
		if err == nil && !bytes.Equal(buf[:n], big) {
			err = fmt.Errorf("received %d bytes", n)
		}
		recv <- err
	}()
	answered(t, cb, 1)
	cancel()
	a.eng.mu.Unlock()
	if err := errors.Join(<-recv, <-sent); err != nil {
		t.Errorf("answered, then cancelled: %v", err)
	}
}

// TestCloseWithOffers closes ends while messages wait to be received.
func TestCloseWithOffers(t *testing.T) {
	for _, closer := range []string{"sender", "receiver"} {
		a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
		ca, cb := connect(t, a, b)
		buf := make([]byte, 100)
		exchange(t, ca, cb, []byte("first"), buf)
		const waiting = 3
		sent := make(chan error, waiting)
		for range waiting {
			go func() { sent <- ca.Send(t.Context(), make([]byte, 50_000)) }()
		}
		offered(t, cb, waiting)
		if closer == "sender" {
			if err := ca.Close(); err != nil && !errors.As(err, new(*ConnError)) {
				t.Error(err)
			}
			var err error
			eventually(t, "the offers are gone at the receiver as well", func() bool {
				_, err = cb.Recv(t.Context(), buf)
				return !errors.As(err, new(*SizeError))
			})
			if err != io.EOF {
				t.Errorf("after the sender's close: %v", err)
			}
		} else if err := cb.Close(); err != nil {
			t.Error(err)
		}
		for range waiting {
			var ce *ConnError
			if err := <-sent; !errors.As(err, &ce) || ce.Delivered != 1 || ce.NotDelivered == 0 || ce.Unknown != 0 {
				t.Errorf("%s closed: %v", closer, err)
			}
		}
		var ce *ConnError
		if err := ca.Close(); !errors.As(err, &ce) || ce.NotDelivered != waiting {
			t.Errorf("%s closed: %v", closer, err)
		}
	}
}

// TestCloseWhileReceiving closes the receiving end while the peer writes to its
// memory: Recv returns only when nobody does any more.
func TestCloseWhileReceiving(t *testing.T) {
	a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	sent, recv := make(chan error, 1), make(chan error, 1)
	go func() { sent <- ca.Send(t.Context(), make([]byte, 100_000)) }()
	offered(t, cb, 1)
	a.eng.mu.Lock() // the answer is not seen
	go func() {
		_, err := cb.Recv(t.Context(), make([]byte, 100_000))
		recv <- err
	}()
	answered(t, cb, 1)
	closed := make(chan error, 1)
	go func() { closed <- cb.Close() }()
	if err := <-recv; err == nil {
		t.Error("received")
	}
	select {
	case <-cb.gone:
	default:
		t.Error("Recv returned while the queue pair was there")
	}
	a.eng.mu.Unlock()
	if err := <-sent; !errors.Is(err, ErrPeerClosed) && !errors.Is(err, ErrPeerGone) {
		t.Errorf("send: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
}
