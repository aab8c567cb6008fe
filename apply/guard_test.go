package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

// guarded is tuned with a guard of these arguments.
func guarded(arguments string) string {
	return strings.TrimSuffix(strings.TrimSpace(tuned), "}") + "  guard \"tail\" {\n    size = \"8B\"\n" + arguments + "\n  }\n}\n"
}

// latencies makes a measurement of n messages of d each.
func latencies(n int, d time.Duration) Measurement {
	h := measure.New()
	for range n {
		h.Record(d)
	}
	encoded, _ := h.Encode()
	return Measurement{
		Latency: h, Series: []experiment.Series{{Name: "guard tail"}},
		Record: []experiment.Size{{Series: "guard tail", Kind: experiment.RoundTrip, Size: 8, N: int64(n), P50: int64(d), P99: int64(d), Max: int64(d), Histogram: encoded}},
	}
}

func TestGuards(t *testing.T) {
	const peer = "    peer = \"10.0.0.1:7471\"\n"
	for name, tc := range map[string]struct {
		arguments string
		m         Measurement
		err       error
		noMeter   bool
		verdict   string
		text      string
		code      int
		restored  bool
	}{
		"passed": {
			arguments: peer + "p99_max = \"20us\"\n p50_max = \"15us\"", m: latencies(1000, 12*time.Microsecond),
			verdict: experiment.GuardPassed, text: "p50 12µs <= 15µs, p99 12µs <= 20µs, n 1000", code: ExitDone,
		},
		"breached": {
			arguments: peer + "p99_max = \"20us\"", m: latencies(1000, 30*time.Microsecond),
			verdict: experiment.GuardBreached, text: "p99 30µs > 20µs, n 1000", code: ExitRolledBack, restored: true,
		},
		"breached, to be reported": {
			arguments: peer + "p99_max = \"20us\"\n on_breach = \"warn\"", m: latencies(1000, 30*time.Microsecond),
			verdict: experiment.GuardBreached, text: "p99 30µs > 20µs, n 1000", code: ExitDone,
		},
		"not measured": {
			arguments: peer + "p99_max = \"20us\"", err: errors.New("nobody answers"),
			verdict: experiment.GuardNotMeasured, text: "nobody answers", code: ExitError,
		},
		"no meter": {
			arguments: "p99_max = \"20us\"", noMeter: true,
			verdict: experiment.GuardNotMeasured, text: "nothing to measure with", code: ExitError,
		},
		"nothing timed": {
			arguments: peer + "p99_max = \"20us\"", m: Measurement{Latency: measure.New()},
			verdict: experiment.GuardNotMeasured, text: "no message was timed", code: ExitError,
		},
		"too few": {
			arguments: peer + "p99_max = \"20us\"", m: latencies(99, time.Microsecond),
			verdict: experiment.GuardNotMeasured, text: "99 messages were timed; a p99 takes 100", code: ExitError,
		},
		"a median of few": {
			arguments: peer + "p50_max = \"20us\"", m: latencies(5, time.Microsecond),
			verdict: experiment.GuardPassed, text: "p50 1µs <= 20µs, n 5", code: ExitDone,
		},
		"bandwidth": {
			arguments: peer + "kind = \"stream\"\n bandwidth_min = \"100MiB/s\"", m: Measurement{Bandwidth: 99 << 20},
			verdict: experiment.GuardBreached, text: "99.0 MiB/s < 100.0 MiB/s", code: ExitRolledBack, restored: true,
		},
		"no bandwidth": {
			arguments: peer + "kind = \"stream\"\n bandwidth_min = \"100MiB/s\"",
			verdict:   experiment.GuardNotMeasured, text: "no bandwidth was measured", code: ExitError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			before := b.inForce()
			var steps []Step
			if !tc.noMeter {
				b.meter = func(_ context.Context, g plan.Guard) (Measurement, error) {
					if !strings.Contains(b.inForce(), "rx_usecs = 64") {
						t.Error("measured before the changes were in force")
					}
					if g.Size != 8 || g.Device != "mlx5_0" || g.Count != 1000 {
						t.Errorf("asked to measure %+v", g)
					}
					return tc.m, tc.err
				}
			}
			res, err := b.apply(t.Context(), guarded(tc.arguments), func(e Event) { steps = append(steps, e.Step) })
			if err != nil {
				t.Fatal(err)
			}
			want := []experiment.Guard{{Workload: "w", Name: "tail", Verdict: tc.verdict, Text: tc.text}}
			if diff := cmp.Diff(want, res.Guards); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if res.ExitCode() != tc.code {
				t.Errorf("exit code %d, want %d", res.ExitCode(), tc.code)
			}
			if restored := b.inForce() == before; restored != tc.restored {
				t.Errorf("restored: %v\n%s", restored, cmp.Diff(before, b.inForce()))
			}
			if tc.restored {
				b.wantEmptyState("after the rollback")
			} else {
				b.wantNoChanges(guarded(tc.arguments))
			}
			if !slices.Contains(steps, Measured) {
				t.Errorf("steps: %v", steps)
			}
			db, err := experiment.OpenReadOnly(t.Context(), b.node.StateDir())
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			list, err := db.List(t.Context(), experiment.Filter{})
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			e, err := db.Show(t.Context(), list[0].ID)
			if diff := cmp.Diff(want, e.Guards); err != nil || diff != "" || len(e.Sizes) != len(tc.m.Record) {
				t.Errorf("on record: %v, %d sizes (-want +got)\n%s", err, len(e.Sizes), diff)
			}
			wantTried(t, e, tc.restored)
		})
	}
}

