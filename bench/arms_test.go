package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow returns a pipe whose client's end gets every message after d, and a server on
// the other end.
func slow(t *testing.T, d func(n int) time.Duration) *pipe {
	cl, sv := newPipe()
	cl.fault = func(n int, msg []byte) [][]byte {
		time.Sleep(d(n))
		return [][]byte{msg}
	}
	serve(t, sv)
	return cl
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// TestArmsAlternate lets the machine get slower all the time: arms that are the same
// must look the same all the same.
func TestArmsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		drift := func(int) time.Duration { return time.Millisecond + time.Since(start)/1000 }
		var order strings.Builder
		rep, err := Run(t.Context(), []Arm{
			{Name: "a", Conns: []Conn{slow(t, drift)}}, {Name: "b", Conns: []Conn{slow(t, drift)}},
		}, Options{Sizes: []int64{64}, Count: 1000, Warmup: ptr(5), Progress: func(p Progress) {
			if p.N > 0 {
				order.WriteString(p.Series)
			}
		}})
		if err != nil || !rep.OK() {
			t.Fatalf("%+v, %v", rep, err)
		}
		if order.String() != "abbaabbaabbaabbaabba" {
			t.Errorf("turns %s", order.String())
		}
		a, b := rep.Sizes[0].Latency, rep.Sizes[1].Latency
		if a.N() != 1000 || b.N() != 1000 {
			t.Errorf("n %d and %d", a.N(), b.N())
		}
		if x, y := a.Quantile(0.5).Seconds(), b.Quantile(0.5).Seconds(); math.Abs(x/y-1) > 0.1 {
			t.Errorf("medians %v and %v of the same", x, y)
		}
		if first, last := rep.Sizes[0].Timeline[0], rep.Sizes[0].Timeline[len(rep.Sizes[0].Timeline)-1]; last.P50 < 2*first.P50 {
			t.Errorf("the timeline does not show the drift: %+v to %+v", first, last)
		}
	})
}

func TestSeveralConnectionsShareTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, err := Run(t.Context(), []Arm{{Name: "", Conns: []Conn{
			slow(t, always(time.Millisecond)), slow(t, always(2*time.Millisecond)), slow(t, always(3*time.Millisecond)),
		}}}, Options{Sizes: []int64{64, 128}, Count: 100, Warmup: ptr(0)})
		if err != nil || !rep.OK() || rep.Conns != 3 {
			t.Fatalf("%+v, %v", rep, err)
		}
		for _, s := range rep.Sizes {
			// The fast ones keep the load up, untimed, until the slow one has its share.
			if s.Latency.N() != 100 || s.Sent < 150 {
				t.Errorf("%d bytes: n %d, sent %d", s.Size, s.Latency.N(), s.Sent)
			}
		}
	})
}

func TestMixed(t *testing.T) {
	cl, sv := newPipe()
	served := serve(t, sv)
	rep, err := Client(t.Context(), cl, Options{
		Sizes: []int64{64, 4096}, Weights: []float64{95, 5}, Mode: Mixed, Count: 4000, Warmup: ptr(10),
	})
	if err != nil || !rep.OK() || rep.Mode != Mixed {
		t.Fatalf("%+v, %v", rep, err)
	}
	small, large := rep.Sizes[0].Latency.N(), rep.Sizes[1].Latency.N()
	if small+large != 4000 || large < 130 || large > 280 {
		t.Errorf("%d small and %d large, want 5 %% large", small, large)
	}
	if s := <-served; s.Err != nil || s.Sizes[1].Answered < uint64(large) {
		t.Errorf("server: %+v", s)
	}
}

// TestMixedOnSeveralConnections draws on all of them at once.
func TestMixedOnSeveralConnections(t *testing.T) {
	var conns []Conn
	for range 3 {
		cl, sv := newPipe()
		serve(t, sv)
		conns = append(conns, cl)
	}
	rep, err := Run(t.Context(), []Arm{{Conns: conns}}, Options{Sizes: []int64{64, 512}, Weights: []float64{1, 1}, Mode: Mixed, Count: 300, Warmup: ptr(2)})
	if err != nil || !rep.OK() || rep.Sizes[0].Latency.N()+rep.Sizes[1].Latency.N() != 300 {
		t.Fatalf("%+v, %v", rep, err)
	}
}

