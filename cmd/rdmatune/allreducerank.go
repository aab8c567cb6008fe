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

// rank is one rank of a ring: its parent says what to do and who is next.
func (o *options) rank(ctx context.Context, in *json.Decoder, out *json.Encoder) (_ []ringCell, err error) {
	var first ringLine
	if err := in.Decode(&first); err != nil || first.Job == nil {
		return nil, errors.Join(errors.New("this is one rank of bench allreduce, which starts it"), err)
	}
	j := *first.Job
	n, err := node.Open(o.node, o.stateDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	t, err := transport.Open(ctx, transport.Options{Device: j.Device, Soft: n.Kind() != node.Local, Mirror: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	l, err := t.Listen(ctx, net.JoinHostPort(t.Addresses()[0], "0"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := out.Encode(ringLine{Addr: l.Addr().String()}); err != nil {
		return nil, err
	}
	var next ringLine
	if err := in.Decode(&next); err != nil {
		return nil, err
	}
	m := &ringMember{job: j, t: t}
	if err := m.join(ctx, l, next.Addr); err != nil {
		return nil, err
	}
	if err := m.run(ctx); err != nil {
		return nil, err
	}
	return m.cells, m.leave(ctx)
}

// A ringMember is a rank at work.
type ringMember struct {
	job   ringJob
	t     *transport.Transport
	rings []*ring.Ring // by hint
	conns []*transport.Conn
	data  *transport.Buffer
	cells []ringCell
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

// run measures all sizes with both hints, in turns; all ranks go the same way.
func (m *ringMember) run(ctx context.Context) error {
	j := m.job
	type cell struct {
		ring int
		hist *measure.Histogram
	}
	cells := map[[2]int]*cell{}
	for i := range j.Sizes {
		cells[[2]int{i, 0}] = &cell{0, measure.New()}
		cells[[2]int{i, 1}] = &cell{i + 1, measure.New()}
	}
	turn := 0
	for round := range j.Rounds {
		count := j.Count*(round+1)/j.Rounds - j.Count*round/j.Rounds
		for i, size := range j.Sizes {
			for k := range 2 {
				c := cells[[2]int{i, (k + round) % 2}]
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
	for i, size := range j.Sizes {
		for k := range 2 {
			c := cells[[2]int{i, k}]
			encoded, err := c.hist.Encode()
			if err != nil {
				return err
			}
			info := m.conns[len(m.conns)-len(m.rings)+c.ring].Info()
			m.cells = append(m.cells, ringCell{Size: size, Matched: k == 1, Histogram: encoded, Profile: profileOf(info)})
		}
	}
	return nil
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
	return took, ring.Check(data, m.job.Ranks, turn)
}

// leave closes when every rank is through: one that closed earlier would end the others.
func (m *ringMember) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	if err := m.rings[0].Barrier(ctx); err != nil {
		return err
	}
	var errs []error
	for _, c := range m.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
