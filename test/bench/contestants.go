package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Names of the metrics. Latencies are half round trips, as perftest and UCX print
// them.
const (
	metricP50  = "P50"
	metricP99  = "P99"
	metricRate = "MiB/s"
	// Of the binding alone, in ns: a call that polls an empty queue once, and each
	// further poll within the call.
	metricCall = "call"
	metricPoll = "poll"
	// What it costs, where that is measured.
	metricCPU   = "CPUs"
	metricWakes = "wake-ups/s"
)

// Ports of the servers.
const (
	perftestPort = "18515"
	ucxPort      = "13337"
	rawPort      = "18600"
	overPort     = "18700"
)

// contestants are rdmatune's binding and transport, and those that they are compared
// with.
var contestants = []contestant{
	{"verbs binding", rawDuels},
	{"perftest", perftestDuels},
	{"UCX", ucxDuels},
	{"transport", overDuels},
}

// program is this one, as the host of the server finds it and as this one does.
func program(o options) (server, client string) {
	self, err := os.Executable()
	if err != nil {
		self = "bench"
	}
	if o.server != "" {
		return "bench", self
	}
	return self, self
}

// job is m as flags of this program's ends.
func (m measurement) job() []string {
	job := []string{"-size", strconv.Itoa(m.size), "-count", strconv.Itoa(m.count), "-warmup", strconv.Itoa(m.count / 10)}
	if m.stream {
		job = append(job, "-stream")
	}
	return job
}

// overDuels uses the transport, hinted for what is measured: 64 KiB where latency
// counts, 0 where bandwidth does.
func overDuels(o options, m measurement) []duel {
	if m.write || m.alone {
		return nil // how it moves a message is its own affair
	}
	hint := "65536"
	if m.stream {
		hint = "0"
	}
	return []duel{overDuel(o, m, "-hint", hint)}
}

// overDuel uses the transport with settings, given as flags of over-connect.
func overDuel(o options, m measurement, settings ...string) duel {
	server, client := program(o)
	connect := []string{client, "over-connect", "-device", o.device, "-connect", o.addr + ":" + overPort}
	return duel{
		server: []string{server, "over-serve", "-device", o.peerDevice, "-listen", o.addr + ":" + overPort},
		client: slices.Concat(connect, settings, m.job()),
		parse:  parseMetrics,
	}
}

func rawDuels(o options, m measurement) []duel {
	server, client := program(o)
	if m.alone {
		return []duel{{client: []string{client, "raw-costs", "-device", o.device}, parse: parseMetrics}}
	}
	job := m.job()
	if m.write {
		job = append(job, "-write")
	}
	return []duel{{
		server: []string{server, "raw-serve", "-device", o.peerDevice, "-listen", o.addr + ":" + rawPort},
		client: append([]string{client, "raw-connect", "-device", o.device, "-connect", o.addr + ":" + rawPort}, job...),
		parse:  parseMetrics,
	}}
}

// parseMetrics reads the metrics as raw-connect prints them.
func parseMetrics(out []byte) (map[string]float64, error) {
	var got map[string]float64
	if err := json.Unmarshal(out, &got); err != nil {
		return nil, fmt.Errorf("%w in %q", err, tail(out))
	}
	return got, nil
}

// perftestDuels uses ib_send_lat, ib_send_bw or ib_write_bw.
func perftestDuels(o options, m measurement) []duel {
	tool := "ib_send_lat"
	switch {
	case m.alone:
		return nil
	case m.write:
		tool = "ib_write_bw"
	case m.stream:
		tool = "ib_send_bw"
	}
	args := func(device string, gid int) []string {
		return []string{tool, "-F", "-d", device, "-x", strconv.Itoa(gid), "-p", perftestPort,
			"-s", strconv.Itoa(m.size), "-n", strconv.Itoa(m.count)}
	}
	return []duel{{
		server: args(o.peerDevice, o.peerGID),
		client: append(args(o.device, o.gid), o.addr),
		parse: func(out []byte) (map[string]float64, error) {
			return parsePerftest(out, m)
		},
	}}
}

// parsePerftest reads the row of numbers for the measurement's size: bytes,
// iterations, min, max, typical, average, deviation, P99, P99.9 of a latency test;
// bytes, iterations, peak and average rate of a bandwidth test, in MiB though its
// heading says MB.
func parsePerftest(out []byte, m measurement) (map[string]float64, error) {
	for line := range bytes.Lines(out) {
		row := strings.Fields(string(line))
		if len(row) < 5 || row[0] != strconv.Itoa(m.size) || row[1] != strconv.Itoa(m.count) {
			continue
		}
		if m.stream {
			rate, err := strconv.ParseFloat(row[3], 64)
			return map[string]float64{metricRate: rate}, err
		}
		if len(row) < 8 {
			continue
		}
		p50, err := microseconds(row[4])
		if err != nil {
			return nil, err
		}
		p99, err := microseconds(row[7])
		return map[string]float64{metricP50: p50, metricP99: p99}, err
	}
	return nil, fmt.Errorf("no result of perftest in %q", tail(out))
}

// ucxDuels uses ucx_perftest over reliable connected queue pairs. It prints one
// percentile a run, the one asked for: latency takes two runs.
func ucxDuels(o options, m measurement) []duel {
	switch {
	case m.write || m.alone:
		return nil
	case m.stream:
		return []duel{ucxDuel(o, m, "tag_bw", metricRate)}
	}
	return []duel{
		ucxDuel(o, m, "tag_lat", metricP50, "-R", "50"),
		ucxDuel(o, m, "tag_lat", metricP99, "-R", "99"),
	}
}

func ucxDuel(o options, m measurement, test, metric string, more ...string) duel {
	args := append([]string{"ucx_perftest", "-p", ucxPort, "-t", test, "-s", strconv.Itoa(m.size),
		"-n", strconv.Itoa(m.count), "-w", strconv.Itoa(m.count / 10), "-f"}, more...)
	return duel{
		server: args,
		client: append(append([]string{args[0], o.addr}, args[1:]...), "-v"),
		env: []string{"UCX_TLS=rc_v", "UCX_NET_DEVICES=" + o.device + ":1", "UCX_IB_GID_INDEX=" + strconv.Itoa(ucxGID(o)),
			"UCX_WARN_UNUSED_ENV_VARS=n", "UCX_LOG_LEVEL=error"},
		parse: func(out []byte) (map[string]float64, error) { return parseUCX(out, m.count, metric) },
	}
}

// ucxGID is the GID that UCX gets. It connects by datagrams, which UCX 1.13 loses on
// soft RoCE between addresses of IPv4; there the first entry, of IPv6, serves.
func ucxGID(o options) int {
	if strings.HasPrefix(o.device, "rxe") {
		return 0
	}
	return o.gid
}

// parseUCX reads the last line of comma-separated values: iterations, percentile,
// average and overall latency in us, average and overall rate in MiB/s.
func parseUCX(out []byte, count int, metric string) (map[string]float64, error) {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	row := strings.Split(strings.ReplaceAll(lines[len(lines)-1], " ", ""), ",") // numbers are padded
	if len(row) < 6 || row[0] != strconv.Itoa(count) {
		return nil, fmt.Errorf("no result of ucx_perftest in %q", tail(out))
	}
	if metric == metricRate {
		rate, err := strconv.ParseFloat(row[5], 64)
		return map[string]float64{metric: rate}, err
	}
	v, err := microseconds(row[1])
	return map[string]float64{metric: v}, err
}
