package raw

import (
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// post sends one message.
func (e *end) post() error {
	w := &e.send[0]
	e.pending++
	w.Signaled = e.pending == e.job.Signal
	if w.Signaled {
		e.pending = 0
		e.signals++
	}
	_, err := e.qp.PostSend(e.send[:1])
	return err
}

// next waits until a message is there. Receives are posted again in halves of the
// queue, so that this costs a crossing into C once in a while.
func (e *end) next() error {
	got := 0
	for {
		n, err := e.cq.Spin(e.wc[:], e.job.Busy)
		if err != nil {
			return err
		}
		e.yield.Step(n == 0)
		for i := range n {
			if e.wc[i].Status != verbs.StatusSuccess {
				return fmt.Errorf("completion: %s", e.wc[i].Status)
			}
			if e.wc[i].Recv {
				got++
			} else {
				e.signals--
			}
		}
		if got == 0 || e.job.Signal == 1 && e.signals > 0 {
			continue
		}
		e.spent += got
		if e.spent >= len(e.recv)/2 {
			if _, err := e.qp.PostRecv(e.recv[:e.spent]); err != nil {
				return err
			}
			e.spent = 0
		}
		return nil
	}
}

// echo answers n messages.
func (e *end) echo(n int) error {
	for range n {
		if err := e.next(); err != nil {
			return err
		}
		if err := e.post(); err != nil {
			return err
		}
	}
	return nil
}

// rounds measures n round trips after some that are not counted.
func (e *end) rounds(warmup, n int) ([]time.Duration, error) {
	out := make([]time.Duration, 0, n)
	for i := range warmup + n {
		start := time.Now()
		if err := e.post(); err != nil {
			return nil, err
		}
		if err := e.next(); err != nil {
			return nil, err
		}
		if i >= warmup {
			out = append(out, time.Since(start))
		}
	}
	return out, nil
}

// drain receives n messages.
func (e *end) drain(n int) error {
	for n > 0 {
		k, err := e.cq.Spin(e.wc[:], e.job.Busy)
		if err != nil {
			return err
		}
		for i := range k {
			if e.wc[i].Status != verbs.StatusSuccess {
				return fmt.Errorf("completion: %s", e.wc[i].Status)
			}
		}
		n -= k
		e.spent += k
		if e.spent >= len(e.recv)/4 {
			if _, err := e.qp.PostRecv(e.recv[:e.spent]); err != nil {
				return err
			}
			e.spent = 0
		}
	}
	return nil
}

// stream sends n messages as fast as the queue takes them, and waits for the last
// completion. A quarter of the queue goes out at a time, its last message signaled.
func (e *end) stream(n int) error {
	depth := len(e.send)
	batch := depth / 4
	for i := range e.send {
		w := &e.send[i]
		if e.job.Write {
			w.Op, w.RemoteAddr, w.RKey = verbs.OpWrite, e.peer.Addr+uint64(i*e.job.Size), e.peer.RKey
		}
	}
	var sizes []int // of the batches that are out
	out := 0
	for n > 0 || out > 0 {
		for n > 0 && out+min(batch, n) <= depth {
			k := min(batch, n)
			for i := range k {
				e.send[i].Signaled = i == k-1
			}
			if _, err := e.qp.PostSend(e.send[:k]); err != nil {
				return err
			}
			sizes = append(sizes, k)
			n -= k
			out += k
		}
		k, err := e.cq.Spin(e.wc[:], e.job.Busy)
		if err != nil {
			return err
		}
		for i := range k {
			if e.wc[i].Status != verbs.StatusSuccess {
				return fmt.Errorf("completion: %s", e.wc[i].Status)
			}
			out -= sizes[i]
		}
		sizes = sizes[k:]
	}
	return nil
}
