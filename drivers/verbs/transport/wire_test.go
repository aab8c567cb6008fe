package transport

import (
	"bytes"
	"encoding/hex"
	"io"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// TestHeaderLayout pins the bytes on the wire: two versions of this program on two
// nodes must agree on them.
func TestHeaderLayout(t *testing.T) {
	for _, c := range []struct {
		h    header
		want string
	}{
		{header{kind: segData, tier: tierEager, serial: 7, credits: 0x01020304, seq: 0x1112131415161718}, "01040107" + "01020304" + "1112131415161718"},
		{header{kind: segOffer, seq: 5, total: 0x20000001}, "02040000" + "00000000" + "0000000000000005" + "20000001" + "00000000" + "0000000000000000"},
		{header{kind: segAnswer, credits: 9, seq: 5, rkey: 0x21222324, addr: 0x3132333435363738},
			"03040000" + "00000009" + "0000000000000005" + "00000000" + "21222324" + "3132333435363738"},
	} {
		b := make([]byte, c.h.size())
		c.h.put(b)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("header %s, want %s", got, c.want)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	data := header{kind: segData, seq: 1}
	offer := header{kind: segOffer, seq: 1, total: 8}
	with := func(h header, change func(*header)) header {
		change(&h)
		return h
	}
	encode := func(h header, extra int) []byte {
		b := make([]byte, h.size()+extra)
		h.put(b)
		return b
	}
	for _, h := range []header{data, offer, {kind: segAnswer, seq: 1, rkey: 1, addr: 1}, {kind: segVote, total: 3, addr: 7}, {kind: segCredit, credits: 3}} {
		if got, err := parseHeader(encode(h, 0)); err != nil || got != h {
			t.Errorf("%+v reads as %+v, %v", h, got, err)
		}
	}
	spoilt := func(at int, to byte) []byte {
		b := encode(data, 4)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"short":                    encode(data, 0)[:headerLen-1],
		"unknown kind":             spoilt(0, 99),
		"other version":            spoilt(1, 1),
		"message 0":                spoilt(15, 0),
		"unknown tier":             spoilt(2, 2),
		"offer of nothing":         encode(with(offer, func(h *header) { h.total = 0 }), 0),
		"offer too large":          encode(with(offer, func(h *header) { h.total = MaxMessage + 1 }), 0),
		"offer with a payload":     encode(offer, 1),
		"offer cut short":          encode(offer, 0)[:longHeaderLen-1],
		"answer at the end of all": encode(header{kind: segAnswer, seq: 1, addr: math.MaxUint64 - 5}, 0),
		"finish with an address":   encode(header{kind: segFinish, seq: 1, addr: 1}, 0),
		"a vote with payload":      encode(header{kind: segVote, total: 3}, 1),
		"credit for a message":     encode(header{kind: segCredit, seq: 1}, 0),
	} {
		if h, err := parseHeader(b); err == nil {
			t.Errorf("%s: accepted as %+v", name, h)
		}
	}
}

func TestControlMessages(t *testing.T) {
	m := &controlMsg{Type: msgRefuse, Epoch: 3, Reason: strings.Repeat("x", 1000)}
	var w bytes.Buffer
	if err := writeControl(&w, m); err != nil {
		t.Fatal(err)
	}
	got, err := readControl(&w)
	if err != nil || got.Epoch != 3 || len(got.Reason) != maxReason {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHostileHello checks that a listener outlives whatever connects to it.
func TestHostileHello(t *testing.T) {
	t.Setenv("RDMATUNE_DEVICE", "") // the messages below are a soft device's
	a := openSoft(t, Options{}, soft.Provider{})
	b := openSoft(t, Options{}, soft.Provider{})
	l, err := b.Listen(t.Context(), "127.0.0.1:0", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	msg := func(s string) string { return string([]byte{0, 0, 0, byte(len(s))}) + s }
	for name, bytes := range map[string]string{
		"HTTP":           "GET / HTTP/1.1\r\n\r\n",
		"huge":           "\xff\xff\xff\xff",
		"not JSON":       msg("{"),
		"not a hello":    msg(`{"type":"ready"}`),
		"other version":  msg(`{"type":"hello","version":9,"provider":"soft","wants":[{"credits":1,"segment":1000}]}`),
		"other provider": msg(`{"type":"hello","version":4,"provider":"ibverbs","wants":[{"credits":1,"segment":1000}]}`),
		"no credits":     msg(`{"type":"hello","version":4,"provider":"soft","wants":[{"credits":0,"segment":1000}]}`),
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(bytes)); err != nil {
			t.Fatal(err)
		}
		reply, err := io.ReadAll(c) // until the listener closes it
		if strings.HasPrefix(name, "other") && !strings.Contains(string(reply), "unsupported") {
			t.Errorf("%s: answer %q, %v", name, reply, err)
		}
		c.Close()
	}
	// A peer that accepts and then names an endpoint on another host.
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, msg(`{"type":"hello","version":4,"provider":"soft","wants":[{"credits":1,"segment":1000}]}`))
	if m, err := readControl(c); err != nil || m.Type != msgAccept {
		t.Fatalf("%+v, %v", m, err)
	}
	err = writeControl(c, &controlMsg{Type: msgConnect, Lanes: []wireLane{{Grant: want{1, 1000},
		Endpoint: endpoint{GID: "00000000000000000000ffffc0000201", QPN: 5, Service: 80, MTU: 1024}}}})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := io.ReadAll(c); err == nil && len(reply) > 0 {
		t.Errorf("an endpoint elsewhere is answered with %q", reply)
	}
	eventually(t, "no lane is left", func() bool { return resources(t, b).lanes == 0 })
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil || host != "127.0.0.1" {
		t.Fatal(host, err)
	}
	ca, err := a.Dial(t.Context(), net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	cb, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Send(t.Context(), []byte("alive")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if n, err := cb.Recv(t.Context(), buf); err != nil || string(buf[:n]) != "alive" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}
