package transport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// What an end does that nobody told otherwise.
const (
	defaultDrainTimeout = 2 * time.Second
	defaultCooldown     = 0
)

// A follow is what this end's side of a connection shall have: the effective hint
// and the other settings in force, with the generation they belong to.
type follow struct {
	hint         *int64
	origin       string
	completion   completion
	eagerMax     int64 // bytes, 0 = no bound
	dual         bool  // a bandwidth lane beside the low-latency one
	unordered    bool  // small messages may pass large ones
	drainTimeout time.Duration
	cooldown     time.Duration
	generation   uint64
}

// An attempt is what an opening order did to one connection.
type attempt struct {
	order      string
	generation uint64
	outcome    control.Switch
}

// Hint returns the hint that new connections follow.
func (t *Transport) Hint() EffectiveHint {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sources.effective(t.order)
}

// follow returns what connections shall follow from now on.
func (t *Transport) follow() follow {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What is published may have changed since, or gone with an order.
	t.sources.readPublished()
	h := t.sources.effective(t.order)
	f := follow{
		hint: h.Size, origin: h.Origin, completion: completionAdaptive,
		drainTimeout: defaultDrainTimeout, cooldown: defaultCooldown,
	}
	if t.order != nil {
		f.generation = t.order.Generation
	}
	if s := t.settings(); s != nil {
		f.apply(s)
	}
	if t.order != nil {
		f.drainTimeout = max(f.drainTimeout, time.Duration(t.order.DrainTimeoutMS)*time.Millisecond)
	}
	return f
}

// settings are the settings in force: the order's, else the published ones. The
// caller holds mu.
func (t *Transport) settings() *control.Settings {
	if t.order != nil && t.order.Settings != nil {
		return t.order.Settings
	}
	return t.sources.published
}

// Describe implements control.Service.
func (t *Transport) Describe() control.Process {
	p := control.Process{
		Workload: t.sources.workload, Device: t.device, Provider: t.provider, Simulated: t.simulated,
		Hint: t.Hint(), Conns: t.Connections(),
	}
	t.mem.mu.Lock()
	p.Registered = t.mem.bytes
	t.mem.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.order != nil {
		o := *t.order
		p.Order = &o
	}
	p.Settings = t.settings()
	return p
}

// Order implements control.Service: it sets what connections shall follow and,
// when o.Open, switches those below o.Generation and waits for them. What was
// accepted goes on when ctx ends. Asked again with the same id and generation, it
// answers with the outcomes, trying only the deferred ones anew.
func (t *Transport) Order(ctx context.Context, o control.Order) (control.Result, error) {
	if err := t.accept(o); err != nil {
		return control.Result{}, err
	}
	var res control.Result
	if o.Open {
		live := slices.DeleteFunc(t.live(), func(c *Conn) bool { return c.fixed != nil })
		outcomes := make([]control.Outcome, len(live))
		var wg sync.WaitGroup
		for i, c := range live {
			wg.Go(func() { outcomes[i] = control.Outcome{Conn: c.id, Switch: t.switchConn(ctx, c, o)} })
		}
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return control.Result{}, err
		}
		res.Outcomes = outcomes
	}
	res.Process = t.Describe()
	return res, nil
}

// accept takes o as the order in force unless a later one is.
func (t *Transport) accept(o control.Order) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sources.workload != "" && o.Workload != t.sources.workload {
		return fmt.Errorf("order for workload %q, this is %q: %w", o.Workload, t.sources.workload, control.ErrConflict)
	}
	if t.order != nil && o.Generation < t.order.Generation {
		return fmt.Errorf("order of generation %d after %d: %w", o.Generation, t.order.Generation, control.ErrConflict)
	}
	if t.tried == nil || t.order == nil || t.order.Generation != o.Generation {
		t.tried = map[uint64]attempt{}
	}
	t.order = &o
	// What was published may have gone with the order.
	t.sources.readPublished()
	return nil
}

// switchConn asks c to follow o and waits for the outcome.
func (t *Transport) switchConn(ctx context.Context, c *Conn, o control.Order) control.Switch {
	t.mu.Lock()
	a, tried := t.tried[c.id]
	t.mu.Unlock()
	if tried && a.order == o.ID && a.generation == o.Generation && a.outcome.Outcome != control.Deferred {
		return a.outcome
	}
	r := &request{order: o.ID, generation: o.Generation, force: o.Force, reply: make(chan control.Switch, 1)}
	gone := control.Switch{Generation: o.Generation, Order: o.ID, Outcome: control.Gone, When: time.Now()}
	select {
	case c.requests <- r:
	case <-c.gone:
		return gone
	case <-ctx.Done():
		return gone
	}
	select {
	case s := <-r.reply:
		t.mu.Lock()
		if t.tried != nil && t.conns[c.id] == c {
			t.tried[c.id] = attempt{o.ID, o.Generation, s}
		}
		t.mu.Unlock()
		return s
	case <-ctx.Done():
		return gone
	}
}
