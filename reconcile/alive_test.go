package reconcile

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/state"
)

// TestLocked: while somebody else holds the node, such as an apply that asks a person, the
// daemon looks alive, says what it waits for, and goes on afterwards.
func TestLocked(t *testing.T) {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other, err := state.Acquire(n.RunDir(), state.Owner{PID: 4711, Command: "rdmatune apply"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int64
		l := &Loop{c: Config{Node: n, OnAlive: func() { beats.Add(1) }}, log: slog.New(slog.DiscardHandler)}
		got := make(chan error)
		go func() {
			lock, err := l.lock(t.Context())
			if err == nil {
				err = lock.Release()
			}
			got <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := beats.Load(); n < 12 || n > 25 {
			t.Errorf("%d signs of life in a minute; one in 2.5 to 5 s is enough", n)
		}
		if p := l.status.Problems; len(p) != 1 || !strings.Contains(p[0], "4711") {
			t.Errorf("problems %q", p)
		}
		if err := other.Release(); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

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