// TestRate checks that a stall is felt by the messages that it delayed, not only by
// the one that was under way.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := func(n int) time.Duration {
			if n == 50 {
				return 100 * time.Millisecond
			}
			return time.Microsecond
		}
		start := time.Now()
		rep, err := Client(t.Context(), slow(t, stall), Options{Sizes: []int64{64}, Count: 200, Warmup: ptr(0), Rate: 100})
		if err != nil || !rep.OK() {
			t.Fatalf("%+v, %v", rep, err)
		}
		if took := time.Since(start); took < 1900*time.Millisecond || took > 2200*time.Millisecond {
			t.Errorf("200 messages at 100 per second took %v", took)
		}
		// Those due 10 ms apart during the stall wait 100, 90, ... 10 ms.
		o := rep.Sizes[0].Latency.Outliers()
		if o.N < 8 || o.N > 11 || rep.Sizes[0].Latency.Max() < 100*time.Millisecond {
			t.Errorf("%+v, max %v", o, rep.Sizes[0].Latency.Max())
		}
		if w := rep.Sizes[0].Worst[0]; w.Index != 49 {
			t.Errorf("the longest is %+v", w)
		}
	})
}

func TestStreams(t *testing.T) {
	for _, mode := range []Mode{Streams, BothWays} {
		for _, inFlight := range []int{1, 8} {
			cl, sv := newPipe()
			served := serve(t, sv)
			rep, err := Client(t.Context(), cl, Options{
				Sizes: []int64{64, 8192}, Mode: mode, Count: 3000, InFlight: inFlight, Warmup: ptr(20),
			})
			if err != nil || !rep.OK() {
				t.Fatalf("%s, %d in flight: %+v, %v", mode, inFlight, rep, err)
			}
			want, sent := int64(3000), uint64(3020)
			if mode == BothWays {
				want, sent = 2*want, 2*sent
			}
			for _, s := range rep.Sizes {
				if s.Messages != want || s.Sent != sent || s.Bytes != want*s.Size || s.Bandwidth() <= 0 || s.Latency.N() != 0 {
					t.Errorf("%s, %d in flight, %d bytes: %d messages, sent %d, bytes %d", mode, inFlight, s.Size, s.Messages, s.Sent, s.Bytes)
				}
			}
			if s := <-served; s.Err != nil {
				t.Error(s.Err)
			}
		}
	}
}

func TestStreamForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, sv := newPipe()
		sv.fault = func(_ int, msg []byte) [][]byte {
			time.Sleep(time.Millisecond)
			return [][]byte{msg}
		}
		go serveOne(t.Context(), sv, ServeOptions{}, false)
		start := time.Now()
		rep, err := Client(t.Context(), cl, Options{Sizes: []int64{1000}, Mode: Streams, Duration: 10 * time.Second, InFlight: 1})
		if err != nil || !rep.OK() {
			t.Fatalf("%+v, %v", rep, err)
		}
		// A message takes a millisecond, so a megabyte takes a second.
		if b := rep.Sizes[0].Bandwidth(); b < 900_000 || b > 1_000_000 {
			t.Errorf("bandwidth %d", b)
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("took %v", took)
		}
		if n := len(rep.Sizes[0].Timeline); n < 50 || n >= maxPoints {
			t.Errorf("%d points", n)
		}
	})
}

// TestStreamFaults damages, repeats and swallows messages of a stream: it ends all the
// same, and each is counted.
func TestStreamFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(n int, msg []byte) [][]byte
		want  Counts
	}{
		"repeated": {func(n int, msg []byte) [][]byte {
			if n == 20 {
				return [][]byte{msg, msg}
			}
			return [][]byte{msg}
		}, Counts{Duplicated: 1}},
		"lost": {func(n int, msg []byte) [][]byte {
			if n == 20 || n == 21 {
				return [][]byte{}
			}
			return [][]byte{msg}
		}, Counts{Lost: 2}},
		"damaged": {func(n int, msg []byte) [][]byte {
			if n == 20 {
				msg[len(msg)-1] ^= 1
			}
			return [][]byte{msg}
		}, Counts{Corrupted: 1, Lost: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cl, sv := newPipe()
			sv.fault = tc.fault
			served := serve(t, sv)
			rep, err := Client(t.Context(), cl, Options{Sizes: []int64{64}, Mode: Streams, Count: 40, InFlight: 1, Warmup: ptr(0)})
			if err != nil || rep.OK() || rep.Sizes[0].Counts != tc.want {
				t.Errorf("%s: %+v, %v; want %+v", name, rep.Sizes[0].Counts, err, tc.want)
			}
			<-served
		})
	}
}

