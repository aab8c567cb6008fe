package transport

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// slow is a drain timeout in milliseconds that no machine exceeds.
var slow = int64(120_000)

// patient gives tr that timeout for switches that its peers open.
func patient(t *testing.T, tr *Transport) {
	t.Helper()
	o := control.Order{ID: "t", Generation: 1, Workload: "w", Settings: &control.Settings{DrainTimeoutMS: &slow}}
	if _, err := tr.Order(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// order opens switches of all of tr's connections to hint, which must be done.
func order(t *testing.T, tr *Transport, gen uint64, hint int64, outcome string) []control.Outcome {
	t.Helper()
	res, err := tr.Order(t.Context(), control.Order{
		ID: "t", Generation: gen, Workload: "w", Settings: &control.Settings{Size: &hint, DrainTimeoutMS: &slow}, Open: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range res.Outcomes {
		if o.Outcome != outcome {
			t.Fatalf("connection %d: %s (%s), want %s", o.Conn, o.Outcome, o.Reason, outcome)
		}
	}
	return res.Outcomes
}

// resources counts what a leak would show in.
func resources(t *testing.T, trs ...*Transport) (n struct{ lanes, fds, goroutines int }) {
	t.Helper()
	for _, tr := range trs {
		tr.eng.mu.Lock()
		n.lanes += len(tr.eng.lanes)
		tr.eng.mu.Unlock()
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n.fds, n.goroutines = len(fds), runtime.NumGoroutine()
	return n
}

// eventually waits for ok, which comes soon unless something is broken.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestControllersSleepAsLongAsTheyWait: one that waits for completions is counted, and not
// any more once the switch, and the connection, are over.
func TestControllersSleepAsLongAsTheyWait(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	sleepers := func() int32 { return a.eng.sleepers.Load() + b.eng.sleepers.Load() }
	atWork := make(chan int32, 1)
	b.hook = func(_ *Conn, act switchover.Action) {
		if act.Act == switchover.Flip {
			select {
			case atWork <- sleepers():
			default:
			}
		}
	}
	ca, cb := connect(t, a, b)
	order(t, a, 1, 4096, control.Switched)
	if n := <-atWork; n == 0 {
		t.Error("nobody waits in the middle of a switch")
	}
	eventually(t, "nobody waits after the switch", func() bool { return sleepers() == 0 })
	closed := make(chan error, 1)
	go func() { closed <- ca.Close() }()
	if err := errors.Join(cb.Close(), <-closed); err != nil {
		t.Error(err)
	}
	eventually(t, "nobody waits after the end", func() bool { return sleepers() == 0 })
}

// TestManySwitchesLeakNothing switches connections a thousand times in a row under
// load.
func TestManySwitchesLeakNothing(t *testing.T) {
	n := &counts{}
	const conns = 2
	rounds := 500
	open := func() *Transport {
		if os.Getenv("RDMATUNE_DEVICE") != "" {
			rounds = 100 // a queue pair of the kernel's soft RoCE drains slowly
			return openSoft(t, Options{}, soft.Provider{})
		}
		tr := openOn(t, Options{}, counting{soft.Provider{}, nil, n})
		t.Cleanup(func() {
			if err := tr.Close(); err != nil && !errors.As(err, new(*ConnError)) {
				t.Errorf("close transport: %v", err)
			}
		})
		return tr
	}
	a, b := open(), open()
	patient(t, b)
	var ends []*Conn
	for range conns {
		ca, cb := connect(t, a, b)
		ends = append(ends, ca, cb)
	}
	lanes := func(want int) {
		t.Helper()
		eventually(t, "old lanes are gone", func() bool { return resources(t, a, b).lanes == want*len(ends) })
	}
	// Two lanes first: what a provider keeps for itself, it has then.
	switchTo(t, a, 1, hinted(4096, true, false))
	lanes(2)
	switchTo(t, a, 2, hinted(4096, false, true))
	lanes(1)
	before := resources(t, a, b)
	qps, mrs := n.qps.Load(), n.mrs.Load()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, c := range ends {
		wg.Go(func() {
			msg := make([]byte, 20_000)
			for i := 0; c.Send(ctx, msg[:1000+i%2*19_000]) == nil; i++ {
			}
		})
		wg.Go(func() {
			buf := make([]byte, 20_000)
			for {
				if n, err := c.Recv(ctx, buf); err != nil {
					return
				} else if n != 1000 && n != 20_000 {
					t.Errorf("message of %d bytes", n)
				}
			}
		})
	}
	gen := map[*Transport]uint64{a: 2, b: 2}
	for i := range rounds {
		tr := a
		if i%3 == 0 {
			tr = b
		}
		gen[tr]++
		to := settingsOf[2+i%4].settings
		if i == rounds-1 || i == rounds-2 || i == rounds-3 { // both ends end on one lane
			to = settingsOf[2+i%2].settings
		}
		switchTo(t, tr, gen[tr], to)
	}
	gen[b]++
	switchTo(t, b, gen[b], settingsOf[0].settings)
	gen[a]++
	switchTo(t, a, gen[a], settingsOf[0].settings)
	cancel()
	wg.Wait()
	lanes(1)
	eventually(t, "no queue pair, region, goroutine or descriptor is left", func() bool {
		after := resources(t, a, b)
		return after.fds <= before.fds+2 && after.goroutines <= before.goroutines && n.qps.Load() == qps && n.mrs.Load() == mrs
	})
}

// TestBothOpen lets both ends open at once: one switch must serve both.
func TestBothOpen(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	for gen := uint64(1); gen <= 100; gen++ {
		hint := int64(gen%2)*8192 + 4096
		o := control.Order{ID: "t", Generation: gen, Workload: "w", Settings: &control.Settings{Size: &hint, DrainTimeoutMS: &slow}}
		for _, tr := range []*Transport{a, b} { // as apply prepares all before the first opens
			if _, err := tr.Order(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		before := ca.Info().Epoch
		var wg sync.WaitGroup
		for _, tr := range []*Transport{a, b} {
			wg.Go(func() {
				o := o
				o.Open = true
				res, err := tr.Order(t.Context(), o)
				if err != nil || res.Outcomes[0].Outcome != control.Switched {
					t.Errorf("generation %d: %+v, %v", gen, res.Outcomes, err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.Fatalf("a %+v\nb %+v", ca.Info(), cb.Info())
		}
		ia, ib := ca.Info(), cb.Info()
		if ia.Epoch != ib.Epoch || ia.Epoch != before+1 || ia.Generation != gen || ib.Generation != gen {
			t.Fatalf("epochs %d and %d after %d, generations %d and %d for %d", ia.Epoch, ib.Epoch, before, ia.Generation, ib.Generation, gen)
		}
	}
}

func TestOrders(t *testing.T) {
	a := openSoft(t, Options{Workload: "w"}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	first := order(t, a, 5, 8192, control.Switched)
	again := order(t, a, 5, 8192, control.Switched)
	if first[0].Epoch != again[0].Epoch || len(ca.Info().Switches) != 1 {
		t.Errorf("asked again, it switched again: %+v, %+v", first, again)
	}
	if i := ca.Info(); i.Profile != profileLowLatency || *i.Hint != 8192 || i.Eager != 8192 {
		t.Errorf("after the switch: %+v", i)
	}
	eventually(t, "the peer's flip", func() bool { return cb.Info().Epoch == 2 })
	if i := cb.Info(); i.Profile != profileGeneral || i.Hint != nil {
		t.Errorf("the peer follows its own settings: %+v", i)
	}
	// Only the completion mode differs: no new lanes.
	size, mode := int64(8192), "event"
	o := control.Order{ID: "u", Generation: 6, Workload: "w", Settings: &control.Settings{Size: &size, Completion: &mode}, Open: true}
	res, err := a.Order(t.Context(), o)
	if err != nil || res.Outcomes[0].Outcome != control.InPlace || ca.Info().Completion != "event" || ca.Info().Epoch != 2 {
		t.Errorf("in place: %+v, %v", res.Outcomes, err)
	}
	// Taking the order back is a switch to what the lower levels say.
	o = control.Order{ID: "v", Generation: 7, Workload: "w", Open: true}
	if res, err = a.Order(t.Context(), o); err != nil || res.Outcomes[0].Outcome != control.Switched || ca.Info().Hint != nil {
		t.Errorf("taken back: %+v, %v", res.Outcomes, err)
	}
	for _, bad := range []control.Order{{ID: "x", Generation: 3, Workload: "w"}, {ID: "x", Generation: 9, Workload: "other"}} {
		if _, err := a.Order(t.Context(), bad); err == nil {
			t.Errorf("order %+v was taken", bad)
		}
	}
}

// TestInPlace moves the limit between the lanes, which needs no new ones.
func TestInPlace(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	settle(t, a, 1, hinted(128<<10, true, true))
	ca, cb := connect(t, a, b)
	msg, buf := make([]byte, 200<<10), make([]byte, 200<<10)
	for gen, lane := range []int{1, 0, 1} {
		to := hinted(128<<10, true, true)
		if lane == 0 {
			to = hinted(256<<10, true, true)
		}
		if out := switchTo(t, a, uint64(gen+2), to); out[0].Outcome != control.InPlace {
			t.Fatalf("%+v", out)
		}
		before := ca.Info().Lanes
		exchange(t, ca, cb, msg, buf)
		for k, l := range ca.Info().Lanes {
			if grown := l.Messages - before[k].Messages; (grown == 1) != (k == lane) {
				t.Errorf("generation %d: %d messages on lane %d", gen, grown, k)
			}
		}
	}
	if i := ca.Info(); i.Epoch != 1 || *i.Hint != 128<<10 {
		t.Errorf("%+v", i)
	}
}

func TestCooldown(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	connect(t, a, b)
	hour := int64(3_600_000)
	ask := func(tr *Transport, gen uint64, size int64, cooldown *int64, force bool) control.Outcome {
		res, err := tr.Order(t.Context(), control.Order{ID: "c", Generation: gen, Workload: "w", Force: force, Open: true,
			Settings: &control.Settings{Size: &size, CooldownMS: cooldown}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Outcomes[0]
	}
	if o := ask(a, 1, 4096, &hour, false); o.Outcome != control.Switched {
		t.Fatalf("first: %+v", o)
	}
	o := ask(a, 2, 8192, &hour, false)
	if o.Outcome != control.Deferred || o.Reason != reasonCooldown || o.RetryAfter < 59*time.Minute {
		t.Errorf("within the cooldown: %+v", o)
	}
	if o := ask(a, 3, 16384, &hour, true); o.Outcome != control.Switched {
		t.Errorf("forced: %+v", o)
	}
	// The peer's own cooldown holds against it, however it is forced here.
	if o := ask(b, 1, 4096, nil, true); o.Outcome != control.Deferred || o.RetryAfter < 59*time.Minute {
		t.Errorf("against the peer's cooldown: %+v", o)
	}
}

// TestIdleCostsNothing counts how often the poller of idle connections wakes up:
// not at all, while another connection of the same transport exchanges messages.
func TestIdleCostsNothing(t *testing.T) {
	a := openSoft(t, Options{Hint: bytesPtr(4096)}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	const idle, turns = 100, 50
	l, err := b.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ends []*Conn
	for range idle + 1 {
		ca, err := a.Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		cb, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, ca, cb)
	}
	for _, c := range ends[2:] {
		go c.Recv(t.Context(), nil) // waits until the test ends
	}
	buf := make([]byte, 8)
	exchange(t, ends[0], ends[1], buf, make([]byte, 8))
	eventually(t, "the idle ones sleep", func() bool { return a.eng.spinners.Load()+b.eng.spinners.Load() == 0 })
	before := a.eng.wakeups.Load() + b.eng.wakeups.Load()
	for range turns {
		exchange(t, ends[0], ends[1], buf, make([]byte, 8))
	}
	// Each message completes at both ends; a credit message and its completion may
	// come as well.
	if n := a.eng.wakeups.Load() + b.eng.wakeups.Load() - before; n > 4*turns {
		t.Errorf("%d wake-ups for %d messages beside %d idle connections", n, turns, idle)
	}
}

func TestClose(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	for range 100 {
		if err := ca.Send(t.Context(), make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 100)
	for range 40 {
		if _, err := cb.Recv(t.Context(), buf); err != nil {
			t.Fatal(err)
		}
	}
	// b closes without reading the other 60.
	if err := cb.Close(); err != nil {
		t.Fatal(err)
	}
	var ce *ConnError
	if err := ca.Close(); !errors.As(err, &ce) || !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("close after the peer dropped messages: %v", err)
	}
	if ce.Delivered != 40 || ce.NotDelivered != 60 || ce.Unknown != 0 {
		t.Errorf("close: %+v", ce)
	}
	if err := ca.Send(t.Context(), nil); err == nil {
		t.Error("send after close")
	}
	if _, err := ca.Recv(t.Context(), nil); err == nil {
		t.Error("receive after close")
	}
}
