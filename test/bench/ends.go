package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/test/bench/over"
	"github.com/rdmatune/rdmatune/test/bench/raw"
)

// runRaw is one end of the measurement of the binding: what raw-serve and
// raw-connect do, and what the binding itself costs: raw-costs.
func runRaw(verb string, args []string) error {
	job := raw.Job{Inline: true, Busy: 1000, Signal: 16}
	f := flag.NewFlagSet(verb, flag.ExitOnError)
	device := f.String("device", "", "RDMA `device`")
	cpu := f.Int("cpu", -1, "`number` of the CPU of the thread that moves messages")
	listen := f.String("listen", "", "`address` and port to serve on")
	connect := f.String("connect", "", "`address` and port of the server")
	f.IntVar(&job.Size, "size", 8, "message size in `bytes`")
	f.IntVar(&job.Count, "count", 1000, "`number` of messages")
	f.IntVar(&job.Warmup, "warmup", 100, "`number` of messages before those")
	f.BoolVar(&job.Stream, "stream", false, "one way at full speed, instead of round trips")
	f.BoolVar(&job.Write, "write", false, "RDMA write instead of send")
	f.BoolVar(&job.Inline, "inline", job.Inline, "inline where the device grants it")
	f.IntVar(&job.Busy, "busy", job.Busy, "polls of one crossing into C")
	f.IntVar(&job.Signal, "signal", job.Signal, "sends for each completion; 1: wait for it before the next")
	samples := f.String("samples", "", "`file` for all round trips in ns, one a line, in their order")
	f.Parse(args)
	p, err := verbs.For(*device, ibverbs.Provider{}, soft.Provider{})
	if err != nil {
		return err
	}
	if verb == "raw-costs" {
		c, err := raw.Measure(p, *device)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]float64{
			metricCall: float64(c.Call.Nanoseconds()), metricPoll: float64(c.Poll.Nanoseconds()),
		})
	}
	if err := raw.Pin(*cpu); err != nil {
		return err
	}
	if verb == "raw-serve" {
		ln, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return errors.Join(raw.Serve(p, *device, ln), ln.Close())
	}
	took, err := raw.Connect(p, *device, *connect, job)
	if err != nil {
		return err
	}
	return report(took, *samples, metrics(took, job.Size*job.Count, job.Stream))
}

// runOver is one end of the measurement of the transport: what over-serve and
// over-connect do.
func runOver(ctx context.Context, verb string, args []string) (err error) {
	job := over.Job{InFlight: 1}
	f := flag.NewFlagSet(verb, flag.ExitOnError)
	device := f.String("device", "", "RDMA `device`")
	listen := f.String("listen", "", "`address` and port to serve on")
	connect := f.String("connect", "", "`address` and port of the server")
	hint := f.Int64("hint", -1, "message size hint in `bytes`; -1: none")
	completion := f.String("completion", "", "adaptive, busy or event")
	lanes := f.String("lanes", "", "single or dual")
	eagerMax := f.Int64("eager-max", 0, "`bytes` of the largest message that is copied; 0: by the hint")
	costs := f.Bool("costs", false, "print the processor's share and the wake-ups as well")
	inFlight := f.Int("in-flight", 16, "`number` of messages of a stream under way at once")
	f.IntVar(&job.Size, "size", 8, "message size in `bytes`")
	f.IntVar(&job.Count, "count", 1000, "`number` of messages")
	f.IntVar(&job.Warmup, "warmup", 100, "`number` of messages before those")
	f.BoolVar(&job.Stream, "stream", false, "one way at full speed, instead of round trips")
	samples := f.String("samples", "", "`file` for all round trips in ns, one a line, in their order")
	f.Parse(args)
	if job.Stream {
		job.InFlight = *inFlight
	}
	t, err := transport.Open(ctx, transport.Options{Device: *device, Mirror: true, Private: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if verb == "over-serve" {
		l, err := t.Listen(ctx, *listen)
		if err != nil {
			return err
		}
		return errors.Join(over.Serve(ctx, t, l), l.Close())
	}
	var s transport.Settings
	if *hint >= 0 {
		s.Size = hint
	}
	if *completion != "" {
		s.Completion = completion
	}
	if *lanes != "" {
		s.Lanes = lanes
	}
	if *eagerMax > 0 {
		s.EagerMax = eagerMax
	}
	before := usageNow()
	took, err := over.Connect(ctx, t, *connect, &s, job)
	if err != nil {
		return err
	}
	m := metrics(took, job.Size*job.Count, job.Stream)
	if *costs {
		usageNow().since(before, m)
	}
	return report(took, *samples, m)
}

// report prints the metrics, and writes all round trips to a file where one is named.
func report(took []time.Duration, file string, m map[string]float64) error {
	if file != "" {
		var b []byte
		for _, d := range took {
			b = append(strconv.AppendInt(b, d.Nanoseconds(), 10), '\n')
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// metrics are what a run's times mean: the time of a whole stream of bytes, or round
// trips, of which the halves are given; took keeps its order.
func metrics(took []time.Duration, bytes int, stream bool) map[string]float64 {
	if stream {
		return map[string]float64{metricRate: float64(bytes) / (1 << 20) / took[0].Seconds()}
	}
	sorted := slices.Sorted(slices.Values(took))
	at := func(q float64) float64 {
		return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Nanoseconds()) / 2
	}
	return map[string]float64{metricP50: at(0.50), metricP99: at(0.99)}
}
