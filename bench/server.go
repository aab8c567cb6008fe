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
	// Alloc returns the memory of messages, such as registered memory; nil: make.
	Alloc Allocator
	// Clients bounds how many are served at once; more are refused as busy. 0 or above
	// MaxClients: MaxClients.
	Clients int
	// OnClient is called when a client has ended, one call at a time; nil: nobody is.
	OnClient func(Served)
	// Once ends Serve when the last of the clients that it serves has ended: one with
	// several connections is as many clients here, which all come before one ends.
	Once bool
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

// Serve answers the clients that accept returns, until ctx ends, accept fails or o.Once does; then
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
	var served atomic.Int32
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
		if !busy {
			served.Add(1)
		}
		all.Go(func() {
			client := serveOne(ctx, c, o, busy)
			<-slot
			mu.Lock()
			defer mu.Unlock()
			if o.OnClient != nil {
				o.OnClient(client)
			}
			if !busy && served.Add(-1) == 0 && o.Once {
				cancel()
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

	o        *ServeOptions
	client   controlMsg // its hello
	in, out  [][]byte
	free     []func() // give them back
	next     uint64   // number of the next answer
	acct     *account
	answered []uint64
}

func serveOne(ctx context.Context, c Conn, o ServeOptions, busy bool) Served {
	if o.Alloc == nil {
		o.Alloc = makeMemory
	}
	s := &server{conn: c, codec: codec{send: toClient, recv: toServer}, o: &o}
	var cancel context.CancelCauseFunc
	s.ctx, cancel = context.WithCancelCause(ctx)
	stop := watch(&s.moves, idleTimeout, func() { cancel(errSilent) })
	err := s.hello(busy)
	if err == nil {
		err = s.answer()
	}
	stop()
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	err = errors.Join(err, c.Close())
	for _, free := range s.free {
		free()
	}
	return s.served(err)
}

// hello settles what the client wants. Only then are buffers of the client's sizes
// made: by then the sizes are known to be within limits.
func (s *server) hello(busy bool) error {
	first := make([]byte, maxControl)
	n, err := s.conn.Recv(s.ctx, first)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	m, err := s.codec.decode(first[:n], kindHello)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	welcome := controlMsg{Kind: kindWelcome, Version: version, Device: s.o.Device}
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
	largest := int(slices.Max(m.Sizes))
	var free func()
	if s.in, free, err = buffers(s.o.Alloc, m.InFlight, max(largest, maxControl)); err != nil {
		return err
	}
	s.free = append(s.free, free)
	if s.out, free, err = buffers(s.o.Alloc, m.InFlight, largest); err != nil {
		return err
	}
	s.free = append(s.free, free)
	for _, b := range s.out {
		fill(b)
	}
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
	if err := CheckSizes(m.Sizes); err != nil {
		return err
	}
	if most := MostInFlight(m.Sizes); m.InFlight < 1 || m.InFlight > most {
		return fmt.Errorf("%d messages in flight; at most %d of this size", m.InFlight, most)
	}
	return nil
}

// answer answers test messages until the client asks for the account. The next answer
// is made while the client is busy with the one before, outside of its measurement.
func (s *server) answer() error {
	block := controlMsg{} // none yet
	for {
		n, err := s.conn.Recv(s.ctx, s.in[0])
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		s.moves.Add(1)
		msg := s.in[0][:n]
		if s.codec.isControl(msg) {
			m, err := s.codec.decode(msg, kindBlock, kindFinish)
			if err != nil {
				return err
			}
			s.acct.skipTo(m.Next)
			if m.Kind == kindFinish {
				return s.sendControl(controlMsg{Kind: kindResult, Next: s.next, Counts: s.acct.sizes})
			}
			if err := s.begin(m); err != nil {
				return err
			}
			block = m
			continue
		}
		if block.Kind == "" {
			return errors.New("test message before the first block")
		}
		if err := s.answerOne(block, msg); err != nil {
			return err
		}
	}
}

// begin starts a block; one of a stream is received here whole.
func (s *server) begin(m controlMsg) error {
	if m.Index < 0 || m.Index >= len(s.client.Sizes) {
		return fmt.Errorf("block of size number %d of %d", m.Index, len(s.client.Sizes))
	}
	s.acct.at = m.Index
	switch m.Mode {
	case RoundTrips:
		s.codec.seal(s.out[0][:s.client.Sizes[m.Index]], s.next)
		return nil
	case Mixed:
		return nil
	case Streams, BothWays:
		if m.Count < 1 || m.Count > maxBatch || m.Back < 0 || m.Back > maxBatch {
			return fmt.Errorf("stream of %d messages and %d back", m.Count, m.Back)
		}
		return s.stream(m)
	}
	return fmt.Errorf("block of mode %.20q", m.Mode)
}

// answerOne answers one test message and then looks whether it is whole, which the
// client need not wait for.
func (s *server) answerOne(block controlMsg, msg []byte) error {
	at := block.Index
	if block.Mode == Mixed {
		if i := slices.Index(s.client.Sizes, int64(len(msg))); i >= 0 {
			at = i // another size is answered all the same: the client waits
		}
		s.acct.at = at
		s.codec.seal(s.out[0][:s.client.Sizes[at]], s.next)
	}
	size := s.client.Sizes[at]
	whole := int64(len(msg)) == size
	expected := s.acct.next
	if number, ok := peek(msg, expected); ok && number < expected && whole {
		if _, ok := s.codec.open(msg, expected); ok {
			s.acct.receive(number)
			return nil // answered before
		}
	}
	if err := s.reply(size); err != nil {
		return err
	}
	if number, ok := s.codec.open(msg, expected); ok && whole {
		s.acct.receive(number)
	} else {
		s.acct.corrupted()
	}
	if block.Mode == RoundTrips {
		s.codec.seal(s.out[0][:size], s.next)
	}
	return nil
}

// reply sends the answer that is sealed.
func (s *server) reply(size int64) error {
	if err := s.conn.Send(s.ctx, s.out[0][:size]); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	s.answered[s.acct.at]++
	s.next = after(s.next)
	return nil
}

// stream receives a block of a stream, sends its own messages meanwhile, and says when
// both are done.
func (s *server) stream(m controlMsg) error {
	size := s.client.Sizes[m.Index]
	e := endpoint{conn: s.conn, codec: &s.codec, out: s.out, in: s.in, moves: &s.moves}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	sent := make(chan error, 1)
	go func() {
		next, err := e.send(ctx, s.next, m.Back, size)
		s.next = next
		if err != nil {
			cancel(err)
		}
		sent <- err
	}()
	end, err := e.receive(ctx, s.acct, m.Count, size, kindSync)
	if err != nil {
		cancel(err)
	}
	if sendErr := <-sent; sendErr != nil || err != nil {
		return errors.Join(err, sendErr)
	}
	s.answered[m.Index] += uint64(m.Back)
	s.acct.skipTo(end.Next)
	return s.sendControl(controlMsg{Kind: kindSynced, Next: s.next})
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
