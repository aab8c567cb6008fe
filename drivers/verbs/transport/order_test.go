package transport

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// TestUnordered lets small messages pass large ones, and keeps each lane's order.
func TestUnordered(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		a, b := openSoft(t, Options{}, p), openSoft(t, Options{}, p)
		settle(t, a, 1, hinted(1024, true, false))
		ca, cb := connect(t, a, b)
		if i, j := ca.Info(), cb.Info(); i.Ordered || !j.Ordered || j.Dual || len(j.Lanes) != 2 {
			t.Errorf("a %+v\nb %+v", i, j)
		}
		sent := make(chan error, 1)
		go func() { sent <- ca.Send(t.Context(), make([]byte, 100_000)) }()
		offered(t, cb, 1)
		if err := ca.Send(t.Context(), []byte("small")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the small one arrives", func() bool { return state(cb, func() bool { l := cb.cur.lanes[0]; return l.ftail > l.fhead }) })
		buf := make([]byte, 100_000)
		if n, err := cb.Recv(t.Context(), buf); err != nil || string(buf[:n]) != "small" {
			t.Errorf("received %d bytes first, %v", n, err)
		}
		if n, err := cb.Recv(t.Context(), buf); err != nil || n != len(buf) {
			t.Errorf("received %d bytes then, %v", n, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		byLane := func(size int) int { return min(size/1025, 1) }
		load := newLoad(5, 1000, 40_000)
		errs := make(chan error, 4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { errs <- load.send(ctx, ca) }()
		go func() { errs <- load.send(ctx, cb) }()
		go func() { errs <- load.recv(ctx, cb, byLane) }()
		go func() { errs <- load.recv(ctx, ca, nil) }() // b has asked for nothing
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if err := ca.Close(); err != nil {
			t.Error(err)
		}
		if _, err := cb.Recv(t.Context(), buf); err != io.EOF {
			t.Errorf("after the close: %v", err)
		}
	})
}

// TestDualOrdered keeps one order over two lanes.
func TestDualOrdered(t *testing.T) {
	inModes(t, func(t *testing.T, p soft.Provider) {
		a, b := openSoft(t, Options{}, p), openSoft(t, Options{}, p)
		settle(t, a, 1, hinted(1024, true, true))
		settle(t, b, 1, hinted(8192, true, true))
		ca, cb := connect(t, a, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs := make(chan error, 4)
		for i, c := range []*Conn{ca, cb} {
			load := newLoad(uint64(i), 1000, 40_000)
			peer := []*Conn{cb, ca}[i]
			go func() { errs <- load.send(ctx, c) }()
			go func() { errs <- load.recv(ctx, peer, nil) }()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if l := ca.Info().Lanes; l[0].Messages == 0 || l[1].Messages == 0 {
			t.Errorf("lanes %+v", l)
		}
	})
}
