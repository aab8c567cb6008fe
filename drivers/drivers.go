// Package drivers is the seam between what is wanted and what is tuned: the
// Driver interface and the set of drivers by kind. A driver knows nothing of
// specs or plans.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmatune/rdmatune/param"
)

// A Driver discovers, reads and writes one kind of target. Its methods may be
// called from several goroutines, but never two for the same target at a time.
type Driver interface {
	// Kind is the kind of target that the driver handles.
	Kind() param.Kind

	// Discover returns the targets of s that exist now, sorted by name. What the
	// node cannot have at all is ErrUnavailable; a scope that has nothing yet (no
	// process) is an empty list and no error.
	Discover(ctx context.Context, s param.Scope) ([]param.Target, error)

	// Read returns all settings of t in force. A setting that could not be read has
	// an unknown value that says why; the error is for a target that is gone
	// (ErrGone), has stopped to answer (ErrIncomplete), or cannot be reached at all.
	Read(ctx context.Context, t param.Target) ([]param.Setting, error)

	// Apply makes cs true on t with at most one interruption, reads back, and
	// returns what is now in force, also when the error is not nil. Settings already
	// in force are not written again. A value that reads back different from what
	// was asked is an error that names both.
	Apply(ctx context.Context, t param.Target, cs []param.Change, o param.Order) ([]param.Setting, error)
}

// A Preparer is a driver that wants to tell all targets of one order before the
// first of them moves: two ends of one connection then switch it once, not twice.
type Preparer interface {
	Prepare(ctx context.Context, targets []param.Target, o param.Order) error
}

// A Filer is a driver whose settings are files, so that their writers can be seen and a
// look at them costs one read each.
type Filer interface {
	// Files returns the files that hold the settings of each of ts, by parameter; nil for a
	// target that is gone or cannot be looked at.
	Files(ts []param.Target) []map[param.ID]string
}

// A ManyReader is a driver for which reading many targets at once is cheaper than one by
// one.
type ManyReader interface {
	// ReadMany is Read for each of ts, with one result each.
	ReadMany(ctx context.Context, ts []param.Target) []Reading
}

// A Reading is what Read returns.
type Reading struct {
	Settings []param.Setting
	Err      error
}

// read reads many targets in the way that d does best.
func read(ctx context.Context, d Driver, ts []param.Target) []Reading {
	if many, ok := d.(ManyReader); ok {
		return many.ReadMany(ctx, ts)
	}
	out := make([]Reading, len(ts))
	for i, t := range ts {
		out[i].Settings, out[i].Err = d.Read(ctx, t)
	}
	return out
}

// Errors that drivers wrap. Match them with errors.Is.
var (
	// ErrUnavailable: this node has no such thing (no cpufreq, no such netdev, a
	// field that the kernel driver does not offer). A note, never a failure.
	ErrUnavailable = errors.New("not available here")
	// ErrGone: the target went away (a process exited, a driver was unbound).
	ErrGone = errors.New("gone")
	// ErrIncomplete: some things could not be looked at, and may be targets as well;
	// Discover returns the others beside it, and of a known target Read returns it. A
	// note, never a failure.
	ErrIncomplete = errors.New("incomplete")
	// ErrDeferred: decided, but cannot happen now (cooldown, peer busy); the text
	// says until when. The change becomes pending.
	ErrDeferred = errors.New("deferred")
	// ErrPartly: the kernel took what it can take now, and the driver returns that; the
	// same change completes it once what the text names is back. Only restoring is ever
	// done in part. The change becomes pending.
	ErrPartly = errors.New("in part")
	// ErrRefused: a peer or a process refused a switch; the connection stays as it was.
	ErrRefused = errors.New("refused")
)

// A Set holds at most one driver per kind.
type Set map[param.Kind]Driver

// NewSet returns the set of ds. Two drivers of one kind are a programmer's error.
func NewSet(ds ...Driver) Set {
	s := make(Set, len(ds))
	for _, d := range ds {
		if _, dup := s[d.Kind()]; dup {
			panic("drivers: two drivers for " + string(d.Kind()))
		}
		s[d.Kind()] = d
	}
	return s
}

// Driver returns the driver of k, or an ErrUnavailable error.
func (s Set) Driver(k param.Kind) (Driver, error) {
	if d, ok := s[k]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("%s: no driver: %w", k, ErrUnavailable)
}

// Lookup returns the setting of id and index in ss.
func Lookup(ss []param.Setting, id param.ID, index string) (param.Setting, bool) {
	i := slices.IndexFunc(ss, func(s param.Setting) bool { return s.ID == id && s.Index == index })
	if i < 0 {
		return param.Setting{}, false
	}
	return ss[i], true
}
