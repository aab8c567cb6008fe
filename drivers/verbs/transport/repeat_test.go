package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// A repeatingQP delivers some segments twice, and empty ones between them, as soft RoCE can
// when it sends again what has arrived.
type repeatingQP struct {
	verbs.QP
	n *atomic.Int64 // segments repeated

	mu  sync.Mutex
	rng *rand.Rand // guarded by mu
}

// PostSend posts what goes out twice before the request itself, and unsignaled: by the
// time that one completes, neither needs its memory.
func (q *repeatingQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range wrs {
		batch := []verbs.SendWR{w}
		if w.Op == verbs.OpSend && q.rng.IntN(8) == 0 {
			again := w
			again.Signaled = false
			batch = []verbs.SendWR{again, w}
			if q.rng.IntN(4) == 0 {
				// Empty, as it is with soft RoCE, with the immediate that it had.
				batch = []verbs.SendWR{again, {ID: w.ID, Buf: w.Buf[:0], Inline: true, Imm: w.Imm, HasImm: w.HasImm}, w}
			}
			q.n.Add(1)
		}
		if _, err := q.QP.PostSend(batch); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// move sends l from one end to the other by several callers of each, in any order, and
// checks that each message comes once.
func (l load) move(ctx context.Context, from, to *Conn, callers int) error {
	var all sync.WaitGroup
	var sent, received atomic.Int64
	var mu sync.Mutex
	seen := make([]bool, len(l.sizes)) // guarded by mu
	errs := make(chan error, 2*callers)
	n := int64(len(l.sizes))
	for range callers {
		all.Go(func() {
			buf := make([]byte, l.most())
			for i := sent.Add(1); i <= n; i = sent.Add(1) {
				if err := from.Send(ctx, l.fill(buf, int(i-1))); err != nil {
					errs <- fmt.Errorf("send %d: %w", i-1, err)
					return
				}
			}
		})
		all.Go(func() {
			buf := make([]byte, l.most())
			for received.Add(1) <= n {
				size, err := to.Recv(ctx, buf)
				if err != nil {
					errs <- fmt.Errorf("receive: %w", err)
					return
				}
				i, err := l.index(buf[:size])
				mu.Lock()
				if err == nil && seen[i] {
					err = fmt.Errorf("message %d came twice", i)
				}
				if err == nil {
					seen[i] = true
				}
				mu.Unlock()
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// TestRepeatedSegments moves messages of all tiers both ways over devices that deliver
// segments twice, with and without switches.
func TestRepeatedSegments(t *testing.T) {
	for _, callers := range []int{1, 6} {
		for _, switches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d callers, switches %v", callers, switches), func(t *testing.T) {
				repeatSegments(t, callers, switches)
			})
		}
	}
}

func repeatSegments(t *testing.T, callers int, switches bool) {
	var repeated atomic.Int64
	open := func(seed uint64) *Transport {
		tr := openOn(t, Options{}, wrapping{soft.Provider{Shuffle: true}, func(q verbs.QP) verbs.QP {
			return &repeatingQP{QP: q, n: &repeated, rng: rand.New(rand.NewPCG(seed, uint64(q.Num())))}
		}, 3})
		t.Cleanup(func() { tr.Close() })
		return tr
	}
	a, b := open(1), open(2)
	dual := hinted(4096, true, false)
	settle(t, a, 1, dual)
	settle(t, b, 1, dual)
	ca, cb := connect(t, a, b)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var flows sync.WaitGroup
	var left atomic.Int32
	for i, ends := range [][2]*Conn{{ca, cb}, {cb, ca}} {
		l := newLoad(uint64(i), 1500, 70_000)
		for k := range l.sizes {
			if k%2 == 0 {
				l.sizes[k] = 4000 + k%200 // about the hint
			}
		}
		left.Add(1)
		flows.Go(func() {
			defer left.Add(-1)
			if err := l.move(ctx, ends[0], ends[1], callers); err != nil {
				t.Errorf("flow %d: %v", i, err)
				cancel()
			}
		})
	}
	to := []control.Settings{hinted(2048, true, false), hinted(0, false, true), hinted(8192, false, true), dual}
	for gen := uint64(2); switches && left.Load() > 0 && ctx.Err() == nil; gen++ {
		s := to[gen%uint64(len(to))]
		s.DrainTimeoutMS = &slow
		if _, err := a.Order(ctx, control.Order{ID: "t", Generation: gen, Workload: "w", Settings: &s, Open: true}); err != nil {
			t.Error(err)
			break
		}
	}
	flows.Wait()
	if repeated.Load() == 0 {
		t.Error("nothing was repeated")
	}
	if !switches && state(cb, func() uint64 { return cb.cur.lanes[0].repeats + cb.cur.lanes[1].repeats }) == 0 {
		t.Error("no repeated segment arrived")
	}
}
