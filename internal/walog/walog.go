// Package walog applies the write-ahead log of an SQLite database to an image of it in
// memory, for readers that cannot write beside it the index that SQLite wants.
package walog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
)

// Sizes of the file format, in bytes (sqlite.org/fileformat2.html, "The Database Header"
// and "The Write-Ahead Log").
const (
	dbHeader    = 100
	walHeader   = 32
	frameHeader = 24
	walVersion  = 3007000
)

// ErrDamaged is a file that is no SQLite database with a write-ahead log.
var ErrDamaged = errors.New("it is damaged, or no database with a write-ahead log")

// Merge returns a database of at most most bytes with what its log has of finished
// transactions, as one that needs no log; it may change image. What follows an unfinished
// or damaged frame does not count. An empty log is one without transactions.
func Merge(image, wal []byte, most int) ([]byte, error) {
	if len(image) < dbHeader || image[18] != 2 || image[19] != 2 { // the versions that mean a log
		return nil, ErrDamaged
	}
	size, pages, frames, err := readLog(wal)
	if err != nil {
		return nil, err
	}
	if pages > 0 {
		if own := max(int(binary.BigEndian.Uint16(image[16:])), 1); own != size && (own != 1 || size != 1<<16) {
			return nil, fmt.Errorf("%w: pages of %d bytes, in the log of %d", ErrDamaged, own, size)
		}
		if pages > most/size {
			return nil, fmt.Errorf("%d pages of %d bytes are more than %d MiB", pages, size, most>>20)
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
		return 0, 0, nil, fmt.Errorf("%w: log of version %d with pages of %d bytes", ErrDamaged, v, size)
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
