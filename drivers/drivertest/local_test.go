package drivertest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/coalesce"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/dmalatency"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// TestLocal runs the suite on the machine itself: on the RDMA device that
// RDMATUNE_DEVICE names, its netdev and the first cpufreq policy. It changes them
// while it runs, so nobody gets it unasked.
func TestLocal(t *testing.T) {
	name := os.Getenv("RDMATUNE_DEVICE")
	if name == "" {
		t.Skip("changes this machine's settings; to run it, set RDMATUNE_DEVICE to an RDMA device")
	}
	n, err := node.Open("local", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	facts, err := n.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(facts.RDMA, func(d node.RDMA) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("no RDMA device %s", name)
	}
	device := facts.RDMA[i]
	online, err := cpulist.ParseKernel(*facts.CPUs.Online)
	if err != nil || online.Size() < 2 {
		t.Fatalf("online CPUs %s, %v; the suite needs two", *facts.CPUs.Online, err)
	}
	// A set of one CPU that is not what the setting has.
	another := func(_ param.Target, s param.Setting) (param.Value, bool) {
		for _, cpu := range online.List()[1:] {
			if v := param.Text(strconv.Itoa(cpu)); v != s.Value {
				return v, true
			}
		}
		return param.Value{}, false
	}
	t.Run("pinning", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Subject {
			cmd := exec.Command("sleep", "600")
			cmd.Env = append(os.Environ(), "RDMATUNE_WORKLOAD=drivertest")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				n.InjectFaults(nil)
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
				_ = cmd.Wait() // reports the kill
			})
			return drivertest.Subject{Driver: pinning.New(n, nil), Scope: param.Scope{Workload: "drivertest"}, Want: another, Inject: n.InjectFaults}
		})
	})
	t.Run("irq", func(t *testing.T) {
		var keys []string
		for _, v := range device.IRQs {
			keys = append(keys, v.Key)
		}
		drivertest.Run(t, func(t *testing.T) drivertest.Subject {
			d := irq.New(n.FS())
			s := drivertest.Subject{Driver: d, Scope: param.Scope{Targets: keys}, Want: another, Read: n.FS().ReadFile, Inject: faulty(n, &d, irq.New)}
			restoreAfter(t, s)
			return s
		})
	})
	t.Run("cpufreq", func(t *testing.T) {
		if len(facts.Cpufreq) == 0 {
			t.Skip("this machine has no cpufreq")
		}
		p := facts.Cpufreq[0]
		drivertest.Run(t, func(t *testing.T) drivertest.Subject {
			d := cpufreq.New(n.FS())
			s := drivertest.Subject{
				Driver: d, Scope: param.Scope{Targets: []string{p.Policy}}, Read: n.FS().ReadFile, Inject: faulty(n, &d, cpufreq.New),
				Want: func(_ param.Target, s param.Setting) (param.Value, bool) { return anotherLimit(p, s) },
			}
			restoreAfter(t, s)
			return s
		})
	})
	t.Run("dmalatency", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Subject { return dmaLatencySubject(t, dmalatency.Device) })
	})
	t.Run("coalesce", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Subject {
			s := drivertest.Subject{
				Driver: coalesce.New(n), Scope: param.Scope{Targets: device.Netdevs[:1]}, Inject: n.InjectFaults,
				Want: func(_ param.Target, s param.Setting) (param.Value, bool) {
					now, ok := s.Value.AsInt()
					if s.ID != param.RXUsecs || !ok {
						return param.Value{}, false
					}
					return param.Int(map[bool]int64{true: 64, false: 0}[now == 0]), true
				},
			}
			restoreAfter(t, s)
			return s
		})
	})
}

// anotherLimit pins a policy to a frequency that it can hold and that is neither of
// its limits now, under another governor.
func anotherLimit(p node.Policy, s param.Setting) (param.Value, bool) {
	if s.ID == param.Governor {
		for _, g := range []string{"performance", "powersave"} {
			if v := param.Text(g); slices.Contains(p.Governors, g) && v != s.Value {
				return v, true
			}
		}
		return param.Value{}, false
	}
	if s.ID == param.EnergyPreference {
		return param.Value{}, false // a governor may fix it
	}
	if len(p.AvailableKHz) > 2 {
		return param.Int(p.AvailableKHz[1]), true
	}
	return param.Int((*p.HardwareMinKHz + *p.HardwareMaxKHz) / 2 / 100_000 * 100_000), true
}

// restoreAfter puts back what the subject's targets have now when t ends.
func restoreAfter(t *testing.T, s drivertest.Subject) {
	t.Helper()
	targets, err := s.Driver.Discover(t.Context(), s.Scope)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		before, err := s.Driver.Read(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.Inject(new(sysfs.Faults))
			var cs []param.Change
			for _, setting := range before {
				if setting.Value.IsKnown() && !setting.Value.IsAbsent() && !setting.Fixed {
					cs = append(cs, param.Change{Target: target, ID: setting.ID, Index: setting.Index, Action: param.Restore, New: setting.Value})
				}
			}
			// The test's own context has ended by now.
			if _, err := s.Driver.Apply(context.WithoutCancel(t.Context()), target, cs, param.Order{}); err != nil {
				t.Error(errors.Join(errors.New("putting "+target.Name+" back"), err))
			}
		})
	}
}
