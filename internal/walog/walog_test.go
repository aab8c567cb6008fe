package walog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

const size = 512 // of the pages in these tests, in bytes

// database is one of one page of zeros.
func database() []byte {
	b := make([]byte, size)
	b[16], b[18], b[19] = 2, 2, 2
	return b
}

// A frame is one of a log: its page filled with a byte, and the number of pages of the
// database when it ends a transaction.
type frame struct {
	page, pages uint32
	content     byte
}

// log makes a log of frames with checksums in order.
func log(order binary.ByteOrder, frames ...frame) []byte {
	magic := uint32(0x377f0682)
	if order == binary.BigEndian {
		magic = 0x377f0683
	}
	var b []byte
	for _, n := range []uint32{magic, walVersion, size, 0, 1, 2} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	sum := checksum{order: order}
	seal := func() {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, sum.a), sum.b)
	}
	sum.add(b)
	seal()
	for _, f := range frames {
		head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, f.page), f.pages)
		content := bytes.Repeat([]byte{f.content}, size)
		sum.add(head)
		sum.add(content)
		b = append(append(b, head...), b[16:24]...)
		seal()
		b = append(b, content...)
	}
	return b
}

func TestMerge(t *testing.T) {
	const whole = frameHeader + size
	three := []frame{{2, 0, 7}, {3, 3, 8}, {2, 2, 9}} // two transactions; the second one shrinks it
	for name, c := range map[string]struct {
		wal  []byte
		want string // first bytes of the pages after the first; "" for no change
	}{
		"none":                           {nil, ""},
		"a header":                       {log(binary.LittleEndian), ""},
		"two transactions":               {log(binary.LittleEndian, three...), "\x09"},
		"in the other order":             {log(binary.BigEndian, three...), "\x09"},
		"the second is unfinished":       {log(binary.LittleEndian, append(slices.Clone(three[:2]), frame{2, 0, 9})...), "\x07\x08"},
		"the second is cut":              {log(binary.LittleEndian, three...)[:walHeader+3*whole-1], "\x07\x08"},
		"the first is cut":               {log(binary.LittleEndian, three...)[:walHeader+2*whole-1], ""},
		"a page that is not there":       {log(binary.LittleEndian, frame{0, 1, 7}), ""},
		"a page behind the end":          {log(binary.LittleEndian, frame{9, 0, 7}, frame{2, 2, 5}), "\x05"},
		"frames of an earlier use":       {append(log(binary.LittleEndian, three[:2]...), log(binary.BigEndian, three...)[walHeader:]...), "\x07\x08"},
		"pages that were never written":  {log(binary.LittleEndian, frame{4, 4, 6}), "\x00\x00\x06"},
		"a header with another checksum": {append([]byte{0x37, 0x7f, 6, 0x83}, log(binary.LittleEndian, three...)[4:]...), ""},
		"another file":                   {bytes.Repeat([]byte("x"), 4096), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Merge(database(), c.wal, 1<<20)
			if err != nil || len(got) != size*(1+len(c.want)) || got[18] != 1 || got[19] != 1 {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			for i := range len(c.want) {
				if page := got[(i+1)*size : (i+2)*size]; !bytes.Equal(page, bytes.Repeat([]byte{c.want[i]}, size)) {
					t.Errorf("page %d begins with %v", i+2, page[:8])
				}
			}
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	rollback, other := database(), database()
	rollback[18], rollback[19] = 1, 1
	other[16] = 16 // pages of 4096 bytes
	good := log(binary.LittleEndian, frame{2, 2, 7})
	for name, c := range map[string]struct {
		image, wal []byte
		damaged    bool
	}{
		"nothing":           {nil, nil, true},
		"no log is kept":    {rollback, nil, true},
		"another page size": {other, good, true},
		"too large":         {database(), log(binary.LittleEndian, frame{2, 1 << 31, 7}), false},
	} {
		if got, err := Merge(c.image, c.wal, 1<<20); err == nil || errors.Is(err, ErrDamaged) != c.damaged {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// FuzzLog reads logs of any frames; sealed gives them right checksums.
func FuzzLog(f *testing.F) {
	framed := func(page, pages uint32, content byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, page)
		b = binary.BigEndian.AppendUint32(b, pages)
		b = append(b, "saltsalt--------"...)
		return append(b, bytes.Repeat([]byte{content}, size)...)
	}
	image := database()
	f.Add(image, slices.Concat(framed(1, 0, 2), framed(2, 2, 7)), true)
	f.Add(image, framed(3, 1, 2), true)
	f.Add(image, framed(1, 1, 2)[:100], false)
	f.Add([]byte{}, []byte{}, false)
	f.Fuzz(func(t *testing.T, image, frames []byte, sealed bool) {
		wal := binary.BigEndian.AppendUint32(nil, 0x377f0682)
		wal = binary.BigEndian.AppendUint32(wal, walVersion)
		wal = binary.BigEndian.AppendUint32(wal, size)
		wal = append(wal, "\x00\x00\x00\x00saltsalt"...)
		sum := checksum{order: binary.LittleEndian}
		sum.add(wal)
		seal := func(b []byte) []byte {
			return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, sum.a), sum.b)
		}
		wal = append(seal(wal), frames...)
		for rest := wal[walHeader:]; sealed && len(rest) >= frameHeader+size; rest = rest[frameHeader+size:] {
			sum.add(rest[:8])
			sum.add(rest[frameHeader : frameHeader+size])
			copy(rest[16:], seal(nil))
		}
		_, pages, changed, err := readLog(wal)
		if err != nil || len(changed) > len(wal)/size || pages == 0 && len(changed) > 0 {
			t.Fatalf("%d pages, %d changed, %v", pages, len(changed), err)
		}
		if out, err := Merge(bytes.Clone(image), wal, 1<<21); err == nil && (out[18] != 1 || pages > 0 && len(out) != pages*size) {
			t.Fatalf("%d bytes for %d pages", len(out), pages)
		}
	})
}
