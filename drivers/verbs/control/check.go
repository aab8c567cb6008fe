package control

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/rdmatune/rdmatune/param"
)

// Bounds of what is accepted from a socket.
const (
	maxText  = 512
	maxConns = 1 << 17
	maxList  = 64 // lanes, switches, losers, notices, bands
	maxBins  = 256
)

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
	return errors.Join(
		inBounds(param.HintSize, s.Size), inBounds(param.HintEagerMax, s.EagerMax),
		inBounds(param.DrainTimeout, s.DrainTimeoutMS), inBounds(param.Cooldown, s.CooldownMS),
	)
}

func (o *Order) check() error {
	if o.ID == "" || o.Workload == "" || o.Generation == 0 {
		return errors.New("order: id, workload and generation are needed")
	}
	if err := errors.Join(text("order id", o.ID), text("workload", o.Workload)); err != nil {
		return err
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
	if len(p.Conns) > maxConns || len(p.Hint.Losers) > maxList || len(p.Hint.Notices) > maxList {
		return errors.New("a list is too long")
	}
	errs := []error{text("workload", p.Workload), text("device", p.Device), text("provider", p.Provider),
		text("origin", p.Hint.Origin), inBounds(param.HintSize, p.Hint.Size)}
	for _, l := range p.Hint.Losers {
		errs = append(errs, text("origin", l.Origin), text("reason", l.Why), inBounds(param.HintSize, l.Size))
	}
	for _, n := range p.Hint.Notices {
		errs = append(errs, text("notice", n))
	}
	if p.Order != nil {
		errs = append(errs, p.Order.check())
	}
	seen := make(map[uint64]bool, len(p.Conns))
	for i := range p.Conns {
		c := &p.Conns[i]
		if seen[c.ID] {
			errs = append(errs, fmt.Errorf("connection %d twice", c.ID))
		}
		seen[c.ID] = true
		errs = append(errs, c.check())
	}
	return errors.Join(errs...)
}

func (c *Conn) check() error {
	if len(c.Lanes) > maxList || len(c.Switches) > maxList {
		return errors.New("a list is too long")
	}
	errs := []error{text("peer", c.Peer), text("profile", c.Profile), text("completion", c.Completion),
		text("origin", c.Origin), text("error", c.Err), inBounds(param.HintSize, c.Hint)}
	if len(c.Bands) > maxList || len(c.Degraded) > maxList {
		return errors.New("a list is too long")
	}
	for _, b := range c.Bands {
		errs = append(errs, text("tier", b.Tier))
	}
	for _, d := range c.Degraded {
		errs = append(errs, text("degraded", d))
	}
	for i := range c.Lanes {
		errs = append(errs, text("profile", c.Lanes[i].Profile), text("completion", c.Lanes[i].Completion))
	}
	errs = append(errs, c.Sent.check(), c.Received.check())
	for i := range c.Switches {
		errs = append(errs, c.Switches[i].check())
	}
	return errors.Join(errs...)
}

func (t *Traffic) check() error {
	if len(t.Tiers) > maxList || len(t.Sizes) > maxBins {
		return errors.New("a list is too long")
	}
	for _, k := range t.Tiers {
		if len(k.Times) > maxBins {
			return errors.New("a list is too long")
		}
		if err := text("tier", k.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Switch) check() error {
	return errors.Join(text("order id", s.Order), text("outcome", s.Outcome), text("reason", s.Reason))
}

func (r *Result) check() error {
	if len(r.Outcomes) > maxConns {
		return errors.New("a list is too long")
	}
	errs := []error{r.Process.check()}
	for i := range r.Outcomes {
		errs = append(errs, r.Outcomes[i].check())
	}
	return errors.Join(errs...)
}
