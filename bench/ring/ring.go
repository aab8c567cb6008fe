// Package ring is a ring all-reduce over the transport: what a training step's
// gradients go through. Every rank sends to the next and receives from the one before,
// 2(n-1) messages of an n-th of the data each.
package ring

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/rdmatune/rdmatune/bench"
)

// Limits.
const (
	MaxRanks = 64
	MaxData  = 256 << 20 // bytes
)

// A Ring is one rank's place in the ring.
type Ring struct {
	Rank, Ranks int
	// Next is sent to, Prev received from; with one rank both are nil.
	Next, Prev bench.Conn
	// Copied is the largest message, in bytes, that Next copies: sending it does not wait
	// for its receiver, so it needs no goroutine of its own.
	Copied int64

	scratch []byte
	token   [8]byte
}

// floatSize is the bytes of a value.
const floatSize = 4

// Chunk is the size of the largest message that AllReduce sends for data of size bytes.
func Chunk(size int64, ranks int) int64 {
	values := size / floatSize
	return (values + int64(ranks) - 1) / int64(ranks) * floatSize
}

// MatchedHint is the hint for the messages of data of size bytes: one message and a
// fifth for control messages, as the function gradient_hint of the language.
func MatchedHint(size int64, ranks int) int64 {
	r := int64(ranks)
	return (6*size + 5*r - 1) / (5 * r)
}

// Prepare allocates what AllReduce needs for data of up to size bytes.
func (r *Ring) Prepare(size int64, alloc func(int) ([]byte, error)) (err error) {
	if r.Ranks < 1 || r.Ranks > MaxRanks || r.Rank < 0 || r.Rank >= r.Ranks || size < 0 || size > MaxData {
		return fmt.Errorf("rank %d of %d with %d bytes", r.Rank, r.Ranks, size)
	}
	r.scratch, err = alloc(int(max(Chunk(size, r.Ranks), floatSize)))
	return err
}

// values is b as numbers; b is aligned as memory from an allocator is.
func values(b []byte) []float32 {
	if len(b) < floatSize {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/floatSize)
}

// chunk is the part of data that has index i, of Ranks parts as equal as can be.
func (r *Ring) chunk(data []byte, i int) []byte {
	n := len(data) / floatSize
	i = ((i % r.Ranks) + r.Ranks) % r.Ranks
	return data[n*i/r.Ranks*floatSize : n*(i+1)/r.Ranks*floatSize]
}

// AllReduce replaces data, which is float32 numbers in the machine's byte order and a
// multiple of 4 bytes, by the sums over all ranks. Every rank calls it with as much.
func (r *Ring) AllReduce(ctx context.Context, data []byte) error {
	if len(data)%floatSize != 0 {
		return fmt.Errorf("%d bytes are no whole numbers", len(data))
	}
	// Scatter and reduce: after step s, the chunk that was received has s+2 addends.
	for s := range r.Ranks - 1 {
		in := r.chunk(data, r.Rank-s-1)
		into := r.scratch[:len(in)]
		if err := r.exchange(ctx, r.chunk(data, r.Rank-s), into); err != nil {
			return fmt.Errorf("reduce, step %d: %w", s, err)
		}
		sum := values(in)
		for i, v := range values(into) {
			sum[i] += v
		}
	}
	// Gather: every rank has one finished chunk, which goes around.
	for s := range r.Ranks - 1 {
		if err := r.exchange(ctx, r.chunk(data, r.Rank+1-s), r.chunk(data, r.Rank-s)); err != nil {
			return fmt.Errorf("gather, step %d: %w", s, err)
		}
	}
	return nil
}

// errSize: the rank before sent another chunk than the one due.
var errSize = errors.New("a chunk of another size than the one that is due")

// exchange sends out to the next rank while it receives in from the one before.
func (r *Ring) exchange(ctx context.Context, out, in []byte) error {
	var sent chan error
	if int64(len(out)) <= r.Copied {
		if err := r.Next.Send(ctx, out); err != nil {
			return err
		}
	} else {
		sent = make(chan error, 1)
		go func() { sent <- r.Next.Send(ctx, out) }()
	}
	n, err := r.Prev.Recv(ctx, in)
	if err == nil && n != len(in) {
		err = fmt.Errorf("%w: %d bytes, not %d", errSize, n, len(in))
	}
	if sent != nil {
		err = errors.Join(err, <-sent)
	}
	return err
}

// Barrier returns when every rank has called it: a token goes around twice.
func (r *Ring) Barrier(ctx context.Context) error {
	if r.Ranks == 1 {
		return nil
	}
	for lap := range 2 {
		if r.Rank == 0 {
			binary.LittleEndian.PutUint64(r.token[:], uint64(lap))
			if err := r.Next.Send(ctx, r.token[:]); err != nil {
				return fmt.Errorf("barrier: %w", err)
			}
		}
		n, err := r.Prev.Recv(ctx, r.token[:])
		if err == nil && n != len(r.token) {
			err = errSize
		}
		if err == nil && r.Rank > 0 {
			err = r.Next.Send(ctx, r.token[:])
		}
		if err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	return nil
}

// Fill gives data the numbers of a rank in a round, small enough for exact sums.
func Fill(data []byte, rank, round int) {
	for i, v := 0, values(data); i < len(v); i++ {
		v[i] = float32((rank + 1) * (i%13 + round%7 + 1))
	}
}

// Check reports where data is not the sum of what all ranks had in a round.
func Check(data []byte, ranks, round int) error {
	sum := ranks * (ranks + 1) / 2
	for i, v := range values(data) {
		if want := float32(sum * (i%13 + round%7 + 1)); v != want {
			return fmt.Errorf("value %d is %v, not %v", i, v, want)
		}
	}
	return nil
}
