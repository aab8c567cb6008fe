package transport

import (
	"bytes"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// TestHeaderLayout pins the bytes on the wire: two versions of this program on two
// nodes must agree on them.
func TestHeaderLayout(t *testing.T) {
	b := make([]byte, headerLen)
	header{kind: segData, credits: 0x01020304, seq: 0x1112131415161718, total: 0x21222324, offset: 0x20000000}.put(b)
	const want = "01010000" + "01020304" + "1112131415161718" + "21222324" + "20000000"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("header %s, want %s", got, want)
	}
}

func TestBadHeaders(t *testing.T) {
	good := func() []byte {
		b := make([]byte, headerLen+4)
		header{kind: segData, seq: 1, total: 8}.put(b)
		return b
	}
	if _, err := parseHeader(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":               func(b []byte) []byte { return b[:headerLen-1] },
		"unknown kind":        func(b []byte) []byte { b[0] = 99; return b },
		"other version":       func(b []byte) []byte { b[1] = 2; return b },
		"reserved bytes":      func(b []byte) []byte { b[3] = 1; return b },
		"sequence 0":          func(b []byte) []byte { b[15] = 0; return b },
		"beyond the message":  func(b []byte) []byte { b[23] = 5; return b },
		"offset overflows":    func(b []byte) []byte { b[20], b[21], b[22], b[23] = 0xff, 0xff, 0xff, 0xfe; return b },
		"message too large":   func(b []byte) []byte { b[16] = 0xff; return b },
		"empty segment":       func(b []byte) []byte { return b[:headerLen] },
		"a vote with payload": func(b []byte) []byte { b[0] = byte(segVote); return b },
	} {
		if h, err := parseHeader(spoil(good())); err == nil {
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
		"other version":  msg(`{"type":"hello","version":9,"provider":"soft","want":{"credits":1,"segment":1000}}`),
		"other provider": msg(`{"type":"hello","version":1,"provider":"ibverbs","want":{"credits":1,"segment":1000}}`),
		"no credits":     msg(`{"type":"hello","version":1,"provider":"soft","want":{"credits":0,"segment":1000}}`),
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
	io.WriteString(c, msg(`{"type":"hello","version":1,"provider":"soft","want":{"credits":1,"segment":1000}}`))
	if m, err := readControl(c); err != nil || m.Type != msgAccept {
		t.Fatalf("%+v, %v", m, err)
	}
	err = writeControl(c, &controlMsg{Type: msgConnect, Grant: &want{1, 1000},
		Endpoint: &endpoint{GID: "00000000000000000000ffffc0000201", QPN: 5, Service: 80, MTU: 1024}})
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
