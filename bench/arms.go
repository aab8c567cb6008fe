package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/measure"
)

// An Arm is one set-up to be measured: connections that are all of one profile.
type Arm struct {
	Name    string            // unique among the arms
	Hint    *int64            // bytes that the connections follow; nil: none
	Profile map[string]string // as granted, for the report
	Conns   []Conn
	// Tier names the tier by which the connections carry a size; nil: not known.
	Tier func(size int64) string
	// Counters returns what the connections' queues went through so far; nil: nothing is
	// known.
	Counters func() Counters
}

// Counters are of the send queues of an arm's connections.
type Counters struct {
	HighWater  int    // most work requests outstanding on one
	FullEvents uint64 // times that a sender found no slot or credit
}

// A client measures arms side by side.
type client struct {
	o        Options
	arms     []*arm
	start    time.Time
	stopping atomic.Bool
	moves    atomic.Uint64
	random   *rand.Rand
}

// An arm is an Arm at work, with what was found by size.
type arm struct {
	Arm
	runs  []*run
	sizes []*found
}

// found is what was measured of one size on one arm.
type found struct {
	hist     *measure.Histogram
	worst    measure.Worst
	line     timeline
	sends    Sends
	bytes    int64         // received by the peer, and from it, in timed batches
	took     time.Duration // of these
	counters Counters
}

// Client runs o over one connection and leaves it open. When ctx ends, the message
// under way is finished, and what was measured is a whole report with no error. On an
// error the report has what was measured before it.
func Client(ctx context.Context, c Conn, o Options) (Report, error) {
	return Run(ctx, []Arm{{Conns: []Conn{c}}}, o)
}

// Run is Client for several arms, which take turns, so that a machine that drifts
// favours none of them.
func Run(ctx context.Context, arms []Arm, o Options) (Report, error) {
	if err := o.settle(len(arms)); err != nil {
		return Report{}, err
	}
	c, err := newClient(arms, o)
	if err != nil {
		return Report{}, err
	}
	defer c.free()
	ctx, stop := c.connContext(ctx)
	defer stop()
	for _, a := range c.arms {
		for _, r := range a.runs {
			r.ctx = ctx
		}
	}
	err = c.all()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // what ended the context says more than that it ended
	}
	return c.report(), err
}

func newClient(arms []Arm, o Options) (*client, error) {
	c := &client{o: o, start: time.Now(), random: rand.New(rand.NewPCG(1, uint64(len(arms))))}
	names := map[string]bool{}
	for _, a := range arms {
		if len(a.Conns) == 0 || names[a.Name] {
			return nil, fmt.Errorf("arm %q has no connection, or another has its name", a.Name)
		}
		names[a.Name] = true
		w := &arm{Arm: a}
		for _, conn := range a.Conns {
			r, err := newRun(conn, &c.o)
			if err != nil {
				c.arms = append(c.arms, w)
				c.free()
				return nil, err
			}
			r.stopping, r.moves = &c.stopping, &c.moves
			w.runs = append(w.runs, r)
		}
		for range o.Sizes {
			w.sizes = append(w.sizes, &found{hist: measure.New()})
		}
		c.arms = append(c.arms, w)
	}
	if len(c.arms) == 0 {
		return nil, errors.New("nothing to measure")
	}
	return c, nil
}

// free gives the memory of messages back.
func (c *client) free() {
	for _, a := range c.arms {
		for _, r := range a.runs {
			r.free()
		}
	}
}

// connContext returns the context of everything on the connections, which outlives
// parent by grace, and what ends it.
func (c *client) connContext(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	unhook := context.AfterFunc(parent, func() {
		c.stopping.Store(true)
		time.AfterFunc(grace, func() { cancel(context.Cause(parent)) })
	})
	unwatch := watch(&c.moves, c.o.Stall, func() { cancel(fmt.Errorf("%w (%v)", ErrStalled, c.o.Stall)) })
	return ctx, func() {
		unhook()
		unwatch()
		cancel(nil)
	}
}