// wantTried checks that a record has the values that were written and are not in force,
// which are all of a run that was rolled back, and none of another.
func wantTried(t *testing.T, e experiment.Experiment, rolledBack bool) {
	t.Helper()
	tried := map[string]string{}
	for _, x := range e.Tried {
		tried[x.Address+" "+x.Attr] = x.Value
	}
	for _, s := range e.Settings {
		value, ok := tried[s.Address+" "+s.Attr]
		if ok != rolledBack || ok && (value == s.Value || s.Value != s.Before) {
			t.Errorf("%s %s was %s, tried %q, read back %s", s.Address, s.Attr, s.Before, value, s.Value)
		}
	}
	if len(e.Settings) == 0 || len(tried) > len(e.Settings) {
		t.Errorf("%d settings, %d tried", len(e.Settings), len(tried))
	}
}

// TestGuardsOfOthers measures only for workloads that were changed.
func TestGuardsOfOthers(t *testing.T) {
	b := newBed(t, t.TempDir())
	measured := 0
	b.meter = func(context.Context, plan.Guard) (Measurement, error) {
		measured++
		return latencies(200, time.Microsecond), nil
	}
	text := guarded("    peer = \"h:1\"\n    p99_max = \"1ms\"")
	if res, err := b.apply(t.Context(), text, nil); err != nil || res.ExitCode() != ExitDone || measured != 1 {
		t.Fatalf("%+v, %v, measured %d times", res, err, measured)
	}
	other := text + "workload \"v\" {\n  device = \"mlx5_0\"\n  frequency_lock {\n    frequency = \"1200MHz\"\n    cpus = \"6\"\n  }\n}\n"
	if res, err := b.apply(t.Context(), other, nil); err != nil || res.ExitCode() != ExitDone || measured != 1 {
		t.Errorf("only another workload was changed: %+v, %v, measured %d times", res, err, measured)
	}
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone || measured != 1 {
		t.Errorf("destroy: %+v, %v, measured %d times", res, err, measured)
	}
}

