package main

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/measure"
)

var update = flag.Bool("update", false, "rewrite docs/performance.md from testdata/lab.json")

const perftestLatency = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 1200.000000 != 3000.000000. CPU Frequency is not max.
 8       4000          8.11           328.10       12.50     	       15.10       	9.10   		46.25   		310.01
---------------------------------------------------------------------------------------
`

const perftestBandwidth = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      400              98.11              94.07		     0.001505
`

const ucxLatency = `[1795975359.617003] [lab:153  :0]  perftest.c:900  UCX  WARN  CPU affinity is not set (bound to 4 cpus). Performance may be impacted.
iterations,99.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
4000,20.500,302.435,1684.782,0.03,0.00,3306,594
`

func TestParse(t *testing.T) {
	latency := measurement{size: 8, count: 4000}
	bandwidth := measurement{size: 65536, count: 400, stream: true}
	for _, c := range []struct {
		name  string
		parse func() (map[string]float64, error)
		want  map[string]float64 // nil: an error
	}{
		{"perftest latency", func() (map[string]float64, error) { return parsePerftest([]byte(perftestLatency), latency) },
			map[string]float64{metricP50: 12500, metricP99: 46250}},
		{"perftest bandwidth", func() (map[string]float64, error) { return parsePerftest([]byte(perftestBandwidth), bandwidth) },
			map[string]float64{metricRate: 94.07}},
		{"perftest of another size", func() (map[string]float64, error) { return parsePerftest([]byte(perftestLatency), bandwidth) }, nil},
		{"perftest without a result", func() (map[string]float64, error) { return parsePerftest([]byte("Couldn't connect"), latency) }, nil},
		{"perftest with no number", func() (map[string]float64, error) {
			return parsePerftest([]byte("8 4000 1 1 nan 1 1 1 1\n"), latency)
		}, nil},
		{"UCX P99", func() (map[string]float64, error) { return parseUCX([]byte(ucxLatency), 4000, metricP99) },
			map[string]float64{metricP99: 20500}},
		{"UCX rate", func() (map[string]float64, error) { return parseUCX([]byte(ucxLatency), 4000, metricRate) },
			map[string]float64{metricRate: 0}},
		{"UCX padded", func() (map[string]float64, error) {
			return parseUCX([]byte("heading\n 400,1.000,3357.161,5703.462,18.62,10.96,298,175\n"), 400, metricRate)
		}, map[string]float64{metricRate: 10.96}},
		{"UCX cut off", func() (map[string]float64, error) { return parseUCX([]byte("4000,1\n"), 4000, metricP50) }, nil},
		{"ours", func() (map[string]float64, error) { return parseMetrics([]byte(`{"P50":1500}`)) },
			map[string]float64{metricP50: 1500}},
		{"ours without a result", func() (map[string]float64, error) { return parseMetrics(nil) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.parse()
			if (err != nil) != (c.want == nil) {
				t.Fatalf("%v, %v", got, err)
			}
			for k, v := range c.want {
				if math.Abs(got[k]-v) > 1e-6 {
					t.Errorf("%s is %v, want %v", k, got[k], v)
				}
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	var took []time.Duration
	for i := range 100 {
		took = append(took, time.Duration(100-i)*time.Microsecond)
	}
	got := metrics(took, 0, false)
	if got[metricP50] != 25500 || got[metricP99] != 50000 {
		t.Errorf("%v", got)
	}
	if took[0] != 100*time.Microsecond || took[99] != time.Microsecond {
		t.Error("the round trips are not in their order any more")
	}
	if got := metrics([]time.Duration{2 * time.Second}, 4<<20, true); got[metricRate] != 2 {
		t.Errorf("%v", got)
	}
}

func TestCompare(t *testing.T) {
	ours := []float64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	theirs := []float64{20, 22, 24, 26, 28, 30, 32, 34, 36, 38}
	r := compare(ours, theirs)
	if r.value != 0.5 || math.Abs(r.low-0.5) > 1e-9 || math.Abs(r.high-0.5) > 1e-9 {
		t.Errorf("half of each round is %+v", r)
	}
	// Rounds that differ give an interval around the value; a round that one side
	// lacks is left out.
	r = compare([]float64{9, 11, 10, 12, 8, 10, 11, 9, 10, 10}, []float64{10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 1})
	if r.value != 1 || r.low >= 1 || r.high <= 1 || r.low < 0.8 || r.high > 1.2 {
		t.Errorf("%+v", r)
	}
	if r := compare(nil, theirs); !math.IsNaN(r.value) {
		t.Errorf("nothing compares as %+v", r)
	}
}

// TestResults checks that results are kept, read back, and that a new series takes
// the place of the old one.
func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	if r, err := load(file); err != nil || len(r.Series) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	var a, b Results
	a.record("x", "UCX", metricP50, 1)
	a.record("x", "UCX", metricP50, 2)
	a.record("y", "UCX", metricP50, 3)
	b.record("x", "UCX", metricP50, 9)
	b.Machine = "m"
	if err := a.with(b).save(file); err != nil {
		t.Fatal(err)
	}
	r, err := load(file)
	if err != nil || r.Machine != "m" || len(r.Series) != 2 ||
		!slices.Equal(r.runs("x", "UCX", metricP50), []float64{9}) || !slices.Equal(r.runs("y", "UCX", metricP50), []float64{3}) {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(file); err == nil {
		t.Error("half a file was taken")
	}
}

// TestRound: where one contestant fails, the round counts for nobody.
func TestRound(t *testing.T) {
	say := func(name, script string) contestant {
		return contestant{name, func(options, measurement) []duel {
			return []duel{{client: []string{"sh", "-c", script}, parse: parseMetrics}}
		}}
	}
	var r Results
	who := []contestant{say("a", `echo '{"P50":1}'`), say("b", `echo '{"P50":2}'`)}
	for n := range 3 {
		if err := r.round(t.Context(), options{}, measurement{name: "m"}, who, n); err != nil {
			t.Fatal(err)
		}
	}
	who = append(who, say("c", "exit 1"))
	if err := r.round(t.Context(), options{}, measurement{name: "m"}, who, 3); err == nil {
		t.Error("a run that fails is no error")
	}
	for _, s := range r.Series {
		if len(s.Runs) != 3 || s.Contestant == "c" {
			t.Errorf("%+v", s)
		}
	}
}

// TestDuel runs shells in place of tools: the client finds the server not ready at
// first, and both must end.
func TestDuel(t *testing.T) {
	dir := t.TempDir()
	ready, tried := filepath.Join(dir, "ready"), filepath.Join(dir, "tried")
	d := duel{
		server: []string{"sh", "-c", "while [ ! -e " + ready + " ]; do sleep 0.01; done"},
		client: []string{"sh", "-c", "[ -e " + tried + " ] || { touch " + tried + "; exit 1; }; touch " + ready + "; echo '{\"P50\":7}'"},
		parse:  parseMetrics,
	}
	got, err := d.run(t.Context(), options{})
	if err != nil || got[metricP50] != 7 {
		t.Errorf("%v, %v", got, err)
	}
	d.server = []string{"sh", "-c", "echo no device; exit 3"}
	d.client = []string{"false"}
	if _, err := d.run(t.Context(), options{}); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("a server that fails: %v", err)
	}
}

func TestChosen(t *testing.T) {
	if got, err := chosen(""); err != nil || len(got) != len(contestants) {
		t.Errorf("all: %d, %v", len(got), err)
	}
	if got, err := chosen("UCX,perftest"); err != nil || len(got) != 2 || got[0].name != "UCX" {
		t.Errorf("two: %v, %v", got, err)
	}
	if _, err := chosen("nobody"); err == nil {
		t.Error("an unknown contestant was taken")
	}
}

// TestDuels checks that every measurement has ours and perftest, with the size and
// count on both command lines' own terms.
func TestDuels(t *testing.T) {
	o := options{device: "rxe0", peerDevice: "rxe0", addr: "10.0.0.1", gid: 1, peerGID: 1}
	for _, m := range measurements() {
		for _, c := range contestants {
			ds := c.duels(o, m)
			if len(ds) == 0 && !m.alone && (c.name == referee || c.name == "verbs binding") {
				t.Errorf("%s: %s has no run", m.name, c.name)
			}
			for _, d := range ds {
				if (len(d.server) == 0) != m.alone || len(d.client) == 0 || d.parse == nil || slices.Equal(d.server, d.client) {
					t.Errorf("%s: %s: %q and %q", m.name, c.name, d.server, d.client)
				}
			}
		}
	}
}

func TestMapped(t *testing.T) {
	if got := mapped("10.77.0.1"); got != "0000:0000:0000:0000:0000:ffff:0a4d:0001" {
		t.Errorf("%q", got)
	}
	if got := mapped("host"); got != "" {
		t.Errorf("%q", got)
	}
}

// TestDoc checks that docs/performance.md is what the results say.
func TestDoc(t *testing.T) {
	b, err := os.ReadFile("testdata/lab.json")
	if err != nil {
		t.Fatal(err)
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	const doc = "../../docs/performance.md"
	if *update {
		if err := os.WriteFile(doc, []byte(r.markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != r.markdown() {
		t.Errorf("%s is not what testdata/lab.json says; rewrite it with: go test ./test/bench -run Doc -update", doc)
	}
}

// TestScript checks what the lab's machine is told.
func TestScript(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       options
		want    []string
		refused string
	}{
		{"the RDMA device", options{runs: 3, only: "hint"}, []string{"-device rxe0", "-runs 3 -only 'hint'", "-label ''"}, ""},
		{"in software", options{soft: true}, []string{"-device soft0 -addr 127.0.0.1", "-label 'soft '"}, ""},
		{"far apart", options{soft: true, delay: time.Millisecond, label: "x "}, []string{"netem limit 100000 delay 1ms", "-label 'x soft 1ms '"}, ""},
		{"the scheduler", options{quiet: "dir/bench-quiet"}, []string{" -quiet bench-quiet "}, ""},
		{"a device far from itself", options{delay: time.Millisecond}, nil, "-soft"},
		{"another command", options{only: "'; reboot '"}, nil, "reboot"},
	} {
		script, programs, err := c.o.script()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want an error with %q", c.name, err, c.refused)
			}
			continue
		}
		if err != nil || (len(programs) == 1) != (c.o.delay > 0 || c.o.quiet != "") {
			t.Errorf("%s: programs %q, %v", c.name, programs, err)
		}
		for _, want := range c.want {
			if !strings.Contains(script, want) {
				t.Errorf("%s: no %q in %s", c.name, want, script)
			}
		}
	}
}

// TestBurst measures bursts in software: a deep queue, which is never full for long, and
// a shallow one, whose metrics are all there.
func TestBurst(t *testing.T) {
	hint, lanes := int64(64<<10), "single"
	m, err := burst(t.Context(), "soft0", "127.0.0.1:0", transport.Settings{Size: &hint, Lanes: &lanes}, 640)
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{metricSmall, metricSend, metricSendTail, metricTrip, metricTripTail} {
		if m[metric] <= 0 {
			t.Errorf("%s is %g", metric, m[metric])
		}
	}
	full, long := m[metricFull], m[metricLong]
	if full < 0 || full > 1000 || long < 0 || long > 1000 || m[metricLongFull] > 100 {
		t.Errorf("%g full, %g long, %g of these full", full, long, m[metricLongFull])
	}
}

// TestBurstsOf has bursts of two sizes, one of which a Send hands to the peer itself.
func TestBurstsOf(t *testing.T) {
	hist := func(each time.Duration, n int64, long time.Duration, more int64) *measure.Histogram {
		h := measure.New()
		h.RecordN(each, n)
		h.RecordN(long, more)
		return h
	}
	none := hist(1, 0, 1, 0)
	m := burstsOf(
		bench.Report{Sizes: []bench.Size{{Latency: hist(20, 10, 20, 0)}}},
		bench.Report{Sizes: []bench.Size{
			{Tier: "eager", Latency: hist(50, 100, 90, 10), Sends: bench.Sends{Took: hist(2, 80, 40, 20), Full: hist(40, 15, 40, 0)}},
			{Tier: "rendezvous", Latency: hist(50, 100, 90, 0), Sends: bench.Sends{Took: hist(500, 100, 500, 0), Full: none}},
		}})
	want := map[string]float64{
		metricSmall: 10, metricSend: 2, metricSendTail: 40, metricFull: 150, metricFullTime: 40, metricLong: 200, metricLongFull: 75,
		metricTrip: 50, metricTripTail: 90,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0466: "0.0466", 12.34: "12.3", 999: "999", 1507: "1507", 16_049.6: "16050"} {
		if got := number(v); got != want {
			t.Errorf("%g is written %s, not %s", v, got, want)
		}
	}
}
