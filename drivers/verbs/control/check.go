package control

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/rdmatune/rdmatune/param"
)

// maxText bounds a text that is accepted from a socket, in bytes.
const maxText = 512

// first returns the first of errs that is one. What comes from a socket is refused as
// a whole, so one reason is enough, and as many as there are elements are no message.
func first(errs ...error) error { return cmp.Or(errs...) }

func inBounds(id param.ID, n *int64) error {
	if n == nil {
		return nil
	}
	r, _ := param.Lookup(id)
	if *n < r.Min || *n > r.Max {
		return fmt.Errorf("%s: %d is not between %d and %d", id, *n, r.Min, r.Max)
	}
	return nil
}

func text(what, s string) error {
	if len(s) > maxText {
		return fmt.Errorf("%s: %d bytes", what, len(s))
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s: not UTF-8", what)
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return fmt.Errorf("%s: unprintable character %U", what, r)
		}
	}
	return nil
}

func (l Texts) check(what string) error {
	for _, s := range l {
		if err := text(what, s); err != nil {
			return err
		}
	}
	return nil
}

// counts reports the first of numbers that is below 0.
func counts(what string, numbers ...int64) error {
	for _, n := range numbers {
		if n < 0 {
			return fmt.Errorf("%s: %d is below 0", what, n)
		}
	}
	return nil
}

// Check reports what is wrong with settings from outside.
func (s *Settings) Check() error {
	if s.Completion != nil {
		switch *s.Completion {
		case "adaptive", "busy", "event":
		default:
			return fmt.Errorf("%s: %.20q is not adaptive, busy or event", param.HintCompletion, *s.Completion)
		}
	}
	if s.Lanes != nil && *s.Lanes != LanesSingle && *s.Lanes != LanesDual {
		return fmt.Errorf("%s: %.20q is not single or dual", param.HintLanes, *s.Lanes)
	}
	return first(
		inBounds(param.HintSize, s.Size), inBounds(param.HintEagerMax, s.EagerMax),
		inBounds(param.DrainTimeout, s.DrainTimeoutMS), inBounds(param.Cooldown, s.CooldownMS),
	)
}

func (o *Order) check() error {
	if o.ID == "" || o.Workload == "" || o.Generation == 0 {
		return errors.New("order: id, workload and generation are needed")
	}
	if err := first(text("order id", o.ID), text("workload", o.Workload)); err != nil {
		return err
	}
	if o.DrainTimeoutMS != 0 {
		if err := inBounds(param.DrainTimeout, &o.DrainTimeoutMS); err != nil {
			return err
		}
	}
	if o.Settings != nil {
		return o.Settings.Check()
	}
	return nil
}

// check reports what is wrong with what a process said of itself.
func (p *Process) check() error {
	if p.Version != Version {
		return fmt.Errorf("version %d of the socket, known is %d", p.Version, Version)
	}
	err := first(text("workload", p.Workload), text("device", p.Device), text("provider", p.Provider),
		text("origin", p.Hint.Origin), inBounds(param.HintSize, p.Hint.Size), p.Hint.Notices.check("notice"), counts("registered", p.Registered))
	if err != nil {
		return err
	}
	for _, l := range p.Hint.Losers {
		if err := first(text("origin", l.Origin), text("reason", l.Why), inBounds(param.HintSize, l.Size)); err != nil {
			return err
		}
	}
	if p.Order != nil {
		if err := p.Order.check(); err != nil {
			return err
		}
	}
	if p.Settings != nil {
		if err := p.Settings.Check(); err != nil {
			return err
		}
	}
	seen := make(map[uint64]bool, len(p.Conns))
	for i := range p.Conns {
		c := &p.Conns[i]
		if seen[c.ID] {
			return fmt.Errorf("connection %d twice", c.ID)
		}
		seen[c.ID] = true
		if err := c.check(); err != nil {
			return fmt.Errorf("connection %d: %w", c.ID, err)
		}
	}
	return nil
}

func (c *Conn) check() error {
	err := first(text("peer", c.Peer), text("profile", c.Profile), text("completion", c.Completion),
		text("origin", c.Origin), text("error", c.Err), inBounds(param.HintSize, c.Hint), c.Degraded.check("degraded"),
		counts("size", c.Eager, c.Inline, c.Registered), c.Sent.check(), c.Received.check())
	if err != nil {
		return err
	}
	for _, b := range c.Bands {
		if err := first(text("tier", b.Tier), counts("band", b.From, b.To, int64(b.Lane))); err != nil {
			return err
		}
	}
	for i := range c.Lanes {
		if err := c.Lanes[i].check(); err != nil {
			return err
		}
	}
	for i := range c.Switches {
		if err := c.Switches[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lane) check() error {
	return first(text("profile", l.Profile), text("completion", l.Completion),
		counts("lane", int64(l.Index), int64(l.SendWR), int64(l.RecvWR), int64(l.MaxInline), int64(l.Segment),
			int64(l.Depth), int64(l.HighWater), l.Registered))
}

func (t *Traffic) check() error {
	for _, k := range t.Tiers {
		if err := first(text("tier", k.Name), k.Times.check("times")); err != nil {
			return err
		}
	}
	return t.Sizes.check("sizes")
}

// check also bounds what the bins count together, so that whoever adds them up needs
// to fear no overflow.
func (l Bins) check(what string) error {
	total, last := uint64(0), int64(-1)
	for _, b := range l {
		if b.From <= last {
			return fmt.Errorf("%s: a bin from %d after one from %d", what, b.From, last)
		}
		if b.Count > math.MaxInt64-total {
			return fmt.Errorf("%s: a bin of %d", what, b.Count)
		}
		last, total = b.From, total+b.Count
	}
	return nil
}

func (s *Switch) check() error {
	return first(text("order id", s.Order), text("outcome", s.Outcome), text("reason", s.Reason),
		counts("switch", int64(s.RetryAfter), int64(s.Pause), int64(s.Drained), int64(s.Held)))
}

func (r *Result) check() error {
	for i := range r.Outcomes {
		if err := r.Outcomes[i].check(); err != nil {
			return err
		}
	}
	return r.Process.check()
}
