package transport

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// exchange sends msg from ca to cb, and says what it found.
func exchange(t *testing.T, ca, cb *Conn, msg, buf []byte) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- ca.Send(t.Context(), msg) }()
	n, err := cb.Recv(t.Context(), buf)
	if err != nil || !bytes.Equal(buf[:n], msg) {
		t.Fatalf("%d bytes: received %d, %v", len(msg), n, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// tiersOf returns the messages that each tier carried.
func tiersOf(tr control.Traffic) (n [tiers]uint64) {
	for k, s := range tr.Tiers {
		n[k] = s.Messages
	}
	return n
}

// TestLimits sends messages just below, at and just above each limit and checks the
// tier and the lane of each.
func TestLimits(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		for _, c := range []struct {
			name     string
			settings *control.Settings
			bands    int
		}{
			{"no hint", nil, 3},
			{"0", ptrTo(hinted(0, false, true)), 3},
			{"8 KiB", ptrTo(hinted(8192, false, true)), 3},
			{"1 byte", ptrTo(hinted(1, false, true)), 0},
			{"64 KiB", ptrTo(hinted(65536, false, true)), 3},
			{"1 MiB", ptrTo(hinted(1<<20, false, true)), 3},
			{"1 KiB dual", ptrTo(hinted(1024, true, true)), 4},
			{"16 KiB dual", ptrTo(hinted(16384, true, true)), 3},
			{"128 KiB dual unordered", ptrTo(hinted(131072, true, false)), 4},
			{"eager_max below the hint", ptrTo(control.Settings{Size: bytesPtr(16384), EagerMax: bytesPtr(2048), Lanes: ptrTo(control.LanesDual)}), 4},
		} {
			t.Run(c.name, func(t *testing.T) { limits(t, p, c.settings, c.bands) })
		}
	})
}

func ptrTo[T any](v T) *T { return &v }

func limits(t *testing.T, p soft.Provider, s *control.Settings, bands int) {
	a, b := openSoft(t, Options{}, p), openSoft(t, Options{}, p)
	if s != nil {
		settle(t, a, 1, *s)
	}
	ca, cb := connect(t, a, b)
	info := ca.Info()
	// How many there are depends on the device where it inlines more than the hint.
	if bands > 0 && len(info.Bands) != bands && info.Bands[0].Tier == "inline" {
		t.Errorf("bands %+v, want %d", info.Bands, bands)
	}
	if first, last := info.Bands[0], info.Bands[len(info.Bands)-1]; first.From != 0 || last.To != MaxMessage || last.Tier != "rendezvous" {
		t.Errorf("bands %+v", info.Bands)
	}
	if dual := s != nil && s.Lanes != nil; dual != info.Dual || len(info.Lanes) != map[bool]int{false: 1, true: 2}[dual] {
		t.Errorf("%d lanes, dual %t", len(info.Lanes), info.Dual)
	}
	buf := make([]byte, 1<<20+2)
	for _, band := range info.Bands[:len(info.Bands)-1] {
		for size := max(band.To-1, 0); size <= band.To+1; size++ {
			msg := bytes.Repeat([]byte{byte(size)}, int(size))
			before, got := ca.Info(), cb.Info()
			exchange(t, ca, cb, msg, buf)
			after := ca.Info()
			at := slices.IndexFunc(info.Bands, func(b control.Band) bool { return size <= b.To })
			want := info.Bands[at]
			for k, n := range tiersOf(after.Sent) {
				grown := n - tiersOf(before.Sent)[k]
				if (grown == 1) != (tier(k).String() == want.Tier) || grown > 1 {
					t.Errorf("%d bytes: %d more by %s, want %+v", size, grown, tier(k), want)
				}
			}
			for k := range after.Lanes {
				grown := after.Lanes[k].Messages - before.Lanes[k].Messages
				if (grown == 1) != (k == want.Lane) || grown > 1 {
					t.Errorf("%d bytes: %d more on lane %d, want %+v", size, grown, k, want)
				}
			}
			now := tiersOf(cb.Info().Received)
			for k, n := range tiersOf(got.Received) {
				if grown := now[k] - n; (grown == 1) != (tier(k).String() == want.Tier) {
					t.Errorf("%d bytes: the receiver counts %d by %s, want %+v", size, grown, tier(k), want)
				}
			}
		}
	}
	if n := ca.Info().Sent.Tiers[tierRendezvous]; n.Copied != 0 || n.Messages == 0 {
		t.Errorf("rendezvous %+v", n)
	}
}

// TestSingleHasNoBandwidthLane compares the memory of one hinted lane with that of
// two.
func TestSingleHasNoBandwidthLane(t *testing.T) {
	registered := func(s control.Settings) int64 {
		a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{Hint: bytesPtr(1024)}, soft.Provider{})
		settle(t, a, 1, s)
		ca, _ := connect(t, a, b)
		return ca.Info().Registered
	}
	single, dual := registered(hinted(1024, false, true)), registered(hinted(1024, true, true))
	if most := int64((lowLatencyDepth + controlSlots) * (2048 + longHeaderLen) * 2); single > most || dual < single+generalDepth*generalSegment {
		t.Errorf("single %d bytes, at most %d wanted; dual %d", single, most, dual)
	}
}

