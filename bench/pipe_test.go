package bench

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
)

// A pipe is one end of a connection in memory. It allocates nothing once its buffers
// have grown. A fault may change what arrives.
type pipe struct {
	out, in *queue
	// fault, when set, is given the n-th received message, counted from 0, and returns
	// what arrives in its place.
	fault func(n int, msg []byte) [][]byte

	received int
	pending  [][]byte
}

// A queue carries messages one way: full holds those under way, free their buffers.
type queue struct {
	full, free chan []byte
	closed     chan struct{}
	once       sync.Once
}

func newQueue() *queue {
	q := &queue{full: make(chan []byte, 4), free: make(chan []byte, 4), closed: make(chan struct{})}
	for range cap(q.free) {
		q.free <- nil
	}
	return q
}

func newPipe() (client, server *pipe) {
	a, b := newQueue(), newQueue()
	return &pipe{out: a, in: b}, &pipe{out: b, in: a}
}

func (p *pipe) Send(ctx context.Context, msg []byte) error {
	select {
	case buf := <-p.out.free:
		select {
		case <-p.in.closed: // the peer closes what it sends on
			return io.ErrClosedPipe
		default:
		}
		p.out.full <- append(buf[:0], msg...)
		return nil
	case <-p.in.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pipe) Recv(ctx context.Context, buf []byte) (int, error) {
	for len(p.pending) == 0 {
		msg, err := p.next(ctx)
		if err != nil {
			return 0, err
		}
		if p.fault == nil {
			n := copy(buf, msg)
			p.in.free <- msg
			if n < len(msg) {
				return 0, errors.New("message does not fit")
			}
			return n, nil
		}
		p.pending = p.fault(p.received, append([]byte(nil), msg...))
		p.received++
		p.in.free <- msg
	}
	n := copy(buf, p.pending[0])
	p.pending = p.pending[1:]
	return n, nil
}

func (p *pipe) next(ctx context.Context) ([]byte, error) {
	select {
	case msg := <-p.in.full:
		return msg, nil
	default:
	}
	select {
	case msg := <-p.in.full:
		return msg, nil
	case <-p.in.closed:
		select {
		case msg := <-p.in.full: // sent before the close
			return msg, nil
		default:
			return nil, io.EOF
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Close() error {
	p.out.once.Do(func() { close(p.out.closed) })
	return nil
}

// serve serves one end until the test ends and returns what it said of the client.
func serve(t *testing.T, c Conn) <-chan Served {
	t.Helper()
	done := make(chan Served, 1)
	go func() { done <- serveOne(t.Context(), c, ServeOptions{Device: "soft1"}, false) }()
	return done
}

func ptr(n int) *int { return &n }
