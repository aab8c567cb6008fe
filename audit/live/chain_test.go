package live

import (
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/node"
)

// TestChainOfAVector checks one way whole: the threads, the vector that the transport
// tells, that vector's own interrupt and its CPU.
func TestChainOfAVector(t *testing.T) {
	irq := func(name, cpus string) node.IRQ { return node.IRQ{Name: &name, Affinity: &cpus} }
	local := "0-7"
	facts := &node.Facts{RDMA: []node.RDMA{{Name: "mlx5_0", LocalCPUs: &local, IRQs: []node.IRQ{
		irq("mlx5_async0@pci:0000:18:00.0", "0-7"), irq("mlx5_comp0@pci:0000:18:00.0", "6"), irq("mlx5_comp1@pci:0000:18:00.0", "1"),
	}}}}
	process := func(vectors ...int) *Process {
		p := &Process{Threads: []Thread{{CPUs: "0-1"}}}
		for _, v := range vectors {
			p.Transports = append(p.Transports, control.Process{Device: "mlx5_0", Conns: []control.Conn{{Lanes: []control.Lane{{Vector: v}}}}})
		}
		return p
	}
	for name, tc := range map[string]struct {
		p       *Process
		exact   bool
		cpus    string
		verdict string
	}{
		"apart":                 {process(0), true, "6", "threads and interrupts near the device; no CPU both runs a thread and takes an interrupt"},
		"on a thread's CPU":     {process(1), true, "1", "threads and interrupts near the device; CPU 1 may run a thread and take interrupts"},
		"both":                  {process(1, 0), true, "1,6", "threads and interrupts near the device; CPU 1 may run a thread and take interrupts"},
		"a vector without name": {process(5), false, "0-7", "threads and interrupts near the device; CPU 0-1 may run a thread and take interrupts"},
		"not told":              {process(), false, "0-7", "threads and interrupts near the device; CPU 0-1 may run a thread and take interrupts"},
	} {
		c := (&looker{facts: facts}).chain(tc.p, &Use{Device: "mlx5_0"})
		if c.Exact != tc.exact || c.InterruptCPUs != tc.cpus || c.Verdict != tc.verdict {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestChainWithoutInterrupts: interrupts that are not known are not said to be none.
func TestChainWithoutInterrupts(t *testing.T) {
	pci := "0000:43:00.0"
	for _, tc := range []struct {
		dev     node.RDMA
		verdict string
	}{
		{node.RDMA{Name: "d", PCI: &pci}, "; which interrupts the device has is not known"},
		{node.RDMA{Name: "d", PCI: &pci, IRQs: []node.IRQ{}}, "; the device has no interrupts of its own"},
		{node.RDMA{Name: "d"}, "; the device has no interrupts of its own"},
	} {
		c := (&looker{facts: &node.Facts{RDMA: []node.RDMA{tc.dev}}}).chain(&Process{}, &Use{Device: "d"})
		if !strings.HasSuffix(c.Verdict, tc.verdict) {
			t.Errorf("%+v: %q, want %q", tc.dev, c.Verdict, tc.verdict)
		}
	}
}