// TestAllocations checks that the message path allocates nothing, in each tier.
func TestAllocations(t *testing.T) {
	a, b := openSoft(t, Options{}, soft.Provider{}), openSoft(t, Options{Hint: bytesPtr(4096)}, soft.Provider{})
	settle(t, a, 1, hinted(4096, false, true))
	ca, cb := connect(t, a, b)
	out, err := a.Register(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.Register(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for k, size := range []int{8, 4096, 200_000} {
		msg, buf := out.Bytes()[100:100+size], in.Bytes()[8:]
		turns := make(chan int)
		got := make(chan error)
		go func() {
			for range turns {
				_, err := cb.Recv(t.Context(), buf)
				got <- err
			}
		}()
		turn := func() {
			turns <- 1
			if err := errors.Join(ca.Send(t.Context(), msg), <-got); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			turn()
		}
		if n := testing.AllocsPerRun(500, turn); n >= 1 {
			t.Errorf("%s: %v allocations per message", tier(k), n)
		}
		close(turns)
		if n := ca.Info().Sent.Tiers[k]; n.Messages < 600 || len(n.Times) == 0 {
			t.Errorf("%s: %+v", tier(k), n)
		}
	}
	if err := errors.Join(out.Close(), in.Close()); err != nil {
		t.Error(err)
	}
}

func TestBuffers(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		a, b := openSoft(t, Options{Hint: bytesPtr(1024)}, p), openSoft(t, Options{}, p)
		ca, cb := connect(t, a, b)
		before := a.Describe().Registered
		out, err := a.Register(300_000)
		if err != nil {
			t.Fatal(err)
		}
		if n := a.Describe().Registered - before; n != 300_000 {
			t.Errorf("registered %d bytes more", n)
		}
		in, err := b.Register(300_000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out.Bytes() {
			out.Bytes()[i] = byte(i * 3)
		}
		for _, size := range []int{1, 50, 1024, 1025, 250_000} {
			done := make(chan error, 1)
			go func() { done <- ca.SendBuffer(t.Context(), out, 17, size) }()
			n, err := cb.RecvBuffer(t.Context(), in, 1000, in.Len()-1000)
			if err != nil || !bytes.Equal(in.Bytes()[1000:1000+n], out.Bytes()[17:17+size]) {
				t.Fatalf("%d bytes: received %d, %v", size, n, err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if got := tiersOf(ca.Info().Sent); got != [tiers]uint64{0, 0, 5} {
			t.Errorf("messages from a buffer by tier: %v", got)
		}
		// In use: a Send that waits for its Recv.
		done := make(chan error, 1)
		go func() { done <- ca.Send(t.Context(), out.Bytes()) }()
		eventually(t, "the offer arrives", func() bool {
			cb.mu.Lock()
			defer cb.mu.Unlock()
			return cb.offers == 1
		})
		if err := out.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closed in use: %v", err)
		}
		if _, err := cb.Recv(t.Context(), in.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(out.Close(), out.Close()); err != nil {
			t.Errorf("closed twice: %v", err)
		}
		if n := a.Describe().Registered; n != before {
			t.Errorf("%d bytes registered, %d before", n, before)
		}
		if err := ca.SendBuffer(t.Context(), out, 0, 8); !errors.Is(err, ErrClosed) {
			t.Errorf("send from a closed buffer: %v", err)
		}
		if err := cb.SendBuffer(t.Context(), in, in.Len()-1, 2); !errors.Is(err, errRange) {
			t.Errorf("send beyond the buffer: %v", err)
		}
	})
}

func TestNoDMABuf(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{})
	if _, err := a.RegisterDMABuf(0, 0, 4096); !errors.Is(err, syscall.EOPNOTSUPP) || len(err.Error()) < len("soft0: register a dma-buf: ?: operation not supported") {
		t.Errorf("register a dma-buf: %v", err)
	}
	for _, bad := range [][2]uint64{{0, 0}, {1<<64 - 1, 2}, {0, MaxMessage + 1}} {
		if _, err := a.RegisterDMABuf(0, bad[0], bad[1]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("register %d bytes at %d: %v", bad[1], bad[0], err)
		}
	}
}

func TestDegraded(t *testing.T) {
	a, b := openSoft(t, Options{Hint: bytesPtr(8192)}, soft.Provider{}), openSoft(t, Options{}, soft.Provider{})
	ca, cb := connect(t, a, b)
	i := ca.Info()
	want := fmt.Sprintf("lane 0: inline 1024 asked, %d granted", a.maxInline)
	if a.maxInline < lowLatencyCap && !slices.Contains(i.Degraded, want) {
		t.Errorf("degraded %q, want %q", i.Degraded, want)
	}
	for _, d := range cb.Info().Degraded {
		if strings.Contains(d, "credits") || strings.Contains(d, "segment") {
			t.Errorf("degraded: %q", d)
		}
	}
}
