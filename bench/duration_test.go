package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDurationSharesTime runs in fake time, where only the fault's sleep takes any: a
// size that takes a hundred times as long must not take the others' time.
func TestDurationSharesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, sv := newPipe()
		cl.fault = func(_ int, msg []byte) [][]byte {
			if len(msg) == 65_536 {
				time.Sleep(10 * time.Millisecond)
			} else {
				time.Sleep(100 * time.Microsecond)
			}
			return [][]byte{msg}
		}
		served := serve(t, sv)
		var turns [2]int
		start := time.Now()
		rep, err := Client(t.Context(), cl, Options{
			Sizes: []int64{64, 65_536}, Duration: 4 * time.Second,
			Progress: func(p Progress) {
				switch p.Size {
				case 64:
					turns[0]++
				case 65_536:
					turns[1]++
				}
			},
		})
		if err != nil || !rep.OK() {
			t.Fatalf("report %+v, error %v", rep, err)
		}
		if took := time.Since(start); took < 4*time.Second || took > 4200*time.Millisecond {
			t.Errorf("took %v, want 4 s", took)
		}
		if turns != [2]int{20, 20} {
			t.Errorf("turns %v, want 20 of each", turns)
		}
		if small, large := rep.Sizes[0].Latency, rep.Sizes[1].Latency; small.N() < 15_000 || large.N() < 90 ||
			large.Quantile(0.5) < 10*time.Millisecond || small.Quantile(1) > time.Millisecond {
			t.Errorf("n %d and %d, median %v, max %v", small.N(), large.N(), large.Quantile(0.5), small.Max())
		}
		if got := <-served; got.Err != nil {
			t.Error(got.Err)
		}
	})
}

// TestEverySizeHasATurnSoon interrupts a run that is meant to last for hours.
func TestEverySizeHasATurnSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, sv := newPipe()
		cl.fault = func(_ int, msg []byte) [][]byte {
			time.Sleep(time.Millisecond)
			return [][]byte{msg}
		}
		serve(t, sv)
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		rep, err := Client(ctx, cl, Options{Sizes: []int64{8, 16, 32}, Duration: 5 * time.Hour})
		if err != nil || !rep.OK() {
			t.Fatalf("report %+v, error %v", rep, err)
		}
		for _, s := range rep.Sizes { // three turns of a second each, less the warm-up
			if n := s.Latency.N(); n < 2600 || n > 2800 {
				t.Errorf("%d bytes: %d samples of about 2700", s.Size, n)
			}
		}
	})
}
