package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTCP(t *testing.T) {
	s := New(full)
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0", "127.0.0.1", "[::ffff:192.0.2.1]:0"} {
		if a, err := s.ListenTCP(addr); err == nil {
			t.Errorf("%s: listens on %v", addr, a)
		}
	}
	addr, err := s.ListenTCP("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, s) })
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil || !strings.HasPrefix(addr.String(), "127.0.0.1:") {
		t.Fatalf("listens on %v, %v", addr, err)
	}
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "localhost": 200, "[::1]:" + port: 200,
		"evil.example:" + port: 421, "evil.example": 421, "127.0.0.1.evil.example": 421, "192.0.2.1": 421, "": 421,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr.String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		code := 0
		if req.Host = host; host == "" {
			code = withoutHost(t, addr.String())
		} else {
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			code = res.StatusCode
			_ = res.Body.Close()
		}
		if code != want {
			t.Errorf("Host %q: %d, want %d", host, code, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for method, want := range map[string]int{http.MethodPost: 405, http.MethodDelete: 405, http.MethodHead: 200} {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/status", strings.NewReader("x")))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", method, w.Code, want)
		}
	}
}

// withoutHost sends a request as HTTP/1.0 allows it.
func withoutHost(t *testing.T, addr string) (code int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanf(conn, "HTTP/1.0 %d", &code); err != nil {
		t.Fatal(err)
	}
	return code
}

// Idle connections beyond the limit are closed, and room that they leave is room again.
func TestConnectionLimit(t *testing.T) {
	_, path := start(t, full)
	var held []*net.UnixConn
	for range maxConns {
		conn, err := dialUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	if _, err := Ask(t.Context(), path); err == nil {
		t.Error("one more than the limit was answered")
	}
	for _, conn := range held {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	for {
		_, err := Ask(t.Context(), path)
		if err == nil {
			break
		}
		if t.Context().Err() != nil || errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A client that says nothing does not hold up the end.
func TestShutdownWithASilentClient(t *testing.T) {
	s, path := start(t, full)
	conn, err := dialUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := Ask(t.Context(), path); err != nil { // by now the silent one was accepted as well
		t.Fatal(err)
	}
	shutdown(t, s)
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection still gives %d bytes, %v", n, err)
	}
}
