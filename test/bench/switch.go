package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/test/bench/over"
)

// Metrics of switches; times in ns.
const (
	metricPause    = "pause P50"
	metricPauseMax = "pause max"
	metricDrained  = "drained"
	metricRecovery = "recovery P50"
	metricSlowest  = "recovery max"
	metricWrong    = "lost, duplicated or reordered"
	metricBefore   = "bystander P99 before"
	metricBeside   = "bystander P99 meanwhile"
)

// switching measures switches, both ends in one process: on the device, and on the
// provider without one.
var switching = measurement{name: "switch under load", alone: true, count: 100, settings: []contestant{
	{"device", func(o options, m measurement) []duel { return []duel{switchDuel(o.device, o.addr, m.count)} }},
	{"soft", func(_ options, m measurement) []duel { return []duel{switchDuel("soft0", "127.0.0.1", 10*m.count)} }},
}}

func switchDuel(device, addr string, count int) duel {
	_, client := program(options{})
	return duel{
		client: []string{client, "over-switch", "-device", device, "-listen", addr + ":" + overPort, "-count", strconv.Itoa(count)},
		parse:  parseMetrics,
	}
}

// runSwitch measures switches under load and prints the metrics.
func runSwitch(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("over-switch", flag.ExitOnError)
	device := f.String("device", "", "RDMA `device`")
	listen := f.String("listen", "127.0.0.1:"+overPort, "`address` and port of the device")
	count := f.Int("count", 100, "`number` of switches")
	f.Parse(args)
	var ends [2]*transport.Transport
	for i := range ends {
		t, err := transport.Open(ctx, transport.Options{Device: *device, Private: true})
		if err != nil {
			return err
		}
		defer t.Close() // a second time: the first, below, tells of errors
		ends[i] = t
	}
	l, err := ends[0].Listen(ctx, *listen)
	if err != nil {
		return err
	}
	s, err := over.Switch(ctx, ends[1], l, *count)
	if err = errors.Join(err, ends[1].Close(), ends[0].Close()); err != nil {
		return err
	}
	m := map[string]float64{metricDrained: float64(s.Drained) / float64(*count), metricWrong: float64(s.Wrong)}
	for _, v := range []struct {
		metric string
		of     []time.Duration
		part   float64
	}{
		{metricPause, s.Pauses, 0.5}, {metricPauseMax, s.Pauses, 1}, {metricRecovery, s.Recoveries, 0.5}, {metricSlowest, s.Recoveries, 1},
		{metricBefore, s.Before, 0.99}, {metricBeside, s.Beside, 0.99},
	} {
		if n := len(v.of); n > 0 {
			slices.Sort(v.of)
			m[v.metric] = float64(v.of[min(n-1, int(v.part*float64(n)))].Nanoseconds())
		}
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// switches renders the switches.
func (r Results) switches(b *strings.Builder) {
	head := false
	for _, metric := range []string{
		metricPause, metricPauseMax, metricDrained, metricRecovery, metricSlowest, metricBefore, metricBeside, metricWrong,
	} {
		device, soft := r.runs(switching.name, "device", metric), r.runs(switching.name, "soft", metric)
		if len(device)+len(soft) == 0 {
			continue
		}
		if !head {
			head = true
			fmt.Fprintf(b, `
## Switches under load

A connection that sends 4 KiB messages at full speed is switched between no hint and one
of 64 KiB, %d times a run on the device and %d times on the soft provider, with 20 ms in
between. The pause is from the first message held to its post; drained is how many work
requests had to complete, per switch; recovery is until the P99 of 100 messages in a row
is within a tenth of that before the first switch; the bystander makes round trips on a
connection that is not switched.

| | device | soft |
| --- | --- | --- |
`, switching.count, 10*switching.count)
		}
		unit, scale := "", 1.0
		if metric != metricDrained && metric != metricWrong {
			unit, scale = " (us)", 1e-3
		}
		fmt.Fprintf(b, "| %s%s |", metric, unit)
		for _, runs := range [][]float64{device, soft} {
			if len(runs) == 0 {
				b.WriteString(" - |")
				continue
			}
			fmt.Fprintf(b, " %s |", number(median(runs)*scale))
		}
		b.WriteString("\n")
	}
}
