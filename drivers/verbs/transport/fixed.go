package transport

import (
	"context"
	"errors"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// Settings are what a connection can follow.
type Settings = control.Settings

// originFixed is the origin of a hint that a connection was made with.
const originFixed = "fixed when dialed"

// DialFixed is Dial for a connection that follows s as long as it lives, whatever is
// ordered or published: a measurement of s, beside connections that serve. The peer's
// end sends by s as well if its transport was opened with Options.Mirror; else it
// follows what its own transport does.
func (t *Transport) DialFixed(ctx context.Context, addr string, s Settings) (*Conn, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return t.dialAs(ctx, addr, &s)
}

// fix makes c follow what a dialer asked for, if this transport allows that.
func (c *Conn) fix(m *controlMsg) {
	if c.t.mirror && m.Mirror != nil {
		c.fixed = m.Mirror
		c.generation = 0
	}
}

// follow returns what c shall follow from now on.
func (c *Conn) follow() follow {
	if c.fixed == nil {
		return c.t.follow()
	}
	f := follow{
		hint: c.fixed.Size, origin: originFixed, completion: completionAdaptive,
		drainTimeout: defaultDrainTimeout, cooldown: defaultCooldown,
	}
	f.apply(c.fixed)
	return f
}

// apply sets what s says, but for the hint.
func (f *follow) apply(s *Settings) {
	if s.Completion != nil {
		f.completion = completion(*s.Completion)
	}
	if s.EagerMax != nil {
		f.eagerMax = *s.EagerMax
	}
	f.dual = s.Lanes != nil && *s.Lanes == control.LanesDual
	f.unordered = s.Ordered != nil && !*s.Ordered
	if s.DrainTimeoutMS != nil {
		f.drainTimeout = time.Duration(*s.DrainTimeoutMS) * time.Millisecond
	}
	if s.CooldownMS != nil {
		f.cooldown = time.Duration(*s.CooldownMS) * time.Millisecond
	}
}

// errMirror refuses settings that no connection can have.
var errMirror = errors.New("settings to mirror")
