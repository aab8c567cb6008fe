package reconcile

import (
	"fmt"

	"github.com/rdmatune/rdmatune/state"
)

// rescue writes the state anew that somebody has removed, or put an older copy in the place
// of, while this loop runs: only it knows the originals then, and the next look would take
// what was set for them. The caller holds the lock.
func (l *Loop) rescue() error {
	known := l.doc
	if known == nil || known.Lineage == "" || l.c.DryRun {
		return nil
	}
	dir := l.c.Node.StateDir()
	now, err := state.Load(dir)
	switch {
	case err != nil:
		return err
	case now.Lineage == known.Lineage && now.Serial >= known.Serial:
		return nil
	case now.Lineage != "" && now.Lineage != known.Lineage:
		return fmt.Errorf("the state in %s is another one than this daemon has kept (lineage %.40s, not %s): put the right one back, or start the daemon anew to go on with this one", dir, now.Lineage, known.Lineage)
	}
	known = known.Clone()
	if err := known.Save(dir); err != nil {
		return err
	}
	l.log.Error("the state was removed or set back while it was in use: it is written anew", "directory", dir, "serial", known.Serial, "found", now.Serial)
	return nil
}
