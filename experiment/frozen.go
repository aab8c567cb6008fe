package experiment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rdmatune/rdmatune/internal/smallfile"
	"github.com/rdmatune/rdmatune/internal/walog"
)

// maxImage bounds a database that is read into memory, in bytes.
const maxImage = 1 << 30

// needsWriting reports whether SQLite gave up on a database since it could write nothing
// beside it: also a reader of one with a write-ahead log makes that log's index.
func needsWriting(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL:
		return true
	}
	return false
}

// openFrozen opens the database of dir as it is now, in memory, with what its write-ahead
// log has. It writes no file: for where none can be, on a full disk or a read-only file
// system. One that an older rdmatune wrote is brought up to date there.
func openFrozen(ctx context.Context, dir string) (_ *DB, err error) {
	image, err := readImage(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	q := url.Values{"_pragma": {"foreign_keys(1)", "temp_store(MEMORY)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file::memory:?"+q.Encode())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	db.SetMaxOpenConns(1) // which has the database, and stays
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	err = c.Raw(func(driver any) error {
		d, ok := driver.(interface{ Deserialize([]byte) error })
		if !ok {
			return errors.New("the library takes no image of a database")
		}
		return d.Deserialize(image)
	})
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	d := &DB{db}
	return d, d.migrate(ctx)
}

// readImage reads a database with its write-ahead log. Nothing locks out a writer, which
// may come by another mount of the file system: what changed meanwhile is read again.
func readImage(path string) ([]byte, error) {
	const tries = 3
	for range tries {
		before, err := stamps(path)
		if err != nil {
			return nil, err
		}
		image, err := smallfile.Read(path, maxImage, smallfile.Any)
		if err != nil {
			return nil, err
		}
		wal, err := smallfile.Read(path+"-wal", maxImage, smallfile.Any)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		after, err := stamps(path)
		if err != nil {
			return nil, err
		}
		if before == after {
			if image, err = walog.Merge(image, wal, maxImage); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return image, nil
		}
	}
	return nil, fmt.Errorf("%s: it is being written", path)
}

// A stamp tells a file's content from another.
type stamp struct {
	size, changed int64 // bytes; nanoseconds
	there         bool
}

// stamps are those of a database, which must be there, and of its log.
func stamps(path string) (out [2]stamp, err error) {
	for i, name := range []string{path, path + "-wal"} {
		st, err := os.Stat(name)
		if i > 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		out[i] = stamp{st.Size(), st.ModTime().UnixNano(), true}
	}
	return out, nil
}
