package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/param"
)

// holding are answers by which a peer could hold its client: what is sent at once, and
// what is sent over and over after that, slowly; "" is silence.
var holding = map[string]struct {
	head, drip string
	says       string // of the error, when it does not wait for the end of the time
}{
	"silence":                  {},
	"switches protocols":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "", "answer 101: it is not a final one"},
	"switches and drips":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "x", "answer 101: it is not a final one"},
	"switches to nothing":      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "x", "answer 101: it is not a final one"},
	"switches after a hint":    {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n", "", "answer 101: it is not a final one"},
	"switches in HTTP/1.0":     {"HTTP/1.0 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "x", "answer 101: it is not a final one"},
	"a status of 0":            {"HTTP/1.1 000 Nothing\r\n\r\n", "x", "answer 0: it is not a final one"},
	"is about to process":      {"HTTP/1.1 102 Processing\r\n\r\n", "", ""},
	"many that are not final":  {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 10_000), "HTTP/1.1 102 Processing\r\n\r\n", "server response headers exceeded"},
	"drips what is not final":  {"", "HTTP/1.1 100 Continue\r\n\r\n", ""},
	"drips a header":           {"HTTP/1.1 200 OK\r\nX-Long: ", "x", ""},
	"drips header lines":       {"HTTP/1.1 200 OK\r\n", "X: y\r\n", ""},
	"a body that does not end": {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{", "", ""},
	"drips a body":             {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{", " ", ""},
	"drips chunks":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", ""},
	"drips a chunk's length":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x", ""},
	"drips trailers":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X: y\r\n", ""},
	"a body without length":    {"HTTP/1.0 200 OK\r\n\r\n{}", "", ""},
	"drips without length":     {"HTTP/1.0 200 OK\r\n\r\n{}", " ", ""},
	"an upgrade that is none":  {"HTTP/1.1 200 OK\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}", " ", ""},
}

// hold makes a socket of this process that answers as holding says, the requests that
// begin with prefix, and others with a process of workload w. Each answer that has begun
// is told on the channel.
func hold(t *testing.T, d *dir, prefix, head, drip string) <-chan struct{} {
	t.Helper()
	ln, err := net.Listen("unix", d.sock(fmt.Sprintf("%d-%d.sock", os.Getpid(), mustStart(t))))
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{}, 16)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				rd := bufio.NewReader(c)
				line, err := rd.ReadString('\n')
				if err != nil {
					return
				}
				if !strings.HasPrefix(line, prefix) {
					body := `{"version":1,"workload":"w"}`
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					return
				}
				fmt.Fprint(c, head) // a client that refuses it early is gone
				begun <- struct{}{}
				if drip == "" {
					for err == nil { // until the client goes
						_, err = rd.ReadByte()
					}
				}
				for err == nil {
					time.Sleep(time.Millisecond)
					_, err = fmt.Fprint(c, drip)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
	})
	return begun
}

// soon fails the test when f, whose time is over, does not return.
func soon(t *testing.T, f func() error) error {
	t.Helper()
	got := make(chan error, 1)
	go func() { got <- f() }()
	select {
	case err := <-got:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("it is still waiting")
	}
	return nil
}

// TestHeld: no answer holds the client longer than its context lasts, whether that has
// a deadline or is cancelled.
func TestHeld(t *testing.T) {
	for name, c := range holding {
		t.Run(name, func(t *testing.T) {
			d, err := makeDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer d.f.Close()
			begun := hold(t, d, "GET", c.head, c.drip)
			ask := func(ctx context.Context) error {
				conn, err := d.connect(ctx, &Process{PID: os.Getpid(), UID: uint32(os.Geteuid()), socket: fmt.Sprintf("%d-%d.sock", os.Getpid(), mustStart(t))})
				if err != nil {
					return err
				}
				var p Process
				return call(ctx, conn, http.MethodGet, "/v1/process", nil, &p)
			}
			timed, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			cancelled, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, way := range []struct {
				ctx  context.Context
				want error
			}{{timed, context.DeadlineExceeded}, {cancelled, context.Canceled}} {
				if way.ctx == cancelled {
					go func() {
						<-begun
						<-begun
						cancel()
					}()
				}
				err := soon(t, func() error { return ask(way.ctx) })
				refused := c.says != "" && err != nil && strings.Contains(err.Error(), c.says)
				if !refused && !errors.Is(err, way.want) {
					t.Errorf("%v, want %v or %q", err, way.want, c.says)
				}
			}
		})
	}
}

// TestHeldByOne: a process that switches protocols is named by a look; one that does so
// with an order has refused it.
func TestHeldByOne(t *testing.T) {
	const head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
	for _, prefix := range []string{"GET", "POST"} {
		t.Run(prefix, func(t *testing.T) {
			runDir := t.TempDir()
			d, err := makeDir(runDir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.f.Close()
			hold(t, d, prefix, head, "x")
			var ps []Process
			err = soon(t, func() error {
				var err error
				ps, err = List(t.Context(), runDir)
				return err
			})
			if err != nil || len(ps) != 1 {
				t.Fatalf("%+v, %v", ps, err)
			}
			if prefix == "GET" {
				if ps[0].Err != "answer 101: it is not a final one" {
					t.Errorf("%q", ps[0].Err)
				}
				return
			}
			target := ps[0].target()
			err = soon(t, func() error {
				_, err := NewDriver(runDir, nil).Apply(t.Context(), target, nil, param.Order{Workload: "w", ID: "x", Generation: 1})
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "answer 101: it is not a final one") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestManyThatTakeTheirTime: the transports of a process that answer an order just in time
// hold apply for twice the time of one, however many they are, and one that does not
// answer for once.
func TestManyThatTakeTheirTime(t *testing.T) {
	const most = 200 * time.Millisecond
	for name, wait := range map[string]time.Duration{"just in time": most / 2, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			runDir := t.TempDir()
			d, err := makeDir(runDir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.f.Close()
			var ordered atomic.Int64
			for i := range 40 {
				ln, err := net.Listen("unix", d.sock(fmt.Sprintf("%d-%d-%d.sock", os.Getpid(), mustStart(t), 2+i)))
				if err != nil {
					t.Fatal(err)
				}
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						fmt.Fprint(w, `{"version":1,"workload":"w"}`)
						return
					}
					ordered.Add(1)
					io.Copy(io.Discard, r.Body) // until then the server does not see its client go
					select {
					case <-r.Context().Done():
					case <-time.After(wait):
						fmt.Fprint(w, `{"process":{"version":1,"workload":"w"}}`)
					}
				})}
				go srv.Serve(ln) // returns when closed
				defer srv.Close()
			}
			driver := NewDriver(runDir, nil)
			driver.patience = func(Order) time.Duration { return most }
			self := param.Target{Kind: param.Hint, Name: strconv.Itoa(os.Getpid()), Incarnation: strconv.FormatUint(mustStart(t), 10)}
			err = soon(t, func() error {
				_, err := driver.Apply(t.Context(), self, nil, param.Order{Workload: "w", ID: "x", Generation: 1})
				return err
			})
			if n := ordered.Load(); err == nil || !strings.Contains(err.Error(), "no answer within") || n > 4 || wait > most && n != 1 {
				t.Errorf("%d had their order: %v", n, err)
			}
		})
	}
}
