package drivers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/param"
)

// Observe discovers and reads the targets of one scope. A target that goes away
// while it is being read is left out; one that cannot be looked at any more is, too, and
// said, as those that Discover could not look at.
func (s Set) Observe(ctx context.Context, k param.Kind, scope param.Scope) param.Observation {
	o := param.Observation{Workload: scope.Workload, Kind: k}
	d, err := s.Driver(k)
	var targets []param.Target
	if err == nil {
		targets, err = d.Discover(ctx, scope)
	}
	switch {
	case errors.Is(err, ErrUnavailable):
		o.Unavailable = err.Error()
	case errors.Is(err, ErrIncomplete):
		o.Incomplete = incomplete(err)
	case err != nil:
		o.Err = err
	}
	if len(targets) == 0 {
		return o
	}
	var unread []string
	for i, r := range read(ctx, d, targets) {
		switch {
		case errors.Is(r.Err, ErrGone):
		case errors.Is(r.Err, ErrIncomplete):
			unread = append(unread, incomplete(r.Err))
		case r.Err != nil:
			o.Err = errors.Join(o.Err, r.Err)
		default:
			o.Found = append(o.Found, param.Observed{Target: targets[i], Settings: r.Settings})
		}
	}
	if len(unread) > 0 {
		if o.Incomplete != "" {
			unread = slices.Insert(unread, 0, o.Incomplete)
		}
		o.Incomplete = Some(unread)
	}
	return o
}

// incomplete is what an ErrIncomplete error says besides.
func incomplete(err error) string {
	return strings.TrimPrefix(err.Error(), ErrIncomplete.Error()+": ")
}

// Some joins texts for a person, who is told of the first four.
func Some(texts []string) string {
	const most = 4
	out := strings.Join(texts[:min(len(texts), most)], "; ")
	if more := len(texts) - most; more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

// Reread reads one target that is known already, such as one that the state
// remembers. ok is false when it is gone.
func (s Set) Reread(ctx context.Context, t param.Target) (o param.Observed, ok bool, err error) {
	d, err := s.Driver(t.Kind)
	if err != nil {
		return o, false, err
	}
	settings, err := d.Read(ctx, t)
	if errors.Is(err, ErrGone) {
		return o, false, nil
	}
	return param.Observed{Target: t, Settings: settings}, err == nil, err
}
