package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Damaged reports whether err says that a file is no database, or one that is damaged.
func Damaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_NOTADB || e.Code()&0xff == sqlite3.SQLITE_CORRUPT)
}

// OpenSound is Open; but a database that is damaged is set aside first, and told is called
// with the name that it has then, and what was found. To tune a node, and to restore it,
// goes before to keep the records of that.
func OpenSound(ctx context.Context, dir string, told func(name string, damage error)) (*DB, error) {
	db, damage := Open(ctx, dir)
	if !Damaged(damage) {
		return db, damage
	}
	name, err := setAside(dir, time.Now())
	if err != nil {
		return nil, errors.Join(damage, err)
	}
	told(name, damage)
	return Open(ctx, dir)
}

// setAside gives the database of a state directory another name, with its log, so that the
// next Open begins a new one, and returns that name. It is for one that is damaged: nobody
// has it open, as nobody can.
func setAside(dir string, now time.Time) (string, error) {
	from := filepath.Join(dir, fileName)
	to := from + ".damaged-" + now.UTC().Format("20060102T150405.000")
	for _, suffix := range []string{"-wal", "-shm", ""} { // the database last: until then it is not set aside
		if err := os.Rename(from+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", fmt.Errorf("experiments: set the damaged database aside: %w", err)
		}
	}
	return to, nil
}
