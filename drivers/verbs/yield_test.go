package verbs_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// TestYielder checks that a spinning goroutine lets another one run well within the
// scheduler's 10 ms, and that nothing is allocated.
func TestYielder(t *testing.T) {
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	ran := make(chan struct{})
	go close(ran)
	var y verbs.Yielder
	start := time.Now()
	for {
		y.Step(false)
		select {
		case <-ran:
			if d := time.Since(start); d > time.Minute {
				t.Errorf("the other goroutine ran after %v", d)
			}
			if n := testing.AllocsPerRun(1000, func() { y.Step(true) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
			return
		default:
		}
	}
}
