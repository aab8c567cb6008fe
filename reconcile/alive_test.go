package reconcile

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBusy: a long run of steps looks alive, and a step that hangs does not for ever.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		l := &Loop{c: Config{OnAlive: func() { count.Add(1) }}}
		step, finish := l.busy()
		beats := int64(0)
		settle := func() { synctest.Wait(); beats = count.Load() }
		time.Sleep(10*beat + time.Second)
		settle()
		if beats != 10 {
			t.Errorf("%d beats in a step of 51 s", beats)
		}
		for range 5 {
			time.Sleep(longestStep - time.Second)
			step()
		}
		settle()
		before := beats
		time.Sleep(beat + time.Second)
		settle()
		if beats == before {
			t.Error("no beat after many long steps")
		}
		time.Sleep(longestStep)
		settle()
		before = beats
		time.Sleep(time.Hour)
		settle()
		if beats != before {
			t.Errorf("%d beats of a step that hangs", beats-before)
		}
		finish()
	})
}
