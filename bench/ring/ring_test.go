package ring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
)

// A pipe carries messages one way, a few at a time.
type pipe chan []byte

func (p pipe) Send(ctx context.Context, msg []byte) error {
	select {
	case p <- append([]byte(nil), msg...):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p pipe) Recv(ctx context.Context, buf []byte) (int, error) {
	select {
	case msg, ok := <-p:
		if !ok {
			return 0, io.EOF
		}
		if len(msg) > len(buf) {
			return 0, io.ErrShortBuffer
		}
		return copy(buf, msg), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (p pipe) Close() error { return nil }

func makeAlloc(n int) ([]byte, error) { return make([]byte, n), nil }

// TestAllReduce runs every number of ranks with sizes that do and do not divide, and
// with messages that wait for their receiver and that do not.
func TestAllReduce(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 7} {
		for _, copied := range []int64{-1, 1 << 30} {
			for _, size := range []int64{0, 4, 12, 256, 4 * 1001, 1 << 16} {
				name := fmt.Sprintf("%d ranks, %d bytes, %d copied", ranks, size, copied)
				pipes := make([]pipe, ranks) // to rank i
				for i := range pipes {
					pipes[i] = make(pipe, max(min(copied, 4), 0))
				}
				errs := make([]error, ranks)
				var all sync.WaitGroup
				for i := range ranks {
					all.Go(func() {
						r := Ring{Rank: i, Ranks: ranks, Next: pipes[(i+1)%ranks], Prev: pipes[i], Copied: copied}
						if errs[i] = r.Prepare(size, makeAlloc); errs[i] != nil {
							return
						}
						data := make([]byte, size)
						for round := range 3 {
							Fill(data, i, round)
							if copied > 0 {
								errs[i] = errors.Join(errs[i], r.Barrier(t.Context()))
							}
							errs[i] = errors.Join(errs[i], r.AllReduce(t.Context(), data), Check(data, ranks, round))
						}
					})
				}
				all.Wait()
				if err := errors.Join(errs...); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, r := range []Ring{{Rank: 0, Ranks: 0}, {Rank: 2, Ranks: 2}, {Rank: -1, Ranks: 2}, {Ranks: MaxRanks + 1}} {
		if err := r.Prepare(8, makeAlloc); err == nil {
			t.Errorf("rank %d of %d was taken", r.Rank, r.Ranks)
		}
	}
	big := Ring{Ranks: 1}
	if err := big.Prepare(MaxData+1, makeAlloc); err == nil {
		t.Error("too much data was taken")
	}
	prev := make(pipe, 1)
	r := Ring{Ranks: 2, Next: make(pipe, 9), Prev: prev, Copied: 100}
	if err := r.Prepare(64, makeAlloc); err != nil {
		t.Fatal(err)
	}
	if err := r.AllReduce(t.Context(), make([]byte, 6)); err == nil {
		t.Error("half a number was taken")
	}
	prev <- make([]byte, 4)
	if err := r.AllReduce(t.Context(), make([]byte, 64)); !errors.Is(err, errSize) {
		t.Errorf("a short chunk: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.AllReduce(ctx, make([]byte, 64)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		size        int64
		ranks       int
		chunk, hint int64
	}{{256 << 10, 4, 64 << 10, 78644}, {1000, 3, 336, 400}, {64 << 20, 64, 1 << 20, 1258292}} {
		if c, h := Chunk(tc.size, tc.ranks), MatchedHint(tc.size, tc.ranks); c != tc.chunk || h != tc.hint {
			t.Errorf("%d bytes on %d ranks: chunk %d, hint %d; want %d, %d", tc.size, tc.ranks, c, h, tc.chunk, tc.hint)
		}
	}
}

func TestCheckFinds(t *testing.T) {
	data := make([]byte, 64)
	Fill(data, 0, 1)
	if err := Check(data, 1, 1); err != nil {
		t.Error(err)
	}
	data[9] ^= 1
	if err := Check(data, 1, 1); err == nil {
		t.Error("a wrong value was not found")
	}
}
