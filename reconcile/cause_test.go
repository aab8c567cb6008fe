package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

func TestCause(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(s watch.Source, what, subject string, pid int, comm string, ago time.Duration) watch.Event {
		return watch.Event{Source: s, What: what, Subject: subject, PID: pid, Comm: comm, When: now.Add(-ago)}
	}
	vector := param.Target{Kind: param.IRQ, Name: "0000:81:00.0/3"}
	netdev := param.Target{Kind: param.Coalescing, Name: "eth1"}
	policy := param.Target{Kind: param.Frequency, Name: "policy2"}
	const file = "/proc/irq/31/smp_affinity_list"
	const lower, upper = "/sys/devices/system/cpu/cpufreq/policy2/scaling_min_freq", "/sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq"
	files := settingFiles{vector: {{param.IRQCPUs, file}}, policy: {{param.MinKHz, lower}, {param.MaxKHz, upper}}}
	for _, test := range []struct {
		name   string
		target param.Target
		id     param.ID
		events []watch.Event
		writer string
		known  bool
		kernel bool
	}{
		{"nothing is known", vector, param.IRQCPUs, nil, "somebody unknown", false, false},
		{"the writer", vector, param.IRQCPUs, []watch.Event{at(watch.Writes, "write", file, 7, "tuned", time.Second)}, `pid 7 "tuned"`, true, false},
		{"the last of two writers", vector, param.IRQCPUs, []watch.Event{at(watch.Writes, "write", file, 7, "tuned", 2*time.Second), at(watch.Writes, "write", file, 8, "sh", time.Second)}, `pid 8 "sh"`, true, false},
		{"a writer that is gone", vector, param.IRQCPUs, []watch.Event{at(watch.Writes, "write", file, 7, "", time.Second)}, "pid 7 (gone)", true, false},
		{"the writer of another file", vector, param.IRQCPUs, []watch.Event{at(watch.Writes, "write", "/proc/irq/32/smp_affinity_list", 7, "sh", time.Second)}, "somebody unknown", false, false},
		{"too long ago", vector, param.IRQCPUs, []watch.Event{at(watch.Writes, "write", file, 7, "sh", time.Minute)}, "somebody unknown", false, false},
		{"the driver was bound", vector, param.IRQCPUs, []watch.Event{at(watch.Kernel, "bind", "/devices/pci0000:80/0000:81:00.0", 0, "", time.Second)}, "the kernel (bind of 0000:81:00.0)", false, true},
		{"the link of its netdev", vector, param.IRQCPUs, []watch.Event{at(watch.Links, "up", "eth1", 0, "", time.Second)}, "the kernel (up of eth1)", false, true},
		{"another link", vector, param.IRQCPUs, []watch.Event{at(watch.Links, "up", "eth2", 0, "", time.Second)}, "somebody unknown", false, false},
		{"a CPU went offline, and its interrupts moved", vector, param.IRQCPUs, []watch.Event{at(watch.Kernel, "offline", "/devices/system/cpu/cpu3", 0, "", time.Second)}, "the kernel (offline of cpu3)", false, true},
		{"ethtool", netdev, param.RXUsecs, []watch.Event{at(watch.Ethtool, "change", "eth1", 0, "", time.Second)}, "ethtool netlink", false, false},
		{"ethtool of another netdev", netdev, param.RXUsecs, []watch.Event{at(watch.Ethtool, "change", "eth2", 0, "", time.Second)}, "somebody unknown", false, false},
		{"the writer of the policy's other limit", policy, param.MinKHz, []watch.Event{at(watch.Writes, "write", upper, 7, "tuned", time.Second), at(watch.Kernel, "online", "/devices/system/cpu/cpu2", 0, "", 0)}, `pid 7 "tuned" through scaling_max_freq`, false, false},
		{"its own writer comes before that", policy, param.MinKHz, []watch.Event{at(watch.Writes, "write", lower, 8, "sh", 2*time.Second), at(watch.Writes, "write", upper, 7, "tuned", time.Second)}, `pid 8 "sh"`, true, false},
		{"a CPU came back", policy, param.MaxKHz, []watch.Event{at(watch.Kernel, "online", "/devices/system/cpu/cpu2", 0, "", time.Second)}, "the kernel (online of cpu2)", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c causes
			for _, e := range test.events {
				c.add(e)
			}
			got := c.find(now, plan.Change{Change: param.Change{Target: test.target, ID: test.id}}, files,
				func(string) []string { return []string{"eth1"} })
			if !strings.Contains(got.writer, test.writer) || got.known != test.known || got.kernel != test.kernel {
				t.Errorf("%+v, want %q, known %v, kernel %v", got, test.writer, test.known, test.kernel)
			}
		})
	}
	var c causes
	for i := range 10 * keptEvents {
		c.add(at(watch.Writes, "write", fmt.Sprint(i), 1, "", 0))
		c.add(at(watch.Processes, "exec", "sh", i, "", 0))
	}
	if len(c.events) > keptEvents {
		t.Errorf("%d events are kept", len(c.events))
	}
}

func TestLogin(t *testing.T) {
	for line, want := range map[string]string{
		"  sl  local_address rem_address   st tx_queue":                                                          "",
		"   0: 0100007F:0016 0100007F:D431 01 00000000:00000000 02:0009 00000000 0 0 1":                          "127.0.0.1",
		"   1: 0202000A:0016 0302000A:D431 01 00000000:00000000 02:0009 00000000 0 0 1":                          "10.0.2.2",
		"   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:0000 00000000 0 0 1":                          "",
		"   3: 0100007F:1F90 0100007F:0016 01 00000000:00000000 00:0000 00000000 0 0 1":                          "",
		"   0: 000080FE00000000FF565002BE6D00FE:0016 000080FE00000000FF565002BE6D00FF:D431 01 00000000:00000000": "fe80::250:56ff:fe00:6dbe",
		"   0: 0000000000000000FFFF00000100007F:0016 0000000000000000FFFF00000100007F:D431 01 00000000:00000000": "127.0.0.1",
		"   4: zz00007F:0016 0100007F:D431 01":                                                                   "",
		"   5: 01:0016 0100007F:D431 01":                                                                         "",
		"":                                                                                                       "",
	} {
		a, ok := login(line)
		if ok != (want != "") || ok && a.String() != want {
			t.Errorf("%q: %v, %v, want %q", line, a, ok, want)
		}
	}
}

// FuzzLogin: a line of any shape is read without a panic.
func FuzzLogin(f *testing.F) {
	f.Add("   0: 0100007F:0016 0100007F:D431 01 00000000:00000000")
	f.Add("   0: 000080FE00000000FF565002BE6D00FE:0016 0 01")
	f.Fuzz(func(t *testing.T, line string) {
		if a, ok := login(line); ok && !a.IsValid() {
			t.Errorf("%q: %v", line, a)
		}
	})
}
