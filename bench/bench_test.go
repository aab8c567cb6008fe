package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmatune/rdmatune/measure"
)

func TestCountIsExact(t *testing.T) {
	cl, sv := newPipe()
	served := serve(t, sv)
	var progress []Progress
	rep, err := Client(t.Context(), cl, Options{
		Sizes: []int64{8, 4096, 100_000}, Count: 50, Warmup: ptr(7), Workload: "w", Device: "soft0",
		Progress: func(p Progress) { progress = append(progress, p) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() || !rep.Complete || rep.Workload != "w" || rep.Device != "soft0" || rep.PeerDevice != "soft1" || rep.Warmup != 7 {
		t.Errorf("report %+v", rep)
	}
	for _, s := range rep.Sizes {
		if s.Latency.N() != 50 || s.Sent != 57 {
			t.Errorf("%d bytes: n %d, sent %d; want 50 and 57", s.Size, s.Latency.N(), s.Sent)
		}
	}
	if len(progress) != 4 || progress[3].Size != 100_000 || progress[3].N != 50 {
		t.Errorf("progress %+v", progress)
	}
	got := <-served
	if got.Err != nil || got.Workload != "w" || len(got.Sizes) != 3 || got.Sizes[2].Answered != 57 {
		t.Errorf("server: %+v", got)
	}
}

// TestFaults lets the client's network misbehave once, and looks at what both count.
func TestFaults(t *testing.T) {
	keep := func(msgs ...[]byte) [][]byte { return msgs }
	for _, tt := range []struct {
		name  string
		fault func(n int, msg []byte) [][]byte
		want  Counts
	}{
		{"duplicate", func(n int, msg []byte) [][]byte {
			if n == 5 {
				return keep(msg, msg)
			}
			return keep(msg)
		}, Counts{Duplicated: 1}},
		{"duplicate of the last", func(n int, msg []byte) [][]byte {
			if n == 10 {
				return keep(msg, msg)
			}
			return keep(msg)
		}, Counts{Duplicated: 1}},
		{"flipped bit", func(n int, msg []byte) [][]byte {
			if n == 5 {
				msg[len(msg)-1] ^= 0x10
			}
			return keep(msg)
		}, Counts{Corrupted: 1}},
		{"short", func(n int, msg []byte) [][]byte {
			if n == 5 {
				return keep(msg[:len(msg)-1])
			}
			return keep(msg)
		}, Counts{Corrupted: 1}},
		{"empty", func(n int, msg []byte) [][]byte {
			if n == 5 {
				return keep(nil)
			}
			return keep(msg)
		}, Counts{Corrupted: 1}},
	} {
		for _, end := range []string{"client", "server"} {
			t.Run(tt.name+" at the "+end, func(t *testing.T) {
				cl, sv := newPipe()
				// The server has one message more before the first test message: the block.
				if end == "client" {
					cl.fault = tt.fault
				} else {
					sv.fault = func(n int, msg []byte) [][]byte { return tt.fault(n-1, msg) }
				}
				served := serve(t, sv)
				rep, err := Client(t.Context(), cl, Options{Sizes: []int64{1024}, Count: 10, Warmup: ptr(0)})
				if err != nil {
					t.Fatal(err)
				}
				if got := rep.Sizes[0].Counts; got != tt.want || rep.OK() {
					t.Errorf("counts %+v, OK %v; want %+v", got, rep.OK(), tt.want)
				}
				if s := <-served; s.Err != nil {
					t.Error(s.Err)
				}
			})
		}
	}
}

// TestStaleSegment puts a part of an earlier answer into a later one of the same size.
func TestStaleSegment(t *testing.T) {
	cl, sv := newPipe()
	var old []byte
	cl.fault = func(n int, msg []byte) [][]byte {
		switch n {
		case 3:
			old = bytes.Clone(msg)
		case 4:
			copy(msg[4096:4096+1024], old[4096:])
		}
		return [][]byte{msg}
	}
	served := serve(t, sv)
	rep, err := Client(t.Context(), cl, Options{Sizes: []int64{16_384}, Count: 10, Warmup: ptr(0)})
	if err != nil {
		t.Fatal(err)
	}
	if got := rep.Sizes[0].Counts; got != (Counts{Corrupted: 1}) {
		t.Errorf("counts %+v, want one corrupted", got)
	}
	<-served
}

// TestGaps plays a server that leaves numbers out and repeats one late.
func TestGaps(t *testing.T) {
	cl, sv := newPipe()
	go func() {
		c := codec{send: toClient, recv: toServer}
		buf, out := make([]byte, maxControl), make([]byte, 32)
		fill(out)
		send := func(number uint64) {
			c.seal(out, number)
			_ = sv.Send(t.Context(), out)
		}
		answers := [][]uint64{{0}, {3}, {2, 4}, {5}}
		for i := 0; ; {
			n, err := sv.Recv(t.Context(), buf)
			if err != nil {
				return
			}
			if !c.isControl(buf[:n]) {
				for _, number := range answers[i] {
					send(number)
				}
				i++
				continue
			}
			m, _ := c.decode(buf[:n], kindHello, kindBlock, kindFinish)
			reply := controlMsg{Kind: kindWelcome, Version: version}
			switch m.Kind {
			case kindBlock:
				continue
			case kindFinish:
				reply = controlMsg{Kind: kindResult, Next: 8, Counts: []Counts{{Lost: 10}}}
			}
			msg, _ := c.encode(reply)
			_ = sv.Send(t.Context(), msg)
		}
	}()
	rep, err := Client(t.Context(), cl, Options{Sizes: []int64{32}, Count: 4, Warmup: ptr(0)})
	if err != nil {
		t.Fatal(err)
	}
	// 1 stays lost, 2 came late, 6 and 7 the server had sent by its own account, and
	// ten it lost itself.
	if got, want := rep.Sizes[0].Counts, (Counts{Lost: 1 + 2 + 10, Reordered: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	if err := cl.Close(); err != nil {
		t.Error(err)
	}
}

func TestInterruptKeepsTheReport(t *testing.T) {
	cl, sv := newPipe()
	served := serve(t, sv)
	ctx, cancel := context.WithCancel(t.Context())
	cl.fault = func(n int, msg []byte) [][]byte {
		if n == 500 {
			cancel()
		}
		return [][]byte{msg}
	}
	rep, err := Client(ctx, cl, Options{Sizes: []int64{8}, Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if n := rep.Sizes[0].Latency.N(); !rep.OK() || n < 399 || !rep.Complete {
		t.Errorf("n %d, report %+v; want a whole report", n, rep)
	}
	if s := <-served; s.Err != nil {
		t.Errorf("server: %v", s.Err)
	}
}

func TestDeadPeer(t *testing.T) {
	cl, sv := newPipe()
	served := serve(t, sv)
	sv.fault = func(n int, msg []byte) [][]byte {
		if n == 300 {
			return nil // and so the server waits for a message that it will not see
		}
		return [][]byte{msg}
	}
	cl.fault = func(n int, msg []byte) [][]byte {
		if n == 298 { // the last answer before
			_ = sv.Close()
		}
		return [][]byte{msg}
	}
	rep, err := Client(t.Context(), cl, Options{Sizes: []int64{8}, Count: 1000, Warmup: ptr(0)})
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("error %v, want that of a closed connection", err)
	}
	if rep.Unknown != 1 || rep.Complete || rep.OK() || rep.Sizes[0].Latency.N() != 298 || !rep.Sizes[0].Counts.OK() {
		t.Errorf("report %+v", rep)
	}
	_ = cl.Close()
	if s := <-served; s.Err == nil {
		t.Error("the server did not notice")
	}
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, sv := newPipe()
		served := serve(t, sv)
		sv.fault = func(n int, msg []byte) [][]byte {
			if n == 20 {
				return nil
			}
			return [][]byte{msg}
		}
		start := time.Now()
		rep, err := Client(t.Context(), cl, Options{Sizes: []int64{8}, Count: 1000, Warmup: ptr(0), Stall: time.Second})
		if took := time.Since(start); !errors.Is(err, ErrStalled) || took < time.Second || took > 2*time.Second {
			t.Errorf("error %v after %v", err, took)
		}
		if rep.Unknown != 1 || rep.Sizes[0].Lost != 0 {
			t.Errorf("report %+v; a message without an answer is unknown, not lost", rep)
		}
		if s := <-served; !errors.Is(s.Err, errSilent) || time.Since(start) > 3*idleTimeout {
			t.Errorf("server: %v after %v", s.Err, time.Since(start))
		}
	})
}

func TestInterruptOfAStalledRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, sv := newPipe()
		serve(t, sv)
		sv.fault = func(n int, msg []byte) [][]byte {
			if n == 20 {
				return nil
			}
			return [][]byte{msg}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := Client(ctx, cl, Options{Sizes: []int64{8}, Count: 1000, Warmup: ptr(0)})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second+grace {
			t.Errorf("error %v after %v, want the context's after its second and %v", err, took, grace)
		}
		_ = cl.Close()
	})
}

func TestBadOptions(t *testing.T) {
	many := make([]int64, MaxSizes+1)
	for i := range many {
		many[i] = int64(8 + i)
	}
	for want, o := range map[string]Options{
		"0 message sizes":        {Count: 1},
		"65 message sizes":       {Count: 1, Sizes: many},
		"not 7 B":                {Count: 1, Sizes: []int64{7}},
		"64 MiB, not 67108865 B": {Count: 1, Sizes: []int64{MaxSize + 1}},
		"not -8 B":               {Count: 1, Sizes: []int64{-8}},
		"8 B is there twice":     {Count: 1, Sizes: []int64{8, 16, 8}},
		"a duration or a count":  {Sizes: []int64{8}},
		"either":                 {Sizes: []int64{8}, Count: 1, Duration: 1},
		"warm-up of -1":          {Sizes: []int64{8}, Count: 1, Warmup: ptr(-1)},
		"-1 rounds":              {Sizes: []int64{8}, Duration: 1, Rounds: -1},
		"messages in flight":     {Sizes: []int64{8}, Count: 1, InFlight: MaxInFlight + 1},
		"a rate of -1":           {Sizes: []int64{8}, Count: 1, Rate: -1},
		"a rate of NaN":          {Sizes: []int64{8}, Count: 1, Rate: math.NaN()},
		"a rate of 1e-300":       {Sizes: []int64{8}, Count: 1, Rate: 1e-300},
		"a rate is for round":    {Sizes: []int64{8}, Count: 1, Rate: 1, Mode: Streams},
		"a weight for each":      {Sizes: []int64{8}, Count: 1, Mode: Mixed},
		"takes any":              {Sizes: []int64{8}, Count: 1, Weights: []float64{1}},
		"a weight of 0":          {Sizes: []int64{8}, Count: 1, Mode: Mixed, Weights: []float64{0}},
		"a weight of NaN":        {Sizes: []int64{8}, Count: 1, Mode: Mixed, Weights: []float64{math.NaN()}},
		"a burst of 4097":        {Sizes: []int64{8}, Count: 1, Burst: MaxBurst + 1},
		"a burst is for round":   {Sizes: []int64{8}, Count: 1, Burst: 2, Mode: Streams},
		`mode "nonsense"`:        {Sizes: []int64{8}, Count: 1, Mode: "nonsense"},
		"warm-up of 1000001":     {Sizes: []int64{8}, Count: 1, Warmup: ptr(MaxWarmup + 1)},
	} {
		cl, _ := newPipe()
		if _, err := Client(t.Context(), cl, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestLoop(t *testing.T) {
	cl, sv := newPipe()
	give := func(c Conn, err error) func(context.Context) (Conn, error) {
		return func(context.Context) (Conn, error) { return c, err }
	}
	rep, err := Loop(t.Context(), give(sv, nil), give(cl, nil), Options{Sizes: []int64{64}, Count: 10})
	if err != nil || !rep.OK() || rep.Sizes[0].Latency.N() != 10 {
		t.Errorf("report %+v, error %v", rep, err)
	}
	broken := errors.New("no device")
	waits := func(ctx context.Context) (Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	if _, err := Loop(t.Context(), waits, give(nil, broken), Options{}); !errors.Is(err, broken) {
		t.Errorf("error %v, want dial's", err)
	}
	if _, err := Loop(t.Context(), give(nil, broken), waits, Options{}); !errors.Is(err, broken) {
		t.Errorf("error %v, want accept's", err)
	}
}

func TestNothingIsAllocatedPerMessage(t *testing.T) {
	cl, sv := newPipe()
	served := serve(t, sv)
	o := Options{Sizes: []int64{4096}, Count: 1, Warmup: ptr(0), Stall: time.Minute}
	if err := o.settle(1); err != nil {
		t.Fatal(err)
	}
	c, err := newClient([]Arm{{Conns: []Conn{cl}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	r := c.arms[0].runs[0]
	var stop func()
	r.ctx, stop = c.connContext(t.Context())
	defer stop()
	if err := r.hello(); err != nil {
		t.Fatal(err)
	}
	if err := c.turn(c.arms[0], 0, 100, 1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	found := c.arms[0].sizes[0]
	allocs := testing.AllocsPerRun(500, func() {
		now, took, err := r.roundTrip(0)
		if err != nil {
			t.Fatal(err)
		}
		found.worst.Record(measure.Sample{At: now.Sub(c.start), Latency: took})
		found.hist.Record(took)
	})
	if allocs != 0 {
		t.Errorf("%v allocations per round trip, of both ends", allocs)
	}
	if err := r.finish(); err != nil {
		t.Error(err)
	}
	<-served
}
