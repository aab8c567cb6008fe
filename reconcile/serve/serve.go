// Package serve tells what the daemon does: to Prometheus at /metrics, to whoever watches
// its health at /healthz, and to rdmatune status at /status. It answers on a Unix socket,
// and where asked for on a loopback address. It only reads.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rdmatune/rdmatune/reconcile"
)

// Limits of what a client may cost.
const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
	shutdownTime  = 3 * time.Second
	maxHeader     = 8 << 10
	maxConns      = 32 // at a time, on each listener
	maxScrapes    = 4  // of /metrics at a time
)

// A Server answers for one daemon.
type Server struct {
	status  func() reconcile.Status
	counted *counted
	handler http.Handler
	http    *http.Server

	mu      sync.Mutex
	sockets []*socket // guarded by mu
}

// New returns a server that asks status, which may be called from several goroutines at a
// time, for each answer. It listens nowhere yet.
func New(status func() reconcile.Status) *Server {
	registry, counted := newRegistry(status)
	s := &Server{status: status, counted: counted}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherer(registry), promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /status", s.answerStatus)
	s.handler = mux
	s.http = &http.Server{
		Handler:           s.ours(mux),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, networkKey{}, c.LocalAddr().Network())
		},
	}
	return s
}

// Observe counts a pass. It is called by one goroutine, once for each.
func (s *Server) Observe(p reconcile.Pass) { s.counted.observe(p) }

// networkKey is the context's key of the network that a connection came by.
type networkKey struct{}

// ours refuses what a browser was tricked into: a page whose name was made to resolve to
// the loopback address still sends its own name in the Host header.
func (s *Server) ours(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(networkKey{}) == "tcp" && !loopbackHost(r.Host) {
			http.Error(w, "this server is known as localhost alone", http.StatusMisdirectedRequest)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// loopbackHost reports whether a Host header, or an address to listen on, names the
// loopback interface.
func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// healthz answers 200 and "ok", or 503 and what is wrong, a line each.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	st := s.status()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if st.Healthy {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, p := range st.Problems {
		fmt.Fprintln(w, strings.ReplaceAll(p, "\n", " "))
	}
	if len(st.Problems) == 0 {
		fmt.Fprintln(w, "not healthy")
	}
}

// answerStatus answers with the status as JSON.
func (s *Server) answerStatus(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(s.status())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // a client that went away
}

// Listen answers on a Unix socket at path from now on, for root and root's group. What is
// there already is replaced when it is a socket of ours, or root's, at which nobody
// answers.
func (s *Server) Listen(path string) error {
	sock, err := listenUnix(path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.sockets = append(s.sockets, sock)
	s.mu.Unlock()
	s.serve(sock.listener)
	return nil
}

// ListenTCP answers on a TCP address from now on, and returns it with the port that it got.
// Whoever can reach it may read everything, so only loopback is allowed.
func (s *Server) ListenTCP(addr string) (net.Addr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if !loopbackHost(addr) {
		return nil, fmt.Errorf("listen on %s: only loopback is allowed, as in 127.0.0.1:%s: there is no authentication", addr, port)
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1" // whatever a resolver makes of the name
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	s.serve(l)
	return l.Addr(), nil
}

func (s *Server) serve(l net.Listener) {
	limited := &limitListener{Listener: l, free: make(chan struct{}, maxConns)}
	go func() {
		// It ends with Shutdown. A listener that fails by itself takes its answers with it
		// and nothing else; whoever asks sees that.
		_ = s.http.Serve(limited)
	}()
}

// Shutdown stops listening, removes the sockets, and waits a moment for answers that are
// under way; what is left of them is cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTime)
	defer cancel()
	s.mu.Lock()
	sockets := s.sockets
	s.sockets = nil
	s.mu.Unlock()
	var errs []error
	for _, sock := range sockets {
		errs = append(errs, sock.remove())
	}
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // of clients that do not read their answer
	}
	errs = append(errs, err)
	return errors.Join(errs...)
}

// A limitListener has at most as many connections at a time as free holds.
type limitListener struct {
	net.Listener
	free chan struct{}
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, done: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			_ = c.Close() // one too many: it may come again
		}
	}
}

type limitedConn struct {
	net.Conn
	done func()
}

func (c *limitedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