func (c *client) all() error {
	for _, a := range c.arms {
		if err := each(a.runs, func(_ int, r *run) error { return r.hello() }); err != nil {
			return err
		}
	}
	c.progress(c.arms[0], 0, 0)
	var err error
	if c.o.Count > 0 {
		err = c.counted()
	} else {
		err = c.timed()
	}
	if err != nil {
		return err
	}
	for _, a := range c.arms {
		if err := each(a.runs, func(_ int, r *run) error { return r.finish() }); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for all runs at once and returns all errors.
func each(runs []*run, f func(int, *run) error) error {
	errs := make([]error, len(runs))
	var all sync.WaitGroup
	for i, r := range runs {
		all.Go(func() { errs[i] = f(i, r) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// cells are the sizes that have turns of their own: with Mixed, all sizes share one.
func (c *client) cells() int {
	if c.o.Mode == Mixed {
		return 1
	}
	return len(c.o.Sizes)
}

// counted gives every size and arm its count, in rounds. Each round begins with
// another arm, so that none is always measured after the same one.
func (c *client) counted() error {
	for round := range c.o.Rounds {
		count := c.o.Count*(round+1)/c.o.Rounds - c.o.Count*round/c.o.Rounds
		for index := range c.cells() {
			for i := range c.arms {
				a := c.arms[(i+round)%len(c.arms)]
				if err := c.turn(a, index, *c.o.Warmup, count, time.Time{}); err != nil || c.stopping.Load() {
					return err
				}
			}
		}
	}
	return nil
}

// A turn is a twentieth of its share of the time, within these bounds: long enough for
// its warm-up not to be most of it, and short enough for every size to have one before
// and after whatever happens on the way.
const (
	minTurn = 100 * time.Millisecond
	maxTurn = time.Second
)

// timed shares Duration evenly: in each turn, a size gets the time left divided by
// the turns left, so that a slow size does not make the run longer.
func (c *client) timed() error {
	cells := c.cells() * len(c.arms)
	share := c.o.Duration / time.Duration(cells)
	turns := cells * int(max(share/min(max(share/20, minTurn), maxTurn), 1))
	end := time.Now().Add(c.o.Duration)
	for turn := range turns {
		now := time.Now()
		if turn >= cells && !now.Before(end) {
			break // every size has had a turn
		}
		until := now.Add(end.Sub(now) / time.Duration(turns-turn))
		warmup := *c.o.Warmup
		if turn > 0 && cells == 1 {
			warmup = 0 // nothing changes
		}
		round, at := turn/cells, turn%cells
		a := c.arms[(at+round)%len(c.arms)]
		if err := c.turn(a, at/len(c.arms), warmup, 0, until); err != nil || c.stopping.Load() {
			return err
		}
	}
	return nil
}

// turn runs one turn on all connections of an arm at once.
func (c *client) turn(a *arm, index, warmup, count int, until time.Time) error {
	var before Counters
	if a.Counters != nil {
		before = a.Counters()
	}
	var mu sync.Mutex // guards a.sizes and busy
	busy := len(a.runs)
	over := make(chan struct{})
	done := func() {
		mu.Lock()
		defer mu.Unlock()
		if busy--; busy == 0 {
			close(over)
		}
	}
	seeds := make([]uint64, len(a.runs)) // drawn here: the connections draw at once
	for i := range seeds {
		seeds[i] = c.random.Uint64()
	}
	share := func(i int) int { return count*(i+1)/len(a.runs) - count*i/len(a.runs) }
	err := each(a.runs, func(i int, r *run) error {
		t := turn{index: index, warmup: warmup, count: share(i), until: until, done: done}
		if count > 0 && t.count == 0 {
			done()
			return nil
		}
		if len(a.runs) > 1 {
			t.after = over
		}
		if c.o.Mode.Streaming() {
			return r.stream(t, func(n int, took time.Duration, now time.Time) {
				mu.Lock()
				defer mu.Unlock()
				if c.o.Mode == BothWays {
					n *= 2
				}
				f := a.sizes[index]
				f.bytes += int64(n) * c.o.Sizes[index]
				f.took += took
				f.line.add(now.Sub(c.start), int64(n), took)
			})
		}
		return c.latencies(a, r, t, seeds[i], &mu)
	})
	for _, f := range a.sizes {
		f.line.close(time.Since(c.start))
	}
	f := a.sizes[index]
	if a.Counters != nil {
		now := a.Counters()
		f.counters.HighWater = max(f.counters.HighWater, now.HighWater)
		f.counters.FullEvents += now.FullEvents - before.FullEvents
	}
	c.progress(a, index, f.n())
	return err
}

// latencies runs one connection's turn of round trips.
func (c *client) latencies(a *arm, r *run, t turn, seed uint64, mu *sync.Mutex) error {
	if c.o.Mode == Mixed {
		t.draw = c.picker(seed)
	}
	single := len(a.runs) == 1
	t.timed = func(index int, now time.Time, took time.Duration) {
		if !single {
			mu.Lock()
			defer mu.Unlock()
		}
		f := a.sizes[index]
		f.worst.Record(measure.Sample{Index: f.hist.N(), At: now.Sub(c.start), Latency: took})
		f.hist.Record(took)
		f.line.record(now.Sub(c.start), took)
	}
	_, tells := r.conn.(fullCounter)
	t.sent = func(index int, s send) {
		if !single {
			mu.Lock()
			defer mu.Unlock()
		}
		a.sizes[index].sends.record(s, tells)
	}
	return r.roundTrips(t)
}

// picker draws sizes by their weights.
func (c *client) picker(seed uint64) func() int {
	sums := make([]float64, len(c.o.Weights))
	total := 0.0
	for i, w := range c.o.Weights {
		total += w
		sums[i] = total
	}
	random := rand.New(rand.NewPCG(seed, 2))
	return func() int {
		x := random.Float64() * total
		for i, s := range sums {
			if x < s {
				return i
			}
		}
		return len(sums) - 1
	}
}

func (f *found) n() int64 {
	if f.took > 0 {
		return f.line.n()
	}
	return f.hist.N()
}

func (c *client) progress(a *arm, index int, n int64) {
	if c.o.Progress == nil {
		return
	}
	p := Progress{Series: a.Name, N: n, Elapsed: time.Since(c.start)}
	if n > 0 {
		p.Size = c.o.Sizes[index]
	}
	c.o.Progress(p)
}
