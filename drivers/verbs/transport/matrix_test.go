package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// settingsOf are the settings between which connections switch.
var settingsOf = []struct {
	name     string
	settings control.Settings
}{
	{"none", control.Settings{}},
	{"0", hinted(0, false, true)},
	{"8KiB", hinted(8192, false, true)},
	{"64KiB", hinted(65536, false, true)},
	{"dual ordered", hinted(8192, true, true)},
	{"dual unordered", hinted(2048, true, false)},
}

// switchTo switches tr's connections to s, which must be done.
func switchTo(t *testing.T, tr *Transport, gen uint64, s control.Settings) []control.Outcome {
	t.Helper()
	s.DrainTimeoutMS = &slow
	res, err := tr.Order(t.Context(), control.Order{ID: "t", Generation: gen, Workload: "w", Settings: &s, Open: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range res.Outcomes {
		if o.Outcome != control.Switched && o.Outcome != control.InPlace {
			t.Fatalf("connection %d: %s (%s)", o.Conn, o.Outcome, o.Reason)
		}
	}
	return res.Outcomes
}

// TestEveryProfileToEvery switches two connections from each profile to each other,
// under load both ways, and checks the lanes and credits after it.
func TestEveryProfileToEvery(t *testing.T) {
	for _, from := range settingsOf {
		for _, to := range settingsOf {
			t.Run(fmt.Sprintf("%s to %s", from.name, to.name), func(t *testing.T) {
				fromTo(t, soft.Provider{Shuffle: true}, from.settings, to.settings)
			})
		}
	}
}

func fromTo(t *testing.T, p soft.Provider, from, to control.Settings) {
	a, b := openSoft(t, Options{}, p), openSoft(t, Options{}, p)
	settle(t, a, 1, from)
	patient(t, b)
	c1, d1 := connect(t, a, b)
	c2, d2 := connect(t, a, b)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var order func(int) int
	for _, s := range []control.Settings{from, to} {
		if s.Ordered != nil && !*s.Ordered {
			order = anyOrder
		}
	}
	var wg sync.WaitGroup
	var moved atomic.Int64 // messages received
	for i, ends := range [][2]*Conn{{c1, d1}, {d1, c1}, {c2, d2}, {d2, c2}} {
		load := newLoad(uint64(i), 60, 100_000)
		order := order
		if i%2 == 1 {
			order = nil // b asked for nothing
		}
		wg.Go(func() {
			if err := load.send(ctx, ends[0]); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := load.recv(ctx, ends[1], order); err != nil {
				t.Errorf("flow %d: %v\nfrom %+v\nto %+v", i, err, ends[0].Info(), ends[1].Info())
			}
			moved.Add(1)
		})
	}
	eventually(t, "traffic runs", func() bool { return c1.Info().Received.Messages > 10 && c2.Info().Sent.Messages > 10 })
	switchTo(t, a, 2, to)
	wg.Wait()
	for _, ends := range [][2]*Conn{{c1, d1}, {c2, d2}} {
		eventually(t, "the peer's flip, and the old lanes are gone", func() bool {
			i, j := ends[0].Info(), ends[1].Info()
			return i.Epoch == j.Epoch && len(i.Lanes) == len(j.Lanes) && i.Lanes[0].Epoch == i.Epoch && j.Lanes[0].Epoch == j.Epoch
		})
		checkCredits(t, ends[0], ends[1])
	}
}

// checkCredits checks at rest that what c may send is what d has posted, but for
// what d has not told yet.
func checkCredits(t *testing.T, c, d *Conn) {
	t.Helper()
	for _, ends := range [][2]*Conn{{c, d}, {d, c}} {
		eventually(t, "all has completed", func() bool {
			return state(ends[0], func() bool { return ends[0].outOpen == [maxLanes]int{} })
		})
		for k, l := range ends[0].Info().Lanes {
			granted := state(ends[1], func() int { return ends[1].cur.lanes[k].granted.Credits })
			if l.Credits > granted || l.Credits < granted/4 {
				t.Errorf("lane %d: %d credits of %d after the switch", k, l.Credits, granted)
			}
		}
	}
}

// TestCreditsRightAfter checks on lanes that carried nothing that the credits are
// the new depths, and that the whole of them can be used.
func TestCreditsRightAfter(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	patient(t, b)
	ca, cb := connect(t, a, b)
	depths := map[string][]int{"none": {256}, "0": {256}, "8KiB": {16}, "64KiB": {16}, "dual ordered": {16, 256}, "dual unordered": {16, 256}}
	gen := uint64(1)
	for _, to := range append(settingsOf[1:], settingsOf[0]) {
		fresh := switchTo(t, a, gen, to.settings)[0].Outcome == control.Switched
		gen++
		eventually(t, "the old lanes are gone", func() bool { return resources(t, a, b).lanes == 2*len(depths[to.name]) })
		for k, l := range ca.Info().Lanes {
			if want := depths[to.name]; fresh && (l.Credits != want[k] || l.Depth != 0) {
				t.Errorf("%s: lane %d has %d credits, want %v", to.name, k, l.Credits, want)
			}
		}
		eventually(t, "the peer's flip", func() bool { return cb.Info().Epoch == ca.Info().Epoch })
		if got := cb.Info().Lanes[0].Credits; got != 256 {
			t.Errorf("%s: the peer has %d credits", to.name, got)
		}
		n := 0
		eventually(t, "every credit is used", func() bool {
			for ca.TrySend([]byte("x")) == nil {
				n++
			}
			return n == depths[to.name][0]
		})
		for range n {
			if _, err := cb.Recv(t.Context(), make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSwitchWithRendezvous switches while rendezvous are under way in both
// directions: those that are answered finish on the old lanes, the others are
// answered on the new ones.
func TestSwitchWithRendezvous(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		for _, to := range settingsOf[2:] {
			t.Run(to.name, func(t *testing.T) {
				a, b := openSoft(t, Options{}, p), openSoft(t, Options{}, p)
				patient(t, b)
				ca, cb := connect(t, a, b)
				ends := []*Conn{ca, cb}
				var wg sync.WaitGroup
				send := func(c *Conn, k byte) {
					wg.Go(func() {
						msg := make([]byte, 1<<20)
						for i := range msg {
							msg[i] = k
						}
						if err := c.Send(t.Context(), msg); err != nil {
							t.Error(err)
						}
					})
				}
				recv := func(c *Conn, k byte) {
					wg.Go(func() {
						buf := make([]byte, 1<<20)
						n, err := c.Recv(t.Context(), buf)
						if err != nil || n != len(buf) || buf[0] != k || buf[n-1] != k {
							t.Errorf("message %d: received %d bytes of %d, %v", k, n, buf[0], err)
						}
					})
				}
				for i, c := range ends {
					for k := range byte(3) {
						send(c, k)
						offered(t, ends[1-i], int(k)+1)
					}
				}
				// One in each direction is answered, and not finished, when the switch begins:
				// its sender does not see the answer.
				a.eng.mu.Lock()
				recv(cb, 0)
				answered(t, cb, 1)
				a.eng.mu.Unlock()
				b.eng.mu.Lock()
				recv(ca, 0)
				answered(t, ca, 1)
				b.eng.mu.Unlock()
				switchTo(t, a, 1, to.settings)
				eventually(t, "the peer's flip", func() bool { return cb.Info().Epoch == 2 })
				for _, c := range ends {
					if n := state(c, func() int { return c.offers }); n < 2 {
						t.Errorf("%d offers left after the switch", n)
					}
					for k := byte(1); k < 3; k++ {
						recv(c, k)
						answered := func() bool { return state(c, func() bool { return c.taken > uint64(k) }) }
						eventually(t, "it is taken", answered)
					}
				}
				wg.Wait()
				eventually(t, "the old lanes are gone", func() bool { return len(ca.Info().Lanes) == len(ca.cur.lanes) })
			})
		}
	})
}

// TestAbortWithRendezvous aborts a switch whose peer does not finish: what is
// unanswered goes on on the old lanes.
func TestAbortWithRendezvous(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	errs := make(chan error, 4)
	for _, c := range []*Conn{ca, cb} {
		go func() { errs <- c.Send(t.Context(), make([]byte, 200_000)) }()
	}
	offered(t, ca, 1)
	offered(t, cb, 1)
	// b comes to its vote only when a has given up.
	b.hook = func(_ *Conn, act switchover.Action) {
		if act.Act == switchover.SendVote {
			for len(ca.Info().Switches) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	size, drain := int64(8192), int64(200)
	res, err := a.Order(t.Context(), control.Order{ID: "t", Generation: 1, Workload: "w", Open: true,
		Settings: &control.Settings{Size: &size, DrainTimeoutMS: &drain}})
	if err != nil || res.Outcomes[0].Outcome != control.Aborted {
		t.Fatalf("%+v, %v", res.Outcomes, err)
	}
	for _, c := range []*Conn{ca, cb} {
		go func() {
			n, err := c.Recv(t.Context(), make([]byte, 200_000))
			if err == nil && n != 200_000 {
				err = fmt.Errorf("received %d bytes", n)
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestCancelDuringSwitch gives up offers while a switch holds everything: the peer
// hears of it afterwards.
func TestCancelDuringSwitch(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	patient(t, b)
	ca, cb := connect(t, a, b)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- ca.Send(ctx, make([]byte, 100_000)) }()
	offered(t, cb, 1)
	release := make(chan bool)
	b.hook = func(_ *Conn, act switchover.Action) {
		if act.Act == switchover.SendVote {
			<-release
		}
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		switchTo(t, a, 1, hinted(8192, true, true))
	}()
	eventually(t, "a holds", func() bool { return state(ca, func() bool { return ca.holding }) })
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	close(release)
	<-done
	// b may answer the offer yet, before it hears: so its buffer must hold that.
	exchange(t, ca, cb, []byte("next"), make([]byte, 100_000))
	eventually(t, "nothing stays open", func() bool {
		return state(ca, func() int { return ca.outOpen[0] })+state(cb, func() int { return cb.offers + len(cb.goneOffers) }) == 0
	})
}
