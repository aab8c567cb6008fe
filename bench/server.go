package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ServeOptions say how a server serves.
type ServeOptions struct {
	// Device is told to the clients, for their reports.
	Device string
	// Clients bounds how many are served at once; more are refused as busy. 0 or above
	// MaxClients: MaxClients.
	Clients int
	// OnClient is called when a client has ended, one call at a time; nil: nobody is.
	OnClient func(Served)
}

// A Served is what a server says of one client that ended.
type Served struct {
	Workload string // as the client calls it, quoted by whoever prints it
	Device   string // the client's, likewise
	Sizes    []ServedSize
	Err      error // why it ended early; nil after a whole run
	Conn     Conn  // closed by now
}

// A ServedSize is the server's account of one size.
type ServedSize struct {
	Size     int64 // bytes
	Answered uint64
	Counts
}

// idleTimeout is how long a client may be silent. One that is gone without a word
// would hold its buffers for ever; one that waits for a switch is silent for seconds.
const idleTimeout = 2 * time.Minute

// maxRefusals bounds the clients that are being told that the server is busy; beyond
// it, connections are closed without a word.
const maxRefusals = 64

var (
	errBusy   = errors.New("busy: too many clients")
	errSilent = errors.New("the client is silent")
)

// Serve answers the clients that accept returns, until ctx ends or accept fails; then
// it ends the clients that are left and returns accept's error, or nil after ctx. A
// client that breaks the protocol or goes away only ends its own connection.
func Serve(ctx context.Context, accept func(context.Context) (Conn, error), o ServeOptions) error {
	if o.Clients <= 0 || o.Clients > MaxClients {
		o.Clients = MaxClients
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var mu sync.Mutex // guards o.OnClient
	serving := make(chan struct{}, o.Clients)
	refusing := make(chan struct{}, maxRefusals)
	for {
		c, err := accept(ctx)
		switch {
		case ctx.Err() != nil && err == nil:
			return c.Close()
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		slot, busy := serving, false
		select {
		case slot <- struct{}{}:
		default:
			slot, busy = refusing, true
			select {
			case slot <- struct{}{}:
			default:
				_ = c.Close() // nothing was sent that could be undelivered
				continue
			}
		}
		all.Go(func() {
			served := serveOne(ctx, c, o.Device, busy)
			<-slot
			mu.Lock()
			defer mu.Unlock()
			if o.OnClient != nil {
				o.OnClient(served)
			}
		})
	}
}

// A server serves one client.
type server struct {
	conn  Conn
	codec codec
	ctx   context.Context
	moves atomic.Uint64 // rises with every message; the watchdog looks at it

	client   controlMsg // its hello
	in, out  []byte
	next     uint64 // number of the next answer
	acct     *account
	answered []uint64
}

func serveOne(ctx context.Context, c Conn, device string, busy bool) Served {
	s := &server{conn: c, codec: codec{send: toClient, recv: toServer}}
	var cancel context.CancelCauseFunc
	s.ctx, cancel = context.WithCancelCause(ctx)
	stop := watch(&s.moves, idleTimeout, func() { cancel(errSilent) })
	err := s.hello(device, busy)
	if err == nil {
		err = s.answer()
	}
	stop()
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	return s.served(errors.Join(err, c.Close()))
}

// hello settles what the client wants. Only then are buffers of the client's sizes
// made: by then the sizes are known to be within limits.
func (s *server) hello(device string, busy bool) error {
	s.in = make([]byte, maxControl)
	n, err := s.conn.Recv(s.ctx, s.in)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	m, err := s.codec.decode(s.in[:n], kindHello)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	welcome := controlMsg{Kind: kindWelcome, Version: version, Device: device}
	refusal := checkHello(m)
	if busy {
		refusal = errBusy
	}
	if refusal != nil {
		welcome.Error = refusal.Error()
	}
	if err := s.sendControl(welcome); err != nil || refusal != nil {
		return errors.Join(refusal, err)
	}
	s.client = m
	largest := slices.Max(m.Sizes)
	s.in = make([]byte, max(largest, maxControl))
	s.out = make([]byte, largest)
	fill(s.out)
	s.acct = newAccount(len(m.Sizes))
	s.answered = make([]uint64, len(m.Sizes))
	return nil
}

// maxName bounds the names that a client sends, which the server's operator reads.
const maxName = 256

func checkHello(m controlMsg) error {
	if m.Version != version {
		return fmt.Errorf("version %d is not this server's %d", m.Version, version)
	}
	if len(m.Workload) > maxName || len(m.Device) > maxName {
		return fmt.Errorf("a name is longer than %d bytes", maxName)
	}
	return checkSizes(m.Sizes)
}

// answer answers test messages until the client asks for the account. The next answer
// is made while the client is busy with the one before, outside of its measurement.
func (s *server) answer() error {
	size := int64(0) // no block yet
	for {
		n, err := s.conn.Recv(s.ctx, s.in)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		s.moves.Add(1)
		msg := s.in[:n]
		if s.codec.isControl(msg) {
			m, err := s.codec.decode(msg, kindBlock, kindFinish)
			if err != nil {
				return err
			}
			s.acct.skipTo(m.Next)
			if m.Kind == kindFinish {
				return s.sendControl(controlMsg{Kind: kindResult, Next: s.next, Counts: s.acct.sizes})
			}
			if m.Index < 0 || m.Index >= len(s.client.Sizes) {
				return fmt.Errorf("block of size number %d of %d", m.Index, len(s.client.Sizes))
			}
			s.acct.at = m.Index
			size = s.client.Sizes[m.Index]
			s.codec.seal(s.out[:size], s.next)
			continue
		}
		if size == 0 {
			return errors.New("test message before the first block")
		}
		if number, ok := s.codec.open(msg, s.acct.next); !ok || int64(n) != size {
			s.acct.corrupted()
		} else if !s.acct.receive(number) {
			continue // answered before
		}
		if err := s.conn.Send(s.ctx, s.out[:size]); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		s.answered[s.acct.at]++
		s.next = after(s.next)
		s.codec.seal(s.out[:size], s.next)
	}
}

func (s *server) sendControl(m controlMsg) error {
	msg, err := s.codec.encode(m)
	if err != nil {
		return err
	}
	if err := s.conn.Send(s.ctx, msg); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

func (s *server) served(err error) Served {
	r := Served{Workload: s.client.Workload, Device: s.client.Device, Err: err, Conn: s.conn}
	for i, size := range s.client.Sizes {
		r.Sizes = append(r.Sizes, ServedSize{Size: size, Answered: s.answered[i], Counts: s.acct.sizes[i]})
	}
	return r
}
