// Package over measures the transport through its API, with nothing on top.
package over

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
)

// A Job is what both ends do. The client tells the server by its first message.
type Job struct {
	Size     int
	Count    int  // round trips, or messages of a stream
	Warmup   int  // as many more before, that are not counted
	Stream   bool // one way at full speed instead of round trips
	InFlight int  // messages of a stream under way at once
}

// Bounds of a Job, which comes from the network.
const (
	maxSize     = 64 << 20
	maxCount    = 100_000_000
	maxInFlight = 256
	maxJob      = 4096 // bytes of its JSON
)

func (j Job) check() error {
	if j.Size < 1 || j.Size > maxSize || j.Count < 1 || j.Count > maxCount || j.Warmup < 0 || j.Warmup > maxCount ||
		j.InFlight < 1 || j.InFlight > maxInFlight {
		return fmt.Errorf("job %+v is out of bounds", j)
	}
	return nil
}

// Serve answers one client that comes to l, a listener of t.
func Serve(ctx context.Context, t *transport.Transport, l *transport.Listener) (err error) {
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var text [maxJob]byte
	n, err := c.Recv(ctx, text[:])
	if err != nil {
		return err
	}
	var job Job
	if err := json.Unmarshal(text[:n], &job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := job.check(); err != nil {
		return err
	}
	buf, err := t.Register(job.Size * job.InFlight)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	if job.Stream {
		for _, n := range []int{job.Warmup, job.Count} {
			if err := each(job, buf.Bytes(), n, func(b []byte) error { _, err := c.Recv(ctx, b); return err }); err != nil {
				return err
			}
			if err := c.Send(ctx, buf.Bytes()[:1]); err != nil {
				return err
			}
		}
	} else {
		for range job.Warmup + job.Count {
			if _, err := c.Recv(ctx, buf.Bytes()); err != nil {
				return err
			}
			if err := c.Send(ctx, buf.Bytes()); err != nil {
				return err
			}
		}
	}
	// The client's farewell, or its end: everything has arrived.
	if _, err := c.Recv(ctx, text[:]); err != nil && !errors.Is(err, transport.ErrClosed) {
		return err
	}
	return nil
}

// each does n messages, as many at once as the job says, each with a part of mem of
// its own.
func each(job Job, mem []byte, n int, do func(b []byte) error) error {
	errs := make([]error, min(job.InFlight, n))
	var wg sync.WaitGroup
	for w := range errs {
		own := n / len(errs)
		if w < n%len(errs) {
			own++
		}
		b := mem[w*job.Size : (w+1)*job.Size]
		wg.Go(func() {
			for range own {
				if errs[w] = do(b); errs[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Connect runs job against the server at addr and returns the round trips, or the
// time that the whole stream took as the only one: until the server has it all. The
// connection follows s, at the server as well where its transport mirrors; nil: each
// end what its transport does.
func Connect(ctx context.Context, t *transport.Transport, addr string, s *transport.Settings, job Job) (_ []time.Duration, err error) {
	if err := job.check(); err != nil {
		return nil, err
	}
	dial := t.Dial
	if s != nil {
		dial = func(ctx context.Context, addr string) (*transport.Conn, error) { return t.DialFixed(ctx, addr, *s) }
	}
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if err := c.Send(ctx, text); err != nil {
		return nil, err
	}
	buf, err := t.Register(job.Size * job.InFlight)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	var took []time.Duration
	if job.Stream {
		for _, n := range []int{job.Warmup, job.Count} {
			start := time.Now()
			if err := each(job, buf.Bytes(), n, func(b []byte) error { return c.Send(ctx, b) }); err != nil {
				return nil, err
			}
			if _, err := c.Recv(ctx, buf.Bytes()[:1]); err != nil {
				return nil, err
			}
			took = []time.Duration{time.Since(start)}
		}
	} else {
		took = make([]time.Duration, 0, job.Count)
		for i := range job.Warmup + job.Count {
			start := time.Now()
			if err := c.Send(ctx, buf.Bytes()); err != nil {
				return nil, err
			}
			if _, err := c.Recv(ctx, buf.Bytes()); err != nil {
				return nil, err
			}
			if i >= job.Warmup {
				took = append(took, time.Since(start))
			}
		}
	}
	return took, c.Send(ctx, text[:1])
}
