package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/peercred"
)

// A Service is what a process does for its socket.
type Service interface {
	// Describe returns the process; what the kernel knows of it may be left out.
	Describe() Process
	// Order carries out a valid order. ErrConflict: it contradicts what is in force.
	Order(ctx context.Context, o Order) (Result, error)
}

// ErrConflict is an order that is older than the one in force or for another workload.
var ErrConflict = errors.New("conflict")

const (
	maxBody    = 64 << 10
	answerTime = 10 * time.Second // for a client to take its answer
)

// A Server serves a process's socket.
type Server struct {
	dir  *dir
	name string
	http *http.Server
	done chan struct{}
}

type credKey struct{}

// Serve creates the socket in runDir and serves svc on it until Close.
func Serve(ctx context.Context, runDir string, svc Service) (*Server, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	d, err := makeDir(runDir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{dir: d, done: make(chan struct{})}
	ln, err := s.listen(ctx, fmt.Sprintf("%d-%d", os.Getpid(), start))
	if err != nil {
		d.f.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	mux := http.NewServeMux()
	identify := func(p *Process) error {
		p.Version, p.PID, p.Start, p.UID = Version, os.Getpid(), start, uint32(os.Geteuid())
		return p.describe()
	}
	mux.HandleFunc("GET /v1/process", func(w http.ResponseWriter, r *http.Request) {
		p := svc.Describe()
		if err := identify(&p); err != nil {
			answer(w, http.StatusInternalServerError, problem{err.Error()})
			return
		}
		answer(w, http.StatusOK, p)
	})
	mux.HandleFunc("POST /v1/order", func(w http.ResponseWriter, r *http.Request) { serveOrder(w, r, svc, identify) })
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			cred, err := peercred.Of(c)
			if err != nil {
				return ctx
			}
			return context.WithValue(ctx, credKey{}, cred)
		},
	}
	go func() {
		defer close(s.done)
		s.http.Serve(&limited{Listener: ln}) // returns when closed
	}()
	return s, nil
}

// listen binds the first free name of this process. Everyone may connect: what a
// client may do follows from its credentials.
func (s *Server) listen(ctx context.Context, base string) (net.Listener, error) {
	for i := 1; i < 1000; i++ {
		s.name = base + ".sock"
		if i > 1 {
			s.name = fmt.Sprintf("%s-%d.sock", base, i)
		}
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "unix", s.dir.sock(s.name))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ln.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := os.Chmod(s.dir.sock(s.name), 0o666); err != nil {
			ln.Close()
			return nil, errors.Join(err, s.dir.remove(s.name))
		}
		return ln, nil
	}
	return nil, errors.New("too many transports in one process")
}

// Close removes the socket; orders under way lose their client, not their effect.
func (s *Server) Close() error {
	err := errors.Join(s.dir.remove(s.name), s.http.Close())
	<-s.done
	return errors.Join(err, s.dir.f.Close())
}

func serveOrder(w http.ResponseWriter, r *http.Request, svc Service, identify func(*Process) error) {
	cred, ok := r.Context().Value(credKey{}).(*unix.Ucred)
	if !ok || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		answer(w, http.StatusForbidden, problem{"only root and the process's own user may order"})
		return
	}
	o, err := decodeOrder(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		answer(w, http.StatusBadRequest, problem{err.Error()})
		return
	}
	res, err := svc.Order(r.Context(), o)
	if err == nil {
		err = identify(&res.Process)
	}
	switch {
	case errors.Is(err, ErrConflict):
		answer(w, http.StatusConflict, problem{err.Error()})
	case err != nil:
		answer(w, http.StatusInternalServerError, problem{err.Error()})
	default:
		answer(w, http.StatusOK, res)
	}
}

// problem is the body of an answer that is not 200.
type problem struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, status int, body any) {
	// An order may take long, but not its answer. Every connection here has deadlines.
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // a client that went away needs no answer
}

func decodeOrder(r io.Reader) (Order, error) {
	var o Order
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields() // what is not understood must not be half done
	if err := dec.Decode(&o); err != nil {
		return o, fmt.Errorf("order: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return o, errors.New("order: more than one value")
	}
	return o, o.check()
}
