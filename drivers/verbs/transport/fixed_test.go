package transport

import (
	"context"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// TestDialFixed makes connections of every profile side by side, with messages on each,
// while orders come and go: they keep what they were made with, at both ends where the
// listener mirrors, and messages go on. A connection that follows is switched.
func TestDialFixed(t *testing.T) {
	for _, mirror := range []bool{true, false} {
		open := func() *Transport {
			tr, err := Open(t.Context(), Options{Device: "soft0", Workload: "w", Mirror: mirror})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tr.Close() })
			return tr
		}
		server, client := open(), open()
		l, err := server.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		settings := []*Settings{
			nil, {}, {Size: new(int64)}, {Size: new(int64(8 << 10))}, {Size: new(int64(8 << 10)), Lanes: new(control.LanesDual), Ordered: new(false)},
		}
		var near, far []*Conn
		for _, s := range settings {
			var c *Conn
			if s == nil {
				c, err = client.Dial(t.Context(), l.Addr().String())
			} else {
				c, err = client.DialFixed(t.Context(), l.Addr().String(), *s)
			}
			if err != nil {
				t.Fatal(err)
			}
			a, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			near, far = append(near, c), append(far, a)
		}
		order := control.Order{ID: "o", Generation: 7, Workload: "w", Open: true, Settings: &Settings{Size: new(int64(64 << 10))}}
		for _, tr := range []*Transport{client, server} {
			res, err := tr.Order(t.Context(), order)
			if err != nil {
				t.Fatal(err)
			}
			want := 1 // the one that follows
			if tr == server && !mirror {
				want = len(settings)
			}
			if len(res.Outcomes) != want {
				t.Errorf("mirror %v: the order was about %d connections, want %d", mirror, len(res.Outcomes), want)
			}
		}
		for i, s := range settings {
			everyTier(t, near[i], far[i])
			for _, c := range []*Conn{near[i], far[i]} {
				info := c.Info()
				fixed := s != nil && (c == near[i] || mirror)
				want := order.Settings.Size
				if fixed {
					want = s.Size
				}
				if info.Fixed != fixed || (info.Hint == nil) != (want == nil) || want != nil && *info.Hint != *want {
					t.Errorf("mirror %v, connection %d: fixed %v, hint %v of %s, want %v", mirror, i, info.Fixed, info.Hint, info.Origin, want)
				}
				if fixed && info.Dual != (s.Lanes != nil) {
					t.Errorf("connection %d: dual %v", i, info.Dual)
				}
			}
		}
	}
}

// everyTier sends a message of each tier both ways.
func everyTier(t *testing.T, a, b *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, size := range []int{0, 8, 4000, 300_000} {
		for _, way := range [][2]*Conn{{a, b}, {b, a}} {
			sent := make(chan error, 1)
			go func() { sent <- way[0].Send(ctx, make([]byte, size)) }()
			n, err := way[1].Recv(ctx, make([]byte, size+1))
			if err != nil || n != size {
				t.Fatalf("received %d of %d bytes, %v", n, size, err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDialFixedRefuses(t *testing.T) {
	tr, err := Open(t.Context(), Options{Device: "soft0"})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	for _, s := range []Settings{{Size: new(int64(-1))}, {Completion: new("nonsense")}, {Lanes: new("three")}} {
		if c, err := tr.DialFixed(t.Context(), "127.0.0.1:1", s); err == nil {
			c.Close()
			t.Errorf("dialed with %+v", s)
		}
	}
	bad := controlMsg{Type: msgHello, Wants: []want{{Credits: 1, Segment: 100}}, Mirror: &Settings{Lanes: new("three")}}
	if err := bad.check(); err == nil {
		t.Error("a peer's settings were not checked")
	}
	late := controlMsg{Type: msgPropose, Wants: bad.Wants, Mirror: &Settings{}}
	if err := late.check(); err == nil {
		t.Error("settings to mirror came with a proposal")
	}
}

// A peer's reason is shown to people: one that a terminal would act on is refused.
func TestReasonsAreText(t *testing.T) {
	for reason, ok := range map[string]bool{"busy": true, "": true, "\x1b[31m": false, "two\nlines": false, "\u202e": false} {
		m := controlMsg{Type: msgRefuse, Reason: reason}
		if err := m.check(); (err == nil) != ok {
			t.Errorf("%q: %v", reason, err)
		}
	}
}
