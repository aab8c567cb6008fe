package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/bench/ring"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/node"
)

// ringTimeout bounds the time between two messages of the ring.
const ringTimeout = 30 * time.Second

// errWrongSum is an all-reduce with a wrong result.
var errWrongSum = errors.New("wrong sum")

// rank is one rank of a ring: its parent says what to do, who is next and when to stop,
// and is told what was measured. With an error, that is not said yet but returned.
func (o *options) rank(ctx context.Context, in *json.Decoder, out *json.Encoder) (last ringLine, err error) {
	var first ringLine
	if err := in.Decode(&first); err != nil || first.Job == nil {
		return last, errors.Join(errors.New("this is one rank of bench allreduce, which starts it"), err)
	}
	j := *first.Job
	n, err := node.Open(o.node, o.stateDir)
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	t, err := transport.Open(ctx, transport.Options{Device: j.Device, Soft: n.Kind() != node.Local, Mirror: true, Private: true})
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	l, err := t.Listen(ctx, net.JoinHostPort(t.Addresses()[0], "0"))
	if err != nil {
		return last, err
	}
	defer l.Close()
	if err := out.Encode(ringLine{Addr: l.Addr().String()}); err != nil {
		return last, err
	}
	var next ringLine
	if err := in.Decode(&next); err != nil {
		return last, err
	}
	m := &ringMember{job: j, t: t}
	if err := m.join(ctx, l, next.Addr); err != nil {
		return last, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{}) // with the parent's lines
	go func() {
		defer close(ended)
		defer stop()
		for {
			var line ringLine
			if err := in.Decode(&line); err != nil {
				return
			}
			stop()
		}
	}()
	if err = m.run(ctx); err == nil {
		err = m.leave(ctx)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, errWrongSum) {
		err = nil // it was told to stop
	}
	cells, encodeErr := m.measured()
	last.Cells = cells
	if err := errors.Join(err, encodeErr); err != nil {
		return last, err
	}
	if err := out.Encode(last); err != nil {
		return last, err
	}
	<-ended // one that closes earlier ends the others'
	return ringLine{}, m.close()
}

// A ringMember is a rank at work.
type ringMember struct {
	job   ringJob
	t     *transport.Transport
	rings []*ring.Ring // by hint
	conns []*transport.Conn
	data  *transport.Buffer
	cells map[[2]int]*ringHistogram // by number of the size, and 1 for the matched hint
}

// A ringHistogram is what a rank measures of one size with one hint.
type ringHistogram struct {
	ring int // number of the ring
	hist *measure.Histogram
}

// join connects to the next rank once for every hint, and takes the connections of the
// one before; the first message of each says which hint it is for.
func (m *ringMember) join(ctx context.Context, l *transport.Listener, next string) error {
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	hints := m.job.hints()
	dialed := make(chan error, 1)
	out := make([]*transport.Conn, len(hints))
	go func() {
		for i, h := range hints {
			c, err := m.t.DialFixed(ctx, next, transport.Settings{Size: &h})
			if err == nil {
				out[i] = c
				err = c.Send(ctx, binary.LittleEndian.AppendUint32(nil, uint32(i)))
			}
			if err != nil {
				dialed <- fmt.Errorf("next rank: %w", err)
				return
			}
		}
		dialed <- nil
	}()
	prev := make([]*transport.Conn, len(hints))
	var acceptErr error
	for range hints {
		c, err := l.Accept(ctx)
		var index [4]byte
		if err == nil {
			m.conns = append(m.conns, c)
			_, err = c.Recv(ctx, index[:])
		}
		i := int(binary.LittleEndian.Uint32(index[:]))
		if err == nil && (i >= len(hints) || prev[i] != nil) {
			err = fmt.Errorf("a connection for hint number %d", i)
		}
		if acceptErr = err; err != nil {
			cancel()
			break
		}
		prev[i] = c
	}
	if err := errors.Join(<-dialed, acceptErr); err != nil {
		return err
	}
	m.conns = append(m.conns, out...)
	largest := slices.Max(m.job.Sizes)
	var err error
	if m.data, err = m.t.Register(int(largest)); err != nil {
		return err
	}
	for i := range hints {
		r := &ring.Ring{Rank: m.job.Rank, Ranks: m.job.Ranks, Next: out[i], Prev: prev[i], Copied: out[i].Info().Eager}
		if err := r.Prepare(largest, m.alloc); err != nil {
			return err
		}
		m.rings = append(m.rings, r)
	}
	return nil
}

// alloc returns registered memory, so that nothing is registered while it is timed.
func (m *ringMember) alloc(n int) ([]byte, error) {
	b, err := m.t.Register(n)
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// run measures all sizes with both hints, in turns; all ranks go the same way. When ctx
// ends, the all-reduce that is under way is not counted.
func (m *ringMember) run(ctx context.Context) error {
	j := m.job
	m.cells = map[[2]int]*ringHistogram{}
	for i := range j.Sizes {
		m.cells[[2]int{i, 0}] = &ringHistogram{0, measure.New()}
		m.cells[[2]int{i, 1}] = &ringHistogram{i + 1, measure.New()}
	}
	turn := 0
	for round := range j.Rounds {
		count := j.Count*(round+1)/j.Rounds - j.Count*round/j.Rounds
		for i, size := range j.Sizes {
			for k := range 2 {
				c := m.cells[[2]int{i, (k + round) % 2}]
				for n := range j.Warmup + count {
					took, err := m.one(ctx, c.ring, size, turn)
					if err != nil {
						return fmt.Errorf("%d bytes: %w", size, err)
					}
					if turn++; n >= j.Warmup {
						c.hist.Record(took)
					}
				}
			}
		}
	}
	return nil
}

// measured returns what run has measured so far.
func (m *ringMember) measured() ([]ringCell, error) {
	var out []ringCell
	for i, size := range m.job.Sizes {
		for k := range 2 {
			c := m.cells[[2]int{i, k}]
			if c.hist.N() == 0 {
				continue
			}
			encoded, err := c.hist.Encode()
			if err != nil {
				return nil, err
			}
			info := m.conns[len(m.conns)-len(m.rings)+c.ring].Info()
			out = append(out, ringCell{Size: size, Matched: k == 1, Histogram: encoded, Profile: profileOf(info)})
		}
	}
	return out, nil
}

// one times one all-reduce from the moment that every rank is there, and checks it.
func (m *ringMember) one(ctx context.Context, at int, size int64, turn int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	r, data := m.rings[at], m.data.Bytes()[:size]
	ring.Fill(data, m.job.Rank, turn)
	if err := r.Barrier(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := r.AllReduce(ctx, data); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if err := ring.Check(data, m.job.Ranks, turn); err != nil {
		return 0, fmt.Errorf("%w: %w", errWrongSum, err)
	}
	return took, nil
}

// leave returns when every rank is through.
func (m *ringMember) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	return m.rings[0].Barrier(ctx)
}

// close closes the connections.
func (m *ringMember) close() error {
	var errs []error
	for _, c := range m.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
