package experiment

import (
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

// SetAside gives the database of a state directory another name, with its log, so that the
// next Open begins a new one, and returns that name. It is for one that is damaged: nobody
// has it open, as nobody can.
func SetAside(dir string, now time.Time) (string, error) {
	from := filepath.Join(dir, fileName)
	to := from + ".damaged-" + now.UTC().Format("20060102T150405.000")
	for _, suffix := range []string{"-wal", "-shm", ""} { // the database last: until then it is not set aside
		if err := os.Rename(from+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", fmt.Errorf("experiments: set the damaged database aside: %w", err)
		}
	}
	return to, nil
}
