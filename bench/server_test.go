package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestHostileClients checks what a server refuses, and that it says so before it makes
// any buffer of the client's size.
func TestHostileClients(t *testing.T) {
	hello := func(sizes ...int64) controlMsg {
		return controlMsg{Kind: kindHello, Version: version, Sizes: sizes, InFlight: 1}
	}
	long := hello(8)
	long.Workload = strings.Repeat("x", maxName+1)
	old := hello(8)
	old.Version = 99
	for _, tt := range []struct {
		name string
		msgs []any // controlMsg or []byte
		want string
	}{
		{"nothing like it", []any{[]byte("GET / HTTP/1.1\r\n\r\n")}, "no control message"},
		{"empty", []any{[]byte{}}, "no control message"},
		{"version", []any{old}, "version 99"},
		{"size", []any{hello(1 << 40)}, "not 1024 GiB"},
		{"negative size", []any{hello(-1)}, "not -1 B"},
		{"no sizes", []any{hello()}, "0 message sizes"},
		{"long name", []any{long}, "name is longer"},
		{"wrong kind", []any{controlMsg{Kind: kindResult}}, `"result" where`},
		{"test message first", []any{hello(8), make([]byte, 8)}, "before the first block"},
		{"block", []any{hello(8), controlMsg{Kind: kindBlock, Index: 1}}, "size number 1 of 1"},
		{"negative block", []any{hello(8), controlMsg{Kind: kindBlock, Index: -1}}, "size number -1 of 1"},
		{"nothing in flight", []any{controlMsg{Kind: kindHello, Version: version, Sizes: []int64{8}}}, "0 messages in flight"},
		{"too much in flight", []any{controlMsg{Kind: kindHello, Version: version, Sizes: []int64{MaxSize / 2}, InFlight: 3}}, "3 messages in flight; at most 2"},
		{"too many in flight", []any{controlMsg{Kind: kindHello, Version: version, Sizes: []int64{8}, InFlight: MaxInFlight + 1}}, "in flight; at most 256"},
		{"an unknown mode", []any{hello(8), controlMsg{Kind: kindBlock, Mode: "nonsense"}}, `mode "nonsense"`},
		{"an endless stream", []any{hello(8), controlMsg{Kind: kindBlock, Mode: Streams, Count: maxBatch + 1}}, "stream of 1048577 messages"},
		{"an empty stream", []any{hello(8), controlMsg{Kind: kindBlock, Mode: Streams}}, "stream of 0 messages"},
		{"a flood back", []any{hello(8), controlMsg{Kind: kindBlock, Mode: BothWays, Count: 1, Back: 1 << 40}}, "1099511627776 back"},
		{"a block within a stream", []any{hello(8), controlMsg{Kind: kindBlock, Mode: Streams, Count: 1}, controlMsg{Kind: kindBlock, Mode: RoundTrips}}, `"block" where`},
		{"hello twice", []any{hello(8), hello(8)}, `"hello" where`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cl, sv := newPipe()
			served := serve(t, sv)
			c := codec{send: toServer, recv: toClient}
			for _, m := range tt.msgs {
				msg, ok := m.([]byte)
				if !ok {
					var err error
					if msg, err = c.encode(m.(controlMsg)); err != nil {
						t.Fatal(err)
					}
				}
				if err := cl.Send(t.Context(), msg); err != nil {
					t.Fatal(err)
				}
			}
			if s := <-served; s.Err == nil || !strings.Contains(s.Err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", s.Err, tt.want)
			}
		})
	}
}

func TestRefusalReachesTheClient(t *testing.T) {
	cl, sv := newPipe()
	go serveOne(t.Context(), sv, ServeOptions{Device: "soft1"}, true)
	_, err := Client(t.Context(), cl, Options{Sizes: []int64{8}, Count: 1})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error %v, want refused as busy", err)
	}
}

// acceptOf is an accept whose connections come through conns.
func acceptOf(conns <-chan Conn) func(context.Context) (Conn, error) {
	return func(ctx context.Context) (Conn, error) {
		select {
		case c := <-conns:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestServe(t *testing.T) {
	conns := make(chan Conn)
	ctx, cancel := context.WithCancel(t.Context())
	var ended []string
	done := make(chan error)
	go func() {
		done <- Serve(ctx, acceptOf(conns), ServeOptions{Clients: 2, OnClient: func(s Served) {
			ended = append(ended, fmt.Sprintf("%s: %v", s.Workload, s.Err))
		}})
	}()
	dial := func() *pipe {
		cl, sv := newPipe()
		conns <- sv
		return cl
	}
	for i := range 3 {
		rep, err := Client(t.Context(), dial(), Options{Sizes: []int64{8, 16}, Count: 5, Workload: fmt.Sprint("w", i)})
		if err != nil || !rep.OK() {
			t.Errorf("client %d: %+v, %v", i, rep, err)
		}
	}
	idle := dial() // is ended with the server
	c := codec{send: toServer, recv: toClient}
	hello, err := c.encode(controlMsg{Kind: kindHello, Version: version, Workload: "idle", Sizes: []int64{8}, InFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Send(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Recv(t.Context(), make([]byte, maxControl)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(ended) != 4 || ended[0] != "w0: <nil>" || ended[3] != "idle: context canceled" {
		t.Errorf("ended: %q", ended)
	}
	if _, err := idle.Recv(t.Context(), make([]byte, 8)); !errors.Is(err, io.EOF) {
		t.Errorf("the idle client's connection: %v, want closed", err)
	}
	broken := errors.New("no more")
	err = Serve(t.Context(), func(context.Context) (Conn, error) { return nil, broken }, ServeOptions{})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want accept's", err)
	}
}

// TestServeOnce: a server of one client ends when the last of its connections has.
func TestServeOnce(t *testing.T) {
	conns := make(chan Conn)
	var ended []error
	done := make(chan error)
	go func() {
		done <- Serve(t.Context(), acceptOf(conns), ServeOptions{Once: true, OnClient: func(s Served) { ended = append(ended, s.Err) }})
	}()
	dial := func() *pipe {
		cl, sv := newPipe()
		conns <- sv
		return cl
	}
	second, c := dial(), codec{send: toServer, recv: toClient}
	ask := func(m controlMsg, want string) {
		t.Helper()
		msg, err := c.encode(m)
		if err == nil {
			err = second.Send(t.Context(), msg)
		}
		answer := make([]byte, maxControl)
		n := 0
		if err == nil {
			n, err = second.Recv(t.Context(), answer)
		}
		if err == nil {
			_, err = c.decode(answer[:n], want)
		}
		if err != nil {
			t.Fatalf("%s: %v", m.Kind, err)
		}
	}
	ask(controlMsg{Kind: kindHello, Version: version, Workload: "w", Sizes: []int64{8}, InFlight: 1}, kindWelcome)
	if rep, err := Client(t.Context(), dial(), Options{Sizes: []int64{8}, Count: 5, Workload: "w"}); err != nil || !rep.OK() {
		t.Fatalf("first: %+v, %v", rep, err)
	}
	ask(controlMsg{Kind: kindFinish}, kindResult)
	if err := <-done; err != nil || len(ended) != 2 || ended[0] != nil || ended[1] != nil {
		t.Errorf("%v, clients: %v", err, ended)
	}
}
