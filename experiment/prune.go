package experiment

import (
	"context"
	"fmt"
)

// Prune removes the oldest of this node's experiments of one kind, so that the newest keep
// of them remain, and returns how many it has removed: at most a few, most, in one
// transaction, so that nobody waits long for it. What was imported, and one that is still
// running, is neither counted nor removed. The database's file does not shrink; what is
// recorded later uses the pages that have become free.
func (d *DB) Prune(ctx context.Context, kind Kind, keep, most int) (int, error) {
	const mine = "kind = ?1 AND status <> ?2 AND json_extract(detail, '$.origin') IS NULL"
	res, err := d.sql.ExecContext(ctx, `DELETE FROM experiments WHERE id IN (
		SELECT id FROM experiments WHERE `+mine+` ORDER BY time, id
		LIMIT min(?4, max(0, (SELECT count(*) FROM experiments WHERE `+mine+`) - ?3)))`,
		string(kind), string(Running), max(keep, 0), max(most, 0))
	if err != nil {
		return 0, fmt.Errorf("experiments: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}
