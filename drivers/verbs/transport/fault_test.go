package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// A fault is what happens to an end as it is about to carry an action out.
type fault struct {
	name string
	// do runs on the end's control goroutine; peer is the other end.
	do func(c, peer *Conn)
	// fatal says that the connection cannot live on.
	fatal bool
}

var faults = []fault{
	{"killed", func(c, _ *Conn) {
		c.tcp.Close()
		c.failAsync(errors.New("killed by the test"))
	}, true},
	{"cut", func(c, _ *Conn) { c.tcp.Close() }, true},
	// A stalled end does nothing until the other has given up waiting for it.
	{"stalled", func(c, peer *Conn) {
		before := len(peer.Info().Switches)
		for end := time.Now().Add(5 * testDrain); time.Now().Before(end); time.Sleep(time.Millisecond) {
			select {
			case <-peer.dead:
				return
			default:
			}
			if len(peer.Info().Switches) > before {
				return
			}
		}
	}, false},
}

const testDrain = 150 * time.Millisecond

// steps are the actions of each role at which something can go wrong.
var steps = map[bool][]switchover.Act{
	true: {switchover.SendPropose, switchover.ReadyLane, switchover.SendConnect, switchover.Hold,
		switchover.SendCommit, switchover.Flip, switchover.Finish},
	false: {switchover.MakeLane, switchover.SendAccept, switchover.ReadyLane, switchover.SendReady,
		switchover.Hold, switchover.SendVote, switchover.Flip, switchover.Finish},
}

func TestFaultAtEveryStep(t *testing.T) {
	for _, opener := range []bool{true, false} {
		for _, act := range steps[opener] {
			for _, f := range faults {
				role := map[bool]string{true: "opener", false: "acceptor"}[opener]
				t.Run(fmt.Sprintf("%s/%d/%s", role, act, f.name), func(t *testing.T) { faultAt(t, opener, act, f) })
			}
		}
	}
}

// faultAt lets f happen to one end at its first act of a switch, under load both
// ways, and checks that nothing is lost, doubled or reordered, that every message
// is accounted for, and that a connection that lives is whole.
func faultAt(t *testing.T, opener bool, act switchover.Act, f fault) {
	a := openSoft(t, Options{}, soft.Provider{Shuffle: true})
	b := openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	victim, other := ca, cb
	if !opener {
		victim, other = cb, ca
	}
	var happened atomic.Bool
	victim.t.hook = func(c *Conn, done switchover.Action) {
		if done.Act == act && c == victim && !happened.Swap(true) {
			f.do(victim, other)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const messages, most = 1500, 12000
	errs := make([]error, 4)
	tried := make([]int, 2)
	var wg sync.WaitGroup
	for i, run := range []func() error{
		func() (err error) { tried[0], err = stream(ctx, ca, messages, most, 1); return },
		func() (err error) { tried[1], err = stream(ctx, cb, messages, most, 2); return },
		func() error { return check(ctx, cb, messages, most, 1) },
		func() error { return check(ctx, ca, messages, most, 2) },
	} {
		wg.Go(func() { errs[i] = run() })
	}
	drain := testDrain.Milliseconds()
	// On a slow machine a switch may be given up before it comes to the fault.
	for gen := uint64(1); !happened.Load() && ctx.Err() == nil; gen++ {
		settings := hinted(int64(gen%2)*4096, gen%2 == 1, true)
		settings.DrainTimeoutMS = &drain
		// Both ends shall have the short timeout; only a opens.
		for _, tr := range []*Transport{b, a} {
			o := control.Order{ID: "t", Generation: gen, Workload: "w", Settings: &settings, Open: tr == a}
			if _, err := tr.Order(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
	// An outcome may be on its way to one end still.
	dead := false
	for ctx.Err() == nil {
		ia, ib := ca.Info(), cb.Info()
		dead = ia.Err != "" && ib.Err != ""
		if dead || !f.fatal && ia.Err == "" && ib.Err == "" && ia.Epoch == ib.Epoch {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if f.fatal && !dead {
		t.Error("the connection survived")
	}
	for i, err := range errs {
		var ce *ConnError
		switch {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			t.Errorf("flow %d hangs; a %+v\nb %+v", i, ca.Info(), cb.Info())
		case !errors.As(err, &ce) && err != io.EOF:
			t.Errorf("flow %d: %v", i, err)
		case !dead:
			t.Errorf("flow %d ended on a live connection: %v", i, err)
		}
		if i < 2 && ce != nil {
			if sum := ce.Delivered + ce.NotDelivered + ce.Unknown; sum != uint64(tried[i]) {
				t.Errorf("flow %d: %d messages tried, %d accounted for: %v", i, tried[i], sum, ce)
			}
		}
	}
	if !dead && ca.Info().Epoch != cb.Info().Epoch {
		t.Errorf("ends on lanes of epochs %d and %d", ca.Info().Epoch, cb.Info().Epoch)
	}
}

// TestNoDecision lets the opener stall between the votes and its decision, for
// longer than the acceptor waits.
func TestNoDecision(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	var stalled atomic.Bool
	a.hook = func(c *Conn, done switchover.Action) {
		if done.Act == switchover.SendCommit {
			stalled.Store(true)
			<-cb.dead
		}
	}
	// The shorter the timeout the shorter the test, but a slow machine needs more to
	// come as far as the decision.
	drain := int64(20)
	for gen := uint64(1); !stalled.Load(); gen++ {
		size := int64(gen%2) * 4096
		for _, tr := range []*Transport{b, a} {
			o := control.Order{ID: "t", Generation: gen, Workload: "w", Open: tr == a, Settings: &control.Settings{Size: &size, DrainTimeoutMS: &drain}}
			if _, err := tr.Order(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		drain *= 2
	}
	if _, err := cb.Recv(t.Context(), nil); !errors.Is(err, ErrNoDecision) {
		t.Errorf("the acceptor ended with %v", err)
	}
	if _, err := ca.Recv(t.Context(), nil); err == nil {
		t.Error("the opener lives on")
	}
}