// TestRolledBackSpecLeavesTheNode checks that a spec of which nothing came into force
// does not count as the one that tunes the node.
func TestRolledBackSpecLeavesTheNode(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.meter = func(context.Context, plan.Guard) (Measurement, error) { return latencies(200, time.Second), nil }
	res, err := b.apply(t.Context(), guarded("    peer = \"h:1\"\n    p99_max = \"1ms\""), nil)
	if err != nil || res.ExitCode() != ExitRolledBack {
		t.Fatalf("%+v, %v", res, err)
	}
	doc, err := state.Load(b.node.StateDir())
	if err != nil || doc.SpecRoot != "" {
		t.Errorf("the node is tuned by %q, %v", doc.SpecRoot, err)
	}
}

// TestGuardsOwed: what a run leaves without a verdict is owed until it has a good one. A
// breach that comes later undoes nothing of the earlier run, and stays a failure.
func TestGuardsOwed(t *testing.T) {
	const owed = `workload.w.guard["tail"]`
	text := guarded("    peer = \"h:1\"\n    p99_max = \"1ms\"")
	next := strings.Replace(text, "rx_usecs = 64", "rx_usecs = 32", 1)
	if text == next {
		t.Fatal("the next spec is the same")
	}
	none := errors.New("nobody answers")
	type run struct {
		text string
		took time.Duration // 0: it cannot be measured
		code int
		owed bool
	}
	for name, runs := range map[string][]run{
		"until it passes":             {{text, 0, ExitError, true}, {text, 0, ExitError, true}, {text, time.Microsecond, ExitDone, false}, {text, 0, ExitDone, false}},
		"a breach stays":              {{text, 0, ExitError, true}, {text, time.Second, ExitError, true}, {text, time.Second, ExitError, true}, {text, time.Microsecond, ExitDone, false}},
		"a breach of the next":        {{text, time.Microsecond, ExitDone, false}, {next, time.Second, ExitRolledBack, false}},
		"and what comes back is owed": {{text, 0, ExitError, true}, {next, time.Second, ExitRolledBack, true}},
		"a breach at once":            {{text, time.Second, ExitRolledBack, false}},
		"destroyed":                   {{text, 0, ExitError, true}, {"", 0, ExitDone, false}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			for i, r := range runs {
				b.meter = func(context.Context, plan.Guard) (Measurement, error) {
					if r.took == 0 {
						return Measurement{}, none
					}
					return latencies(200, r.took), nil
				}
				before := b.inForce()
				res, err := b.apply(t.Context(), r.text, nil)
				if err != nil || res.ExitCode() != r.code {
					t.Fatalf("run %d: %+v, %v", i, res, err)
				}
				doc, err := state.Load(b.node.StateDir())
				if err != nil || slices.Contains(doc.Unmeasured, owed) != r.owed {
					t.Errorf("run %d: owed %q, %v", i, doc.Unmeasured, err)
				}
				stays := slices.ContainsFunc(res.Failures, func(err error) bool { return errors.Is(err, ErrBreachStays) })
				if stays != (r.code == ExitError && r.took > 0) || i > 0 && r.code == ExitError && b.inForce() != before {
					t.Errorf("run %d: %q; what is in force:\n%s", i, res.Failures, cmp.Diff(before, b.inForce()))
				}
			}
		})
	}
}

// TestGuardsOfWhatWasUndone: a workload that one guard has rolled back owes no other.
func TestGuardsOfWhatWasUndone(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.meter = func(_ context.Context, g plan.Guard) (Measurement, error) {
		if g.Name == "tail" {
			return latencies(200, time.Second), nil
		}
		return Measurement{}, errors.New("nobody answers")
	}
	text := guarded("    peer = \"h:1\"\n    p99_max = \"1ms\"")
	text = strings.TrimSuffix(text, "}\n") + "  guard \"other\" {\n    size = \"8B\"\n    peer = \"h:1\"\n    p50_max = \"1ms\"\n  }\n}\n"
	res, err := b.apply(t.Context(), text, nil)
	if err != nil || res.ExitCode() != ExitRolledBack || len(res.Guards) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if doc, err := state.Load(b.node.StateDir()); err != nil || len(doc.Unmeasured) > 0 {
		t.Errorf("owed: %q, %v", doc.Unmeasured, err)
	}
}
