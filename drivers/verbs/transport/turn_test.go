package transport

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurnInOrder: who waits gets the turn in order of coming, but for those that gave up.
func TestTurnInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{}
		turn := turn{pass: make(chan struct{}, 1)}
		c.mu.Lock()
		if err := c.takeTurn(t.Context(), &turn); err != nil {
			t.Fatal(err)
		}
		c.mu.Unlock()
		var got []int
		var wg sync.WaitGroup
		cancels := make([]context.CancelFunc, 6)
		for i := range cancels {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			wg.Go(func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if err := c.takeTurn(ctx, &turn); err != nil {
					return
				}
				got = append(got, i)
				turn.release()
			})
			synctest.Wait()
		}
		cancels[0]()
		cancels[3]()
		synctest.Wait()
		c.mu.Lock()
		if turn.waiting != 4 {
			t.Errorf("%d wait, want 4", turn.waiting)
		}
		turn.release()
		c.mu.Unlock()
		wg.Wait()
		if want := []int{1, 2, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		if turn.taken || turn.waiting != 0 {
			t.Errorf("left: %+v", turn)
		}
	})
}

// TestTurnGivenUp has many goroutines take the turn for a moment or give up waiting, just
// when it comes to them as well.
func TestTurnGivenUp(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			c := &Conn{}
			turn := turn{pass: make(chan struct{}, 1)}
			inside := 0
			var wg sync.WaitGroup
			for i := range 20 {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(6))*time.Microsecond)
						c.mu.Lock()
						if err := c.takeTurn(ctx, &turn); err == nil {
							if inside++; inside != 1 {
								t.Errorf("%d have the turn", inside)
							}
							c.mu.Unlock()
							time.Sleep(time.Duration(r.IntN(3)) * time.Microsecond)
							c.mu.Lock()
							inside--
							turn.release()
						}
						c.mu.Unlock()
						cancel()
					}
				})
			}
			wg.Wait()
			if turn.taken || turn.waiting != 0 || len(turn.pass) != 0 {
				t.Errorf("seed %d: left: %+v", seed, turn)
			}
		})
	}
}

// TestBell: no ring after a look at what is waited for is slept over, whatever was rung
// before.
func TestBell(t *testing.T) {
	b := newBell()
	for _, before := range []int{0, 1, 3} {
		for range before {
			b.ring()
		}
		heard := b.heard()
		if !b.quiet(heard) || len(b.asleep) != 0 {
			t.Errorf("after %d rings that were heard it is not quiet", before)
		}
		b.ring() // while asleep
		if len(b.asleep) != 1 || b.heard() == heard {
			t.Error("a ring does not wake")
		}
		if b.quiet(heard) {
			t.Error("a ring is not seen before the sleep")
		}
	}
}
