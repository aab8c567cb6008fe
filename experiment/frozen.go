package experiment

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
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
		image, err := readBounded(path)
		if err != nil {
			return nil, err
		}
		wal, err := readBounded(path + "-wal")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		after, err := stamps(path)
		if err != nil {
			return nil, err
		}
		if before == after {
			return withLog(image, wal)
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

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err == nil && len(b) > maxImage {
		err = fmt.Errorf("%s: more than %d GiB", path, maxImage>>30)
	}
	return b, err
}

// Sizes of the file format, in bytes (sqlite.org/fileformat2.html, "The Database Header"
// and "The Write-Ahead Log").
const (
	dbHeader    = 100
	walHeader   = 32
	frameHeader = 24
	walVersion  = 3007000
)

// errDamaged is a file that is no database with a write-ahead log.
var errDamaged = errors.New("it is damaged, or no database of experiments")

// withLog returns a database with what the log has of finished transactions, as one that
// needs no log. What follows an unfinished or damaged frame does not count.
func withLog(image, wal []byte) ([]byte, error) {
	if len(image) < dbHeader || image[18] != 2 || image[19] != 2 { // the versions that mean a log
		return nil, errDamaged
	}
	size, pages, frames, err := readLog(wal)
	if err != nil {
		return nil, err
	}
	if pages > 0 {
		if own := max(int(binary.BigEndian.Uint16(image[16:])), 1); own != size && (own != 1 || size != 1<<16) {
			return nil, fmt.Errorf("%w: pages of %d bytes, in the log of %d", errDamaged, own, size)
		}
		if int64(pages)*int64(size) > maxImage {
			return nil, fmt.Errorf("more than %d GiB", maxImage>>30)
		}
		whole := make([]byte, pages*size)
		copy(whole, image)
		for page, content := range frames {
			if page <= pages {
				copy(whole[(page-1)*size:], content)
			}
		}
		image = whole
	}
	image[18], image[19] = 1, 1
	return image, nil
}

// readLog returns the size of pages in bytes, the number of pages of the database after
// the last finished transaction of a log, 0 for none, and those that it changed, by number.
func readLog(wal []byte) (size, pages int, changed map[int][]byte, err error) {
	if len(wal) < walHeader {
		return 0, 0, nil, nil
	}
	var order binary.ByteOrder
	switch binary.BigEndian.Uint32(wal) {
	case 0x377f0682:
		order = binary.LittleEndian
	case 0x377f0683:
		order = binary.BigEndian
	default:
		return 0, 0, nil, nil // SQLite takes no notice of it, either
	}
	sum := checksum{order: order}
	if sum.add(wal[:24]); !sum.is(wal[24:walHeader]) {
		return 0, 0, nil, nil
	}
	size = int(binary.BigEndian.Uint32(wal[8:]))
	if v := binary.BigEndian.Uint32(wal[4:]); v != walVersion || size < 512 || size > 1<<16 || size&(size-1) != 0 {
		return 0, 0, nil, fmt.Errorf("%w: log of version %d with pages of %d bytes", errDamaged, v, size)
	}
	changed, open := map[int][]byte{}, map[int][]byte{}
	for rest := wal[walHeader:]; len(rest) >= frameHeader+size; rest = rest[frameHeader+size:] {
		head, content := rest[:frameHeader], rest[frameHeader:frameHeader+size]
		sum.add(head[:8])
		sum.add(content)
		page := int(binary.BigEndian.Uint32(head))
		if page == 0 || !bytes.Equal(head[8:16], wal[16:24]) || !sum.is(head[16:]) {
			break // of an earlier use of the log, or cut short
		}
		open[page] = content
		if n := int(binary.BigEndian.Uint32(head[4:])); n > 0 { // it ends a transaction
			pages = n
			maps.Copy(changed, open)
			clear(open)
		}
	}
	return size, pages, changed, nil
}

// A checksum is the running one of a log.
type checksum struct {
	order binary.ByteOrder
	a, b  uint32
}

// add goes on with b, whose length is a multiple of 8.
func (c *checksum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		c.a += c.order.Uint32(b) + c.b
		c.b += c.order.Uint32(b[4:]) + c.a
	}
}

// is reports whether the checksum is the one written in b.
func (c *checksum) is(b []byte) bool {
	return c.a == binary.BigEndian.Uint32(b) && c.b == binary.BigEndian.Uint32(b[4:])
}
