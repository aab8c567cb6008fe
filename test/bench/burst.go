package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/measure"
)

// Metrics of bursts; times in ns.
const (
	metricSmall    = "8 B alone, P50"
	metricSend     = "Send, P50"
	metricSendTail = "Send, P99"
	metricFull     = "full queue, of 1000 Sends"
	metricFullTime = "Send at a full queue, P50"
	metricLong     = "Send of 3 times P50, of 1000"
	metricLongFull = "of these at a full queue, %"
	metricTrip     = "round trip in the burst, P50"
	metricTripTail = "round trip in the burst, P99"
)

// burstMetrics are in the order of the document.
var burstMetrics = []string{
	metricSmall, metricSend, metricSendTail, metricFull, metricFullTime, metricLong, metricLongFull, metricTrip, metricTripTail,
}

// timed reports whether a metric of bursts is a time.
func timed(metric string) bool {
	switch metric {
	case metricFull, metricLong, metricLongFull:
		return false
	}
	return true
}

// burstLength is how many messages a burst has: four times what the shallow queue holds.
const burstLength = 64

// bursts measures bursts of messages of medium size, and what one small message takes
// alone, with both ends in one process.
var bursts = measurement{name: "bursts", alone: true, count: 3200, settings: []contestant{
	bursting("hint 0", "-hint", "0"),
	bursting("hint 64 KiB", "-hint", "65536"),
	bursting("hint 1 KiB", "-hint", "1024"),
	bursting("hint 64 KiB, dual", "-hint", "65536", "-lanes", "dual"),
	bursting("hint 1 KiB, dual", "-hint", "1024", "-lanes", "dual"),
	bursting("hint 8 B, dual", "-hint", "8", "-lanes", "dual"),
}}

func bursting(name string, settings ...string) contestant {
	return contestant{name, func(o options, m measurement) []duel {
		_, client := program(options{})
		args := []string{client, "over-burst", "-device", o.device, "-listen", o.addr + ":" + overPort, "-count", strconv.Itoa(m.count)}
		return []duel{{client: append(args, settings...), parse: parseMetrics}}
	}}
}

// runBurst measures bursts and prints the metrics.
func runBurst(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("over-burst", flag.ExitOnError)
	device := f.String("device", "", "RDMA `device`")
	listen := f.String("listen", "127.0.0.1:"+overPort, "`address` and port of the device")
	count := f.Int("count", 3200, "`number` of messages in bursts")
	hint := f.Int64("hint", 0, "message size hint in `bytes`")
	lanes := f.String("lanes", "single", "single or dual")
	f.Parse(args)
	m, err := burst(ctx, *device, *listen, transport.Settings{Size: hint, Lanes: lanes}, *count)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// burst measures count messages of 8 bytes alone, and as many in bursts, over
// connections with settings s from device to itself at the address listen.
func burst(ctx context.Context, device, listen string, s transport.Settings, count int) (_ map[string]float64, err error) {
	t, err := transport.Open(ctx, transport.Options{Device: device, Mirror: true, Private: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	l, err := t.Listen(ctx, listen)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	run := func(o bench.Options) (bench.Report, error) {
		o.Device, o.Count, o.Rounds = device, count, 1
		accept := func(ctx context.Context) (bench.Conn, error) { return l.Accept(ctx) }
		return bench.LoopArms(ctx, accept, 1, func(ctx context.Context) ([]bench.Arm, error) {
			c, err := t.DialFixed(ctx, l.Addr().String(), s)
			if err != nil {
				return nil, err
			}
			return []bench.Arm{{Conns: []bench.Conn{c}, Tier: tierOf(c)}}, nil
		}, o)
	}
	alone, err := run(bench.Options{Sizes: []int64{8}})
	if err != nil {
		return nil, err
	}
	dense, err := run(bench.Options{
		Sizes: []int64{256, 1 << 10, 4 << 10}, Mode: bench.Mixed, Weights: []float64{50, 30, 20}, Burst: burstLength,
	})
	if err != nil {
		return nil, err
	}
	if !alone.OK() || !dense.OK() {
		return nil, fmt.Errorf("a message was lost, duplicated, reordered or corrupted: %+v, %+v", alone.Sizes, dense.Sizes)
	}
	return burstsOf(alone, dense), nil
}

// tierOf names the tier by which c sends a size.
func tierOf(c *transport.Conn) func(int64) string {
	bands := c.Info().Bands
	return func(size int64) string {
		for _, b := range bands {
			if b.From <= size && size <= b.To {
				return b.Tier
			}
		}
		return ""
	}
}

// burstsOf are the metrics of small messages alone and of bursts. Those of Send are of
// the messages that are copied: the Send of another one waits for the peer anyway.
func burstsOf(alone, dense bench.Report) map[string]float64 {
	trips, sends, full := measure.New(), measure.New(), measure.New()
	var long bench.Outlying
	for _, s := range dense.Sizes {
		trips.Merge(s.Latency)
		if s.Tier == "rendezvous" {
			continue
		}
		sends.Merge(s.Sends.Took)
		full.Merge(s.Sends.Full)
		o := s.Sends.Outliers()
		long.N, long.Full = long.N+o.N, long.Full+o.Full
	}
	ns := func(d time.Duration) float64 { return float64(d.Nanoseconds()) }
	m := map[string]float64{
		metricSmall: ns(alone.Sizes[0].Latency.Quantile(0.5)) / 2,
		metricTrip:  ns(trips.Quantile(0.5)), metricTripTail: ns(trips.Quantile(0.99)),
	}
	if n := float64(sends.N()); n > 0 {
		m[metricSend], m[metricSendTail] = ns(sends.Quantile(0.5)), ns(sends.Quantile(0.99))
		m[metricFull], m[metricLong] = float64(full.N())/n*1000, float64(long.N)/n*1000
	}
	if full.N() > 0 {
		m[metricFullTime] = ns(full.Quantile(0.5))
	}
	if long.N > 0 {
		m[metricLongFull] = float64(long.Full) / float64(long.N) * 100
	}
	return m
}

// burstTables renders the bursts on the device, and those in software.
func (r Results) burstTables(b *strings.Builder) {
	head := false
	for _, where := range []struct{ name, label string }{{"On the device", ""}, {"Between devices in software", "soft "}} {
		name := where.label + bursts.name
		if r.runs(name, bursts.settings[0].name, metricTrip) == nil {
			continue
		}
		if !head {
			head = true
			fmt.Fprintf(b, `
## Bursts of medium messages

%d messages at once, of 256 B, 1 KiB and 4 KiB by 50, 30 and 20 in a hundred, then their answers, and so on:
%d messages a run. A Send takes long where it finds the queue full; the rows about Send are of the
messages that are copied, which are not those above a hint on a single lane. 8 B are half round
trips of one message at a time with the same hint. Both ends are in one process here.
`, burstLength, bursts.count)
		}
		fmt.Fprintf(b, "\n| %s |", where.name)
		for _, c := range bursts.settings {
			fmt.Fprintf(b, " %s |", c.name)
		}
		b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(bursts.settings)) + "\n")
		for _, metric := range burstMetrics {
			unit, scale := "", 1.0
			if timed(metric) {
				unit, scale = " (us)", 1e-3
			}
			fmt.Fprintf(b, "| %s%s |", metric, unit)
			for _, c := range bursts.settings {
				if runs := r.runs(name, c.name, metric); len(runs) > 0 {
					fmt.Fprintf(b, " %s |", number(median(runs)*scale))
				} else {
					b.WriteString(" - |")
				}
			}
			b.WriteString("\n")
		}
	}
}
