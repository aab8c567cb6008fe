package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/state"
)

// lock takes the node's lock, waiting for whoever holds it until ctx ends. A wait that is
// longer than a pass of somebody else should take is told, once.
func (l *Loop) lock(ctx context.Context) (*state.Lock, error) {
	began, told := time.Now(), false
	for {
		lock, err := state.Acquire(l.c.Node.RunDir(), l.c.Owner)
		if _, locked := errors.AsType[*state.LockedError](err); !locked {
			return lock, err
		}
		if !told && time.Since(began) > lockedLong {
			told = true
			l.log.Warn("waiting for the node's lock", "error", err)
			l.update(func(s *Status) {
				s.Problems = append(slices.Clone(s.Problems), "nothing is kept meanwhile: "+err.Error())
			})
		}
		l.alive()
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockedRetry):
		}
	}
}
