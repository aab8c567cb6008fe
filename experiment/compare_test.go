package experiment

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// measured returns an experiment with one size of latency around us microseconds.
func measured(id string, us float64) Experiment {
	r := rand.New(rand.NewPCG(uint64(us), 1))
	samples := make([]time.Duration, 2000)
	for i := range samples {
		samples[i] = time.Duration(us * 1000 * (1 + r.Float64()/10))
	}
	return Experiment{
		ID: id, Kind: Bench, Status: Done, Device: "mlx5_0", Version: "1",
		Node:   Node{Kernel: "6.1", Driver: "mlx5_core", Firmware: "20.1"},
		Series: []Series{{Name: "run", Hint: ptr(int64(0)), Profile: map[string]string{"depth": "256"}}},
		Sizes:  []Size{{Series: "run", Kind: RoundTrip, Size: 8, N: 2000, Histogram: histogram(samples...)}},
		Detail: Detail{Explain: map[string]string{"cpu.model": "c"}},
	}
}

// streamed adds a bandwidth, in so many stretches of a second.
func streamed(e Experiment, size, each int64) Experiment {
	z := Size{Series: "run", Kind: Stream, Size: size, Bandwidth: size * each}
	for i := range 20 {
		n := each + int64(i%3)
		z.Timeline = append(z.Timeline, Point{At: time.Duration(i+1) * time.Second, Took: time.Second, N: n})
		z.N += n
	}
	e.Sizes = append(e.Sizes, z)
	return e
}

func TestCompare(t *testing.T) {
	hinted := func(e Experiment, hint int64) Experiment {
		e.Series = []Series{{Name: "run", Hint: &hint, Profile: map[string]string{"depth": "16"}}}
		return e
	}
	a := measured("a", 20)
	for name, tc := range map[string]struct {
		a, b           Experiment
		cause, verdict string
		differs        string // what, with ! where it follows
	}{
		"the hint alone": {
			a, hinted(measured("b", 12), 8192), "only the hint differs",
			"one-sided: latency: better in 2 of 2, no difference shown in the rest; bandwidth was not measured", "hint profile.depth!",
		},
		"the same again": {a, a, "nothing recorded differs", "one-sided: latency: no difference shown", ""},
		"firmware too": {
			a, func() Experiment { e := hinted(measured("b", 12), 8192); e.Node.Firmware = "20.2"; return e }(),
			"2 things differ: not attributable to the hint", "one-sided", "hint nic.firmware profile.depth!",
		},
		"firmware alone": {
			a, func() Experiment { e := measured("b", 30); e.Node.Firmware = "20.2"; return e }(),
			"only nic.firmware differs", "one-sided: latency: worse in 2 of 2", "nic.firmware",
		},
		"latency against bandwidth": {
			streamed(a, 4096, 1000), streamed(hinted(measured("b", 12), 8192), 4096, 500), "only the hint differs",
			"latency: better in 2 of 2, no difference shown in the rest; bandwidth: worse in 1 of 1, no difference shown in the rest", "hint profile.depth!",
		},
	} {
		c, err := Compare(Side{Experiment: tc.a}, Side{Experiment: tc.b}, false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var differs []string
		for _, d := range c.Differs {
			what := d.What
			if d.Follows {
				what += "!"
			}
			differs = append(differs, what)
		}
		if !strings.HasPrefix(c.Cause, tc.cause) || !strings.HasPrefix(c.Verdict, tc.verdict) || strings.Join(differs, " ") != tc.differs {
			t.Errorf("%s:\ncause %q\nverdict %q\ndiffers %q\nwant %q, %q, %q", name, c.Cause, c.Verdict, differs, tc.cause, tc.verdict, tc.differs)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	a, b := measured("a", 20), measured("b", 20)
	b.Explain = map[string]string{"cpu.model": "another"}
	if _, err := Compare(Side{Experiment: a}, Side{Experiment: b}, false); !errors.Is(err, ErrHardware) {
		t.Errorf("different CPUs: %v", err)
	}
	if c, err := Compare(Side{Experiment: a}, Side{Experiment: b}, true); err != nil || len(c.Differs) != 1 {
		t.Errorf("forced: %+v, %v", c.Differs, err)
	}
	simulated := measured("b", 20)
	simulated.Simulated = true
	if _, err := Compare(Side{Experiment: a}, Side{Experiment: simulated}, false); !errors.Is(err, ErrHardware) {
		t.Errorf("one simulated: %v", err)
	}
	other := measured("b", 20)
	other.Sizes[0].Size = 16
	two := measured("b", 20)
	two.Series = append(two.Series, Series{Name: "other"})
	broken := measured("b", 20)
	broken.Sizes[0].Histogram = []byte("junk")
	for name, y := range map[string]Side{
		"no size in common": {Experiment: other},
		"several series":    {Experiment: two},
		"an unknown series": {Experiment: two, Series: "nonsense"},
		"nothing measured":  {Experiment: Experiment{ID: "c"}},
		"a broken record":   {Experiment: broken},
	} {
		if _, err := Compare(Side{Experiment: a}, y, true); err == nil {
			t.Errorf("%s: compared", name)
		}
	}
	if _, err := Compare(Side{Experiment: a}, Side{Experiment: two, Series: "run"}, false); err != nil {
		t.Errorf("one of several series: %v", err)
	}
}
