package drivertest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/coalesce"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/dmalatency"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// processes is what the machines of the pinning driver run.
var processes = []node.Process{
	{PID: 4711, Start: 1000, Comm: "trainer", Cmdline: []string{"/opt/trainer", "--rank=0"}, Workload: "w", UID: 1000, Threads: []int{4712, 4713}},
	{PID: 4800, Start: 2000, Comm: "other", Cmdline: []string{"/opt/other"}, UID: 1000},
}

func pinningSubject(t *testing.T, n *node.Node) drivertest.Subject {
	t.Helper()
	if err := n.Adopt(processes...); err != nil {
		t.Fatal(err)
	}
	return drivertest.Subject{
		Driver: pinning.New(n, func(context.Context, string) ([]int, error) { return nil, nil }),
		Scope:  param.Scope{Workload: "w"},
		Want:   func(param.Target, param.Setting) (param.Value, bool) { return param.Text("1-2"), true },
		Inject: n.InjectFaults,
	}
}

func TestPinning(t *testing.T) {
	t.Run("simulated", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Subject { return pinningSubject(t, drivertest.Simulated(t, "small")) })
	})
	t.Run("captured", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Subject {
			return pinningSubject(t, drivertest.Captured(t, "testdata/nodes.txtar"))
		})
	})
}

// faulty is a driver that is made anew when faults are injected, since it holds the
// tree and not the node.
func faulty[D any](n *node.Node, d **D, make func(sysfs.FS) *D) func(*sysfs.Faults) {
	return func(f *sysfs.Faults) {
		n.InjectFaults(f)
		**d = *make(n.FS())
	}
}

func TestCPUFreq(t *testing.T) {
	lock := func(_ param.Target, s param.Setting) (param.Value, bool) {
		switch s.ID {
		case param.Governor:
			return param.Text("performance"), true
		case param.EnergyPreference:
			return param.Value{}, false
		}
		return param.Int(2_600_000), true
	}
	for name, open := range map[string]func(t *testing.T) *node.Node{
		"simulated": func(t *testing.T) *node.Node { return drivertest.Simulated(t, "small") },
		"captured":  func(t *testing.T) *node.Node { return drivertest.Captured(t, "testdata/nodes.txtar") },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject {
				n := open(t)
				d := cpufreq.New(n.FS())
				return drivertest.Subject{Driver: d, Scope: param.Scope{Targets: []string{"policy0"}}, Want: lock, Read: n.FS().ReadFile, Inject: faulty(n, &d, cpufreq.New)}
			})
		})
	}
}

func TestIRQ(t *testing.T) {
	for name, m := range map[string]struct {
		open    func(t *testing.T) *node.Node
		targets []string
	}{
		"simulated": {
			func(t *testing.T) *node.Node { return drivertest.Simulated(t, "small") },
			[]string{"0000:01:00.0/3", "0000:01:00.0/0", "0000:02:00.0/4"},
		},
		"captured": {
			func(t *testing.T) *node.Node { return drivertest.Captured(t, "testdata/nodes.txtar") },
			[]string{"0000:10:00.0/0", "0000:11:00.0/0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject {
				n := m.open(t)
				d := irq.New(n.FS())
				return drivertest.Subject{
					Driver: d, Scope: param.Scope{Targets: m.targets}, Read: n.FS().ReadFile, Inject: faulty(n, &d, irq.New),
					Want: func(param.Target, param.Setting) (param.Value, bool) { return param.Text("1-2"), true },
				}
			})
		})
	}
}

func TestCoalesce(t *testing.T) {
	want := func(_ param.Target, s param.Setting) (param.Value, bool) {
		switch s.ID {
		case param.AdaptiveRX:
			on, _ := s.Value.AsBool()
			return param.Bool(!on), true
		case param.RXUsecs:
			return param.Int(0), true
		}
		return param.Value{}, false
	}
	for name, m := range map[string]struct {
		open   func(t *testing.T) *node.Node
		netdev string
	}{
		"simulated": {func(t *testing.T) *node.Node { return drivertest.Simulated(t, "small") }, "ens1f0np0"},
		"captured":  {func(t *testing.T) *node.Node { return drivertest.Captured(t, "testdata/nodes.txtar") }, "eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject {
				n := m.open(t)
				return drivertest.Subject{
					Driver: coalesce.New(n), Scope: param.Scope{Targets: []string{m.netdev}}, Want: want, Inject: n.InjectFaults,
				}
			})
		})
	}
}

// A file stands for the device; TestLocal has the real one.
func TestDMALatency(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject {
		device := filepath.Join(t.TempDir(), "cpu_dma_latency")
		if err := os.WriteFile(device, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return dmaLatencySubject(t, device)
	})
}

func dmaLatencySubject(t *testing.T, device string) drivertest.Subject {
	t.Helper()
	runDir := t.TempDir()
	h, err := dmalatency.NewHolder(device, runDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return drivertest.Subject{
		Driver: dmalatency.New(sysfs.Host(), procs.New(sysfs.Host(), nil), runDir, h),
		Want:   func(param.Target, param.Setting) (param.Value, bool) { return param.Text("2us"), true },
		Inject: h.InjectFaults,
	}
}
