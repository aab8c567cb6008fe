package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

func TestWriteStatus(t *testing.T) {
	hint := int64(16384)
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := began.Add(28*time.Hour + 3*time.Minute)
	good := reconcile.Status{
		Version: "0.1.0", PID: 812, Started: began, Healthy: true,
		Spec:   reconcile.SpecStatus{Root: "/etc/rdmatune", Digest: "1f2e3d4c", Loaded: now.Add(-90 * time.Second)},
		Passes: 1, Sweeps: 3361, Irqbalance: "none runs",
		Workloads: []reconcile.Workload{{Address: "storage", Generation: 1, Settings: 4}},
		Sources:   []watch.Status{{Source: watch.Writes, On: true, Events: 12}},
	}
	bad := good
	bad.Healthy, bad.DryRun, bad.Started = false, true, now.Add(time.Minute) // a clock that was set back
	bad.Problems = []string{"the spec's files are invalid", "1 setting is contested"}
	bad.Spec.Commit, bad.Spec.Invalid = "9f1c0de-dirty", "node.hcl:3,1: no closing brace"
	bad.Irqbalance = "irqbalance 1.6.0 (pid 40) was told to leave 64 of our interrupts alone, not verifiable"
	bad.Others = []string{"tuned (pid 50), which may rewrite all", "thermald (pid 51), which may rewrite little"}
	bad.Passes, bad.Drifts, bad.Heals = 812, 3, 2
	bad.LastPass = &reconcile.Pass{Trigger: reconcile.OnEvent, Began: now.Add(-2500 * time.Millisecond), Took: 8123456, Err: "state directory: no space left on device",
		Failures: []string{"policy0: device or resource busy"}}
	bad.Contested = []reconcile.Held{{Address: `workload.allreduce["0"].irq_affinity["0000:18:00.0/3"]`, Setting: "cpus", Reason: "given up", Rewrites: 9, Writer: `pid 99 "evil\x1b[2J"`}}
	bad.Waiting = []reconcile.Held{{Address: `workload.storage.frequency_lock["policy3"]`, Setting: "max_khz", Reason: "backing off", Rewrites: 2, Until: now.Add(time.Minute)}}
	for range 3 {
		bad.RolledBack = append(bad.RolledBack, reconcile.Held{Address: "workload.storage.hint", Setting: "size", Reason: `guard "tail": p99 216µs > 1µs; it is tried again when the spec changes`})
	}
	bad.Left = []reconcile.Held{{Address: `workload.storage.coalescing["eth0"]`, Setting: "rx_usecs", Reason: "the default route is through it"}}
	bad.Guards = []reconcile.Debt{
		{Guard: `workload.allreduce["0"].guard["bulk"]`, Reason: "nobody answers at 10.0.0.1:7471", Next: now.Add(10 * time.Minute)},
		{Guard: `workload.storage.guard["tail"]`, Breached: true, Reason: "p99 216µs > 1µs, n 1000"},
	}
	bad.Recent = []reconcile.Drift{
		{Address: `workload.allreduce["0"].irq_affinity["0000:18:00.0/3"]`, Setting: "cpus", Wrote: "3", Found: "0-\x1b[31m7", Writer: `pid 40 "irqbalance"`, Known: true, When: now.Add(-3 * time.Second), Ruling: "contested"},
		{Address: `workload.storage.frequency_lock["policy3"]`, Setting: "governor", Wrote: "performance", Found: "powersave", Writer: "driver reload", When: now.Add(-4 * time.Hour), Ruling: "heal", Healed: 41 * time.Millisecond},
		{Address: `workload.storage.frequency_lock["policy4"]`, Setting: "governor", Wrote: "performance", Found: "powersave", Ruling: "wait"},
	}
	bad.Workloads = append([]reconcile.Workload{{Address: `allreduce["0"]`, Hint: &hint, Wanted: &hint, Generation: 3, Settings: 70, Processes: 1, Connections: 7}}, bad.Workloads...)
	bad.Sources = append(bad.Sources, watch.Status{Source: watch.Spec, On: true, Reason: "one directory cannot be watched", Events: 3},
		watch.Status{Source: watch.Processes, Reason: "no capability; the sweep stands in", Lost: 2})

	for name, s := range map[string]reconcile.Status{"healthy": good, "unhealthy": bad, "empty": {}} {
		var b strings.Builder
		if err := writeStatus(&b, &s, now); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("status", name+".txt"), b.String())
	}
}

// TestHintInForce: the column shows what is, and what is wanted only where it is not.
func TestHintInForce(t *testing.T) {
	four, eight, zero := int64(4096), int64(8192), int64(0)
	for _, test := range []struct {
		is, wanted *int64
		want       string
	}{
		{nil, nil, "unmanaged"}, {&four, &four, "4 KiB"}, {&zero, &zero, "0"}, {nil, &four, "none (wanted: 4 KiB)"},
		{&four, nil, "4 KiB (wanted: none)"}, {&four, &eight, "4 KiB (wanted: 8 KiB)"}, {nil, &zero, "none (wanted: 0)"},
	} {
		if got := hintInForce(reconcile.Workload{Hint: test.is, Wanted: test.wanted}); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 999 * time.Nanosecond: "0s", 1500 * time.Nanosecond: "1µs", 41_700 * time.Microsecond: "41ms", 2_590 * time.Millisecond: "2.5s",
		59_900 * time.Millisecond: "59s", 61 * time.Second: "1m1s", 3*time.Hour + 2*time.Minute: "3h2m", 800 * time.Hour: "33d8h",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
