package drivers

import (
	"context"
	"errors"
	"strings"

	"github.com/rdmatune/rdmatune/param"
)

// Observe discovers and reads the targets of one scope. A target that goes away
// while it is being read is left out.
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
		o.Incomplete = strings.TrimPrefix(err.Error(), ErrIncomplete.Error()+": ")
	case err != nil:
		o.Err = err
	}
	if len(targets) == 0 {
		return o
	}
	for i, r := range read(ctx, d, targets) {
		switch {
		case errors.Is(r.Err, ErrGone):
		case r.Err != nil:
			o.Err = errors.Join(o.Err, r.Err)
		default:
			o.Found = append(o.Found, param.Observed{Target: targets[i], Settings: r.Settings})
		}
	}
	return o
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
