package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// An endpoint is what both ends need for a stream.
type endpoint struct {
	conn    Conn
	codec   *codec
	out, in [][]byte
	moves   *atomic.Uint64
}

// send sends n messages of size bytes, numbered from first on, several at a time, and
// returns the number after the last one.
func (e *endpoint) send(ctx context.Context, first uint64, n int, size int64) (next uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards what follows
	next = first
	left := n
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 || err != nil {
			return 0, false
		}
		left--
		number := next
		next = after(next)
		return number, true
	}
	for _, buf := range e.out[:min(len(e.out), n)] {
		all.Go(func() {
			c := codec{send: e.codec.send} // its scratch is used by one goroutine
			for {
				number, ok := take()
				if !ok {
					return
				}
				c.seal(buf[:size], number)
				if sendErr := e.conn.Send(ctx, buf[:size]); sendErr != nil {
					mu.Lock()
					if err == nil {
						err = fmt.Errorf("send message of %d bytes: %w", size, sendErr)
					}
					mu.Unlock()
					cancel()
					return
				}
				e.moves.Add(1)
			}
		})
	}
	all.Wait()
	return next, err
}

// lossTime is how long messages that were sent before the end of a stream may come
// after it: where small messages overtake large ones, the end does.
const lossTime = 2 * time.Second

// receive receives messages of size bytes into acct, several at a time, until the
// control message that ends the stream is there and want messages are, or nothing
// comes any more. It returns that control message.
func (e *endpoint) receive(ctx context.Context, acct *account, want int, size int64, kind string) (controlMsg, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu   sync.Mutex // guards what follows
		end  *controlMsg
		errs error
		got  int
		late *time.Timer
	)
	settled := func() bool { return end != nil && got >= want }
	var all sync.WaitGroup
	before := acct.sizes[acct.at].Reordered
	for _, buf := range e.in {
		all.Go(func() {
			c := codec{recv: e.codec.recv}
			for {
				n, err := e.conn.Recv(ctx, buf)
				mu.Lock()
				switch {
				case err != nil:
					if end == nil && errs == nil {
						errs = fmt.Errorf("receive: %w", err)
					}
					mu.Unlock()
					cancel()
					return
				case c.isControl(buf[:n]):
					m, err := c.decode(buf[:n], kind)
					if errs = err; err == nil {
						end = &m
						late = time.AfterFunc(lossTime, cancel)
					}
				default:
					expected := acct.next
					mu.Unlock()
					number, ok := c.open(buf[:n], expected)
					mu.Lock()
					got++
					if ok && int64(n) == size {
						acct.receive(number)
					} else {
						acct.sizes[acct.at].Corrupted++
					}
					if late != nil {
						late.Reset(lossTime)
					}
				}
				if e.moves.Add(1); errs != nil || settled() {
					mu.Unlock()
					cancel()
					return
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if late != nil {
		late.Stop()
	}
	if len(e.in) > 1 {
		// Several senders and receivers: the order of the numbers says nothing.
		acct.sizes[acct.at].Reordered = before
	}
	if errs == nil && end == nil {
		errs = errors.New("the stream ended without a word")
	}
	if errs != nil {
		return controlMsg{}, errs
	}
	return *end, nil
}

// A batch of a stream is about as long as batchTime: long beside the round trip that
// ends it, short enough for a timeline.
const (
	batchTime = 50 * time.Millisecond
	maxBatch  = 1 << 20
)

// stream sends the batches of a turn: one of the warm-up's messages, then timed ones.
// sent is told the messages of each timed batch and the time until the peer had them.
func (r *run) stream(t turn, sent func(n int, took time.Duration, now time.Time)) error {
	defer t.done()
	r.acct.at = t.index
	if t.warmup > 0 {
		if _, err := r.batch(t.index, t.warmup); err != nil || r.stopping.Load() {
			return err
		}
	}
	n := max(2*len(r.out), 32)
	for left := t.count; !r.stopping.Load(); {
		if t.count > 0 {
			n = min(n, left)
		}
		took, err := r.batch(t.index, n)
		if err != nil {
			return err
		}
		now := time.Now()
		sent(n, took, now)
		left -= n
		if t.count > 0 && left <= 0 || t.count == 0 && !now.Before(t.until) {
			return nil
		}
		grow := min(float64(batchTime)/float64(max(took, 1)), 8)
		n = min(max(int(float64(n)*grow), len(r.out)), maxBatch)
	}
	return nil
}

// batch sends n messages, and receives n where the stream goes both ways, and waits
// until both ends have theirs.
func (r *run) batch(index, n int) (took time.Duration, err error) {
	back := 0
	if r.o.Mode == BothWays {
		back = n
	}
	size := r.o.Sizes[index]
	err = r.sendControl(controlMsg{Kind: kindBlock, Mode: r.o.Mode, Index: index, Next: r.next, Count: n, Back: back})
	if err != nil {
		return 0, err
	}
	e := endpoint{conn: r.conn, codec: &r.codec, out: r.out, in: r.in, moves: r.moves}
	if back == 0 {
		e.in = e.in[:1]
	}
	start := time.Now()
	sent := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	go func() {
		next, err := e.send(ctx, r.next, n, size)
		r.sent[index] += uint64(n + back)
		r.next = next
		if err == nil {
			err = r.sendControl(controlMsg{Kind: kindSync, Next: r.next})
		}
		if err != nil {
			cancel(err) // the end will not come
		}
		sent <- err
	}()
	m, err := e.receive(ctx, r.acct, back, size, kindSynced)
	took = time.Since(start)
	if sendErr := <-sent; sendErr != nil {
		return took, sendErr
	}
	if err != nil {
		return took, err
	}
	r.acct.skipTo(m.Next)
	return max(took, 1), nil
}
