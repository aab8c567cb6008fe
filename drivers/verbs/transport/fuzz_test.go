package transport

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdmatune/rdmatune/param"
)

func FuzzHeader(f *testing.F) {
	for _, h := range []header{
		{kind: segData, credits: 3, seq: 1, total: 5, offset: 0},
		{kind: segCommit, seq: 1 << 63, total: 7},
		{kind: segAbandon, seq: 9},
	} {
		b := make([]byte, headerLen+5)
		h.put(b)
		f.Add(b)
		f.Add(b[:headerLen])
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if n := len(b) - headerLen; uint64(h.offset)+uint64(n) > MaxMessage || h.kind == segData && n > int(h.total) {
			t.Fatalf("%d bytes accepted as %+v", n, h)
		}
		again := make([]byte, headerLen)
		h.put(again)
		if !bytes.Equal(again, b[:headerLen]) {
			t.Fatalf("%x reads as %+v, which is %x", b[:headerLen], h, again)
		}
	})
}

func FuzzControl(f *testing.F) {
	for _, s := range []string{
		`{"type":"hello","version":1,"provider":"soft","want":{"credits":16,"segment":8256}}`,
		`{"type":"propose","epoch":2,"nonce":18446744073709551615,"want":{"credits":16,"segment":8256},"timeout_ms":2000}`,
		`{"type":"accept","epoch":2,"want":{"credits":1,"segment":88},"grant":{"credits":1,"segment":88},` +
			`"endpoint":{"gid":"00000000000000000000ffff7f000001","lid":0,"qpn":17,"psn":5,"service":4000,"mtu":4096}}`,
		`{"type":"refuse","reason":"busy","retry_after_ms":100}`,
		`{"type":"bye","last":7,"received":3}`,
		`{"type":"accept"}`, `{"type":"connect","endpoint":{"gid":"zz"}}`, `[]`, ``,
	} {
		f.Add(binary.BigEndian.AppendUint32(nil, uint32(len(s))), []byte(s))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte("x"))
	f.Fuzz(func(t *testing.T, length, body []byte) {
		m, err := readControl(bytes.NewReader(append(bytes.Clone(length), body...)))
		if err != nil {
			return
		}
		var w bytes.Buffer
		if err := writeControl(&w, m); err != nil {
			t.Fatal(err)
		}
		if _, err := readControl(&w); err != nil {
			t.Fatalf("%s was accepted, but not as written again: %v", body, err)
		}
	})
}

func FuzzParseHint(f *testing.F) {
	for _, s := range []string{"0", "16KiB", "16K", "1GiB", "2GiB", "99999999999999999999", "-1", "1.5M", "inf", " 1", "8 B", "KiB", "1kib"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, _, err := ParseHint(s)
		if err == nil && (n < 0 || n > param.MaxHint) || err != nil && n != 0 {
			t.Fatalf("%q: %d, %v", s, n, err)
		}
	})
}
