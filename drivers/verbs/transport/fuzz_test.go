package transport

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdmatune/rdmatune/param"
)

func FuzzHeader(f *testing.F) {
	for _, h := range []header{
		{kind: segData, serial: 200, credits: 3, seq: 1},
		{kind: segOffer, seq: 1, total: 1 << 20},
		{kind: segAnswer, seq: 1, rkey: 7, addr: 1 << 47},
		{kind: segFinish, seq: 9}, {kind: segDrop, seq: 9}, {kind: segGone, seq: 9},
		{kind: segCredit, credits: 1 << 31}, {kind: segMarker},
		{kind: segVote, seq: 3, total: 2, addr: 5 << 32},
		{kind: segCommit, seq: 1 << 63, total: 7},
	} {
		b := make([]byte, h.size()+5)
		h.put(b)
		f.Add(b)
		f.Add(b[:h.size()])
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if h.kind != segData && len(b) != longHeaderLen || h.addr+MaxMessage < h.addr && h.kind == segAnswer || h.total > MaxMessage && h.kind == segOffer {
			t.Fatalf("%d bytes accepted as %+v", len(b), h)
		}
		again := make([]byte, h.size())
		h.put(again)
		if !bytes.Equal(again, b[:h.size()]) {
			t.Fatalf("%x reads as %+v, which is %x", b[:h.size()], h, again)
		}
	})
}

func FuzzControl(f *testing.F) {
	for _, s := range []string{
		`{"type":"hello","version":4,"provider":"soft","wants":[{"credits":16,"segment":8256}]}`,
		`{"type":"propose","epoch":2,"nonce":18446744073709551615,"wants":[{"credits":16,"segment":8256},{"credits":256,"segment":64}],"unordered":true,"timeout_ms":2000}`,
		`{"type":"accept","epoch":2,"wants":[{"credits":1,"segment":88}],"lanes":[{"grant":{"credits":1,"segment":88},` +
			`"endpoint":{"gid":"00000000000000000000ffff7f000001","lid":0,"qpn":17,"psn":5,"service":4000,"mtu":4096}}]}`,
		`{"type":"refuse","reason":"busy","retry_after_ms":100}`,
		`{"type":"bye","last":7,"received":3}`,
		`{"type":"accept"}`, `{"type":"connect","lanes":[{"endpoint":{"gid":"zz"}}]}`, `[]`, ``,
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