func TestStreamEndsWithItsPeer(t *testing.T) {
	cl, sv := newPipe()
	var once sync.Once
	sv.fault = func(n int, msg []byte) [][]byte {
		if n == 30 {
			once.Do(func() { sv.Close() })
		}
		return [][]byte{msg}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		serveOne(ctx, sv, ServeOptions{}, false)
	}()
	defer cancel()
	rep, err := Client(t.Context(), cl, Options{Sizes: []int64{64}, Mode: Streams, Duration: time.Hour, InFlight: 1})
	if err == nil || rep.Complete {
		t.Errorf("the peer closed: %+v, %v", rep, err)
	}
}

func TestTimeline(t *testing.T) {
	var l timeline
	at := time.Duration(0)
	for range 100_000 {
		at += time.Millisecond
		l.record(at, 500*time.Microsecond)
	}
	l.close(at)
	if len(l.points) >= maxPoints || l.n() != 100_000 {
		t.Fatalf("%d points of %d messages", len(l.points), l.n())
	}
	for i, p := range l.points {
		if p.P50 < 499*time.Microsecond || p.P50 > 501*time.Microsecond || p.Took <= 0 || i > 0 && p.At <= l.points[i-1].At {
			t.Errorf("point %d: %+v", i, p)
		}
	}
}

// A counting pipe counts the Sends that find it full.
type counting struct {
	*pipe
	full uint64
}

func (c *counting) Send(ctx context.Context, msg []byte) error {
	if len(c.out.free) == 0 {
		c.full++
	}
	return c.pipe.Send(ctx, msg)
}

func (c *counting) FullEvents() uint64 { return c.full }

// TestBursts sends bursts over a connection that carries four messages at once, of
// sizes that differ: all are timed, the later ones of a burst wait longer, and the
// Sends that take long are those that found it full.
func TestBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := &counting{pipe: slow(t, always(time.Millisecond))}
		rep, err := Client(t.Context(), cl, Options{
			Sizes: []int64{64, 4096}, Weights: []float64{1, 1}, Mode: Mixed, Count: 95, Burst: 10, Warmup: ptr(5),
		})
		if err != nil || !rep.OK() || rep.Burst != 10 {
			t.Fatalf("%+v, %v", rep, err)
		}
		n, longest, least := int64(0), time.Duration(0), time.Hour
		sends, full := int64(0), int64(0)
		for _, s := range rep.Sizes {
			n += s.Latency.N()
			sends, full = sends+s.Sends.Took.N(), full+s.Sends.Full.N()
			if out := s.Sends.Outliers(); out.N != out.Full || out.N == 0 {
				t.Errorf("%d of %d long Sends found no room", out.Full, out.N)
			}
			longest, least = max(longest, s.Latency.Max()), min(least, s.Latency.Quantile(0))
		}
		if n != 95 || longest < 5*time.Millisecond || least > 2*time.Millisecond {
			t.Errorf("%d timed, %v to %v", n, least, longest)
		}
		if sends != n || full == 0 || uint64(full) != cl.full {
			t.Errorf("%d Sends timed of %d, %d found no room, not %d", sends, n, full, cl.full)
		}
	})
}

// TestLoopThatDoesNotBegin: why an end could not begin is said once, and not that the
// other one was told to stop for it.
func TestLoopThatDoesNotBegin(t *testing.T) {
	bad := errors.New("no such hint")
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("wait: %w", ctx.Err())
	}
	refuse := func(context.Context) error { return bad }
	for name, ends := range map[string]struct{ accept, dial func(context.Context) error }{
		"the client": {wait, refuse},
		"the server": {refuse, wait},
	} {
		_, err := LoopArms(t.Context(), func(ctx context.Context) (Conn, error) { return nil, ends.accept(ctx) }, 1,
			func(ctx context.Context) ([]Arm, error) { return nil, ends.dial(ctx) }, Options{Sizes: []int64{8}, Count: 1})
		if err == nil || err.Error() != bad.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
}
