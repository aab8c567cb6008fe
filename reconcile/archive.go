package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
)

// How old records go: a heal that wants to record itself waits for no more than one step.
const (
	pruneStep  = 20                     // records in one transaction
	prunePause = 200 * time.Millisecond // between two
)

// An archive is where the daemon's records of what it did are kept to a number, beside the
// loop.
type archive struct {
	keep  chan int      // how many, the latest wish
	left  chan struct{} // closed when nobody prunes any more
	count int           // of records since the start
}

func newArchive() *archive { return &archive{keep: make(chan int, 1), left: make(chan struct{})} }

// added says that there is a record more, and how many are to be kept; it leads to pruning
// once in pruneStep times, the first time at once. One goroutine at a time calls it.
func (a *archive) added(keep int) {
	if a.count++; a.count%pruneStep != 1 {
		return
	}
	select {
	case <-a.keep:
	default:
	}
	a.keep <- keep
}

// experiments opens the database for the record of what is about to be done. To keep the
// node goes before to keep the records: a database that is damaged is set aside.
func (l *Loop) experiments(ctx context.Context) (*experiment.DB, error) {
	return experiment.OpenSound(ctx, l.c.Node.StateDir(), func(name string, damage error) {
		l.log.Error("the experiment database is damaged: it was set aside, and a new one is begun", "name", name, "error", damage)
	})
}

// prune removes old records when there are new ones, until ctx ends.
func (l *Loop) prune(ctx context.Context) {
	defer close(l.archive.left)
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case keep := <-l.archive.keep:
			n, err := pruneTo(ctx, l.c.Node.StateDir(), keep)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !failed:
				l.log.Warn("old records stay in the experiment database", "error", err)
			case n > 0:
				l.log.Debug("old records removed", "experiments", n, "kept", keep)
			}
			failed = err != nil
		}
	}
}

// pruneTo removes the daemon's records but for the newest keep, in small steps, and returns
// how many it has removed.
func pruneTo(ctx context.Context, dir string, keep int) (total int, err error) {
	db, err := experiment.Open(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for {
		n, err := db.Prune(ctx, experiment.Reconcile, keep, pruneStep)
		total += n
		if err != nil || n < pruneStep {
			return total, err
		}
		select {
		case <-ctx.Done():
			return total, nil
		case <-time.After(prunePause):
		}
	}
}
