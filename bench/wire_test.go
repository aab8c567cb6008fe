package bench

import (
	"bytes"
	"math"
	"testing"
)

func TestNumbersFarFromTheStart(t *testing.T) {
	send, recv := codec{send: toServer, recv: toClient}, codec{send: toClient, recv: toServer}
	for _, tt := range []struct{ number, expected uint64 }{
		{0, 0}, {5, 3}, {3, 5},
		{1 << 32, 1<<32 - 2}, {1<<32 - 2, 1 << 32}, // on both sides of a full low half
		{7<<32 + 9, 7<<32 + 1},
	} {
		msg := make([]byte, 600)
		fill(msg)
		send.seal(msg, tt.number)
		if got, ok := recv.open(msg, tt.expected); !ok || got != tt.number {
			t.Errorf("%d where %d was expected: got %d, %v", tt.number, tt.expected, got, ok)
		}
		if _, ok := send.open(msg, tt.expected); ok {
			t.Errorf("%d: an end took its own message for the peer's", tt.number)
		}
		for i := range msg {
			msg[i] ^= 1
			if got, ok := recv.open(msg, tt.expected); ok {
				t.Fatalf("%d: byte %d is wrong, and it is taken for %d", tt.number, i, got)
			}
			msg[i] ^= 1
		}
	}
}

func TestTheControlMarkIsNoNumber(t *testing.T) {
	for _, n := range []uint64{math.MaxUint32 - 1, 5<<32 + math.MaxUint32 - 1} {
		if got := after(n); uint32(got) != 0 || got != n+2 {
			t.Errorf("after %#x comes %#x", n, got)
		}
	}
	if got := after(7); got != 8 {
		t.Errorf("after 7 comes %d", got)
	}
}

func TestAccountIsBounded(t *testing.T) {
	a := newAccount(1)
	a.receive(1 << 30)
	if len(a.missing) != maxMissing || a.sizes[0].Lost != 1<<30 {
		t.Errorf("remembers %d numbers, lost %d", len(a.missing), a.sizes[0].Lost)
	}
	a.receive(maxMissing + 1) // skipped, but forgotten
	a.receive(5)
	a.receive(5)
	if want := (Counts{Lost: 1<<30 - 1, Reordered: 1, Duplicated: 2}); a.sizes[0] != want {
		t.Errorf("counts %+v, want %+v", a.sizes[0], want)
	}
}

// FuzzServer gives a server three messages of anyone's making: it must end without a
// panic, having made no buffer over the limits.
func FuzzServer(f *testing.F) {
	c := codec{send: toServer, recv: toClient}
	encode := func(m controlMsg) []byte {
		msg, err := c.encode(m)
		if err != nil {
			f.Fatal(err)
		}
		return msg[header:]
	}
	f.Add(encode(controlMsg{Kind: kindHello, Version: version, Sizes: []int64{8}}),
		encode(controlMsg{Kind: kindBlock, Next: math.MaxUint64}), []byte("test msg"))
	f.Add([]byte(`{"kind":"hello","version":1,"sizes":[9223372036854775807]}`), []byte("{}"), []byte{})
	f.Fuzz(func(t *testing.T, hello, second, third []byte) {
		cl, sv := newPipe()
		for i, body := range [][]byte{hello, second, third} {
			msg := append(make([]byte, header), body...)
			if i < 2 { // sealed as control messages, or nothing would get past the checksum
				copy(msg[4:], bytes.Repeat([]byte{0xff}, 4))
				sum := c.checksum(toServer, controlMark, msg)
				for b := range 4 {
					msg[b] = byte(sum >> (8 * b))
				}
			}
			if err := cl.Send(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		s := serveOne(t.Context(), sv, ServeOptions{}, false)
		if s.Err == nil && len(s.Sizes) == 0 {
			t.Error("a run without sizes ended well")
		}
		for _, size := range s.Sizes {
			if size.Size < MinSize || size.Size > MaxSize {
				t.Errorf("served a size of %d bytes", size.Size)
			}
		}
	})
}
