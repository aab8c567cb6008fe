package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
)

// TestOverTheTransport runs both ends over the soft device: the real transport, whose
// messages take the loopback interface.
func TestOverTheTransport(t *testing.T) {
	tr, err := transport.Open(t.Context(), transport.Options{Device: "soft0", Private: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tr.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var info transport.ConnInfo
	accept := func(ctx context.Context) (bench.Conn, error) {
		c, err := l.Accept(ctx)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	dial := func(ctx context.Context) (bench.Conn, error) {
		c, err := tr.Dial(ctx, l.Addr().String())
		if err != nil {
			return nil, err
		}
		info = c.Info()
		return c, nil
	}
	const count, warmup = 200, 10
	few := warmup
	rep, err := bench.Loop(t.Context(), accept, dial, bench.Options{
		Sizes: []int64{8, 4096, 1 << 20}, Count: count, Warmup: &few, Stall: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() || !info.Dialed {
		t.Errorf("report %+v over %+v", rep, info)
	}
	for _, s := range rep.Sizes {
		if s.Latency.N() != count || s.Sent != count+warmup || s.Latency.Quantile(0.5) <= 0 {
			t.Errorf("%d bytes: n %d, sent %d, median %v", s.Size, s.Latency.N(), s.Sent, s.Latency.Quantile(0.5))
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
