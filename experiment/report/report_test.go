package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/measure"
)

// full returns an experiment that has everything: two series, latencies, a switch in
// the middle, bandwidths, guards.
func full(id string) experiment.Experiment {
	hint := int64(8192)
	e := experiment.Experiment{
		ID: id, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Kind: experiment.Bench, Workload: `all<reduce>["0"]`, Status: experiment.Done,
		Duration: 3 * time.Second, Node: experiment.Node{Hostname: "node7", Kernel: "6.1", Driver: "rxe", Virtualised: "kvm"}, Device: "rxe0", Simulated: true, Version: "0.1.0",
		Series:   []experiment.Series{{Name: "hint 0", Hint: new(int64)}, {Name: "hint 8 KiB", Hint: &hint}},
		Settings: []experiment.Setting{{Address: "workload.a.hint", Attr: "size", Before: "(unset)", Value: "8 KiB"}},
		Switches: []experiment.Switch{{Workload: "a", Generation: 2, Outcome: "switched", At: 1500 * time.Millisecond, Pause: 250 * time.Microsecond, Drained: 3, Held: 1}},
		Detail: experiment.Detail{
			Explain: map[string]string{"cpu.model": "A CPU"}, Observed: map[string]string{"interrupts": "12"},
			Guards: []experiment.Guard{{Workload: "a", Name: "tail", Verdict: experiment.GuardBreached, Text: "p99 30 us > 20 us"}},
		},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i, s := range e.Series {
		for _, size := range []int64{8, 1024, 65536} {
			h := measure.New()
			z := experiment.Size{Series: s.Name, Kind: experiment.RoundTrip, Tier: "eager", Size: size, Warmup: 100}
			for n := range 3000 {
				d := time.Duration(float64(20_000+size) * math.Exp(r.NormFloat64()/4) / float64(i+1))
				h.Record(d)
				if n%100 == 99 {
					z.Timeline = append(z.Timeline, experiment.Point{At: time.Duration(n) * time.Millisecond, Took: 100 * time.Millisecond, N: 100, P50: int64(d), Max: int64(3 * d)})
				}
			}
			sum := h.Summary()
			z.N, z.P50, z.P99, z.Max = sum.N, int64(sum.P50), int64(sum.P99), int64(sum.Max)
			z.Worst = []measure.Sample{{Index: 7, At: time.Second, Latency: sum.Max}}
			z.Histogram, _ = h.Encode()
			e.Sizes = append(e.Sizes, z)
		}
		e.Sizes = append(e.Sizes, experiment.Size{Series: s.Name, Kind: experiment.Stream, Size: 2 << 20, N: 100, Bandwidth: 1 << 30 >> i})
	}
	return e
}

func render(t *testing.T, list ...experiment.Experiment) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, list); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPage reads the page as XML, so that every element is closed and every character
// from a record is text, and looks for what must be there.
func TestPage(t *testing.T) {
	other := full("20260102-030405-bbbb")
	other.Node.Kernel = "6.2"
	other.Settings[0].Value = "16 KiB"
	text := render(t, full("20260102-030405-aaaa"), other)
	// Void elements of HTML have no end; the declaration is not XML's.
	body := strings.Replace(text, "<!doctype html>", "", 1)
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "<meta") {
			body = strings.Replace(body, line, "", 1)
		}
	}
	body = strings.ReplaceAll(body, "<details open>", "<details>")
	dec := xml.NewDecoder(strings.NewReader(body))
	charts := map[string]int{}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			if e.Name.Local == "script" || e.Name.Local == "link" || e.Name.Local == "img" {
				t.Errorf("the page has a <%s>", e.Name.Local)
			}
			for _, a := range e.Attr {
				if a.Name.Local == "data-chart" {
					charts[a.Value]++
				}
			}
		}
	}
	for _, want := range []string{
		"Round trip by message size", "Distribution at 8 B", "Distribution at 64 KiB", "Bandwidth by message size", "Over time: 8 B, hint 0",
	} {
		if charts[want] != 2 {
			t.Errorf("%d charts %q", charts[want], want)
		}
	}
	for _, want := range []string{
		"all&lt;reduce&gt;", "What differs", "<td>kernel</td><td>6.1</td><td>6.2</td>", "<td>workload.a.hint size</td><td>8 KiB</td><td>16 KiB</td>",
		"change of path: switched to generation 2, pause 250.0 µs", "breached", "Simulated hardware", "Virtual machine (kvm)", "hint 8 KiB P99",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "ZgotmplZ") {
		t.Error("the page has a number or text that is none")
	}
}

func TestOddExperiments(t *testing.T) {
	empty := experiment.Experiment{ID: "20260102-030405-aaaa", Kind: experiment.Apply, Status: experiment.Failed, Error: "no"}
	one := full("20260102-030405-bbbb")
	h := measure.New()
	h.Record(1)
	encoded, _ := h.Encode()
	one.Series = nil
	one.Sizes = []experiment.Size{{Kind: experiment.RoundTrip, Size: 8, N: 1, P50: 1, P99: 1, Max: 1, Histogram: encoded}}
	none := full("20260102-030405-cccc")
	none.Sizes = []experiment.Size{{Kind: experiment.RoundTrip, Size: 8}, {Kind: experiment.Stream, Size: 8}}
	for name, e := range map[string]experiment.Experiment{"an apply": empty, "one sample": one, "no sample": none} {
		if text := render(t, e); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || !strings.Contains(text, e.ID) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	broken := full("20260102-030405-dddd")
	broken.Sizes[0].Histogram = []byte("junk")
	if err := Write(io.Discard, []experiment.Experiment{broken}); err == nil {
		t.Error("a broken histogram was drawn")
	}
	if err := Write(io.Discard, nil); err == nil {
		t.Error("a page about nothing")
	}
}

func TestTicks(t *testing.T) {
	for name, tc := range map[string]struct {
		values []float64
		log    bool
		want   string
	}{
		"decades":    {[]float64{1, 1000}, true, "1 2 5 10 20 50 100 200 500 1000"},
		"within one": {[]float64{20, 45}, true, "20"},
		"linear":     {[]float64{0, 10}, false, "0 2 4 6 8 10"},
		"the same":   {[]float64{5, 5}, true, "5"},
	} {
		s := newScale(tc.values, tc.log, 0, 100)
		var got []string
		for _, x := range s.ticks(6, false) {
			got = append(got, x.Text)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}
