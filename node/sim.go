package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// simulatedVendor stands where firmware names who made a board, so that a snapshot of a
// simulated node is known for one. One that plays a virtual machine has the words of a
// hypervisor for its system, as theirs have.
const simulatedVendor = "rdmatune"

// machine describes a simulated node. It is generated, not measured: it has the
// shape of its kind of machine and nothing of its behaviour.
type machine struct {
	hostname string
	bootID   string
	nodes    []cpulist.Set // CPUs of each NUMA node
	sibling  int           // CPU n and n+sibling share a core
	policy   policy
	nics     []nic
	gpus     map[string]int // PCI function -> NUMA node
	// vendor and product are the firmware's words; "" = those of a simulated machine.
	vendor, product string
	processes       []Process
	resources       string // what the kernel lists on RDMA devices; "" = not observable
}

// policy is what all cpufreq policies of a machine have in common.
type policy struct {
	driver, governor, governors string
	min, max, base              int // kHz; base 0 = the driver has none
	table                       []int
	perCore                     bool // SMT siblings share a policy
}

type nic struct {
	pci, rdma, netdev, driver string // rdma "" = an ordinary NIC
	linkLayer, rate           string
	node                      int
	vectors                   []string // action names, by index
	vfs                       int      // virtual functions
}

// machines are the simulated nodes by name.
var machines = map[string]func() machine{"dgx": dgx, "large": large, "shared": shared, "small": small, "vm": vm}

// simulatedNames lists them, sorted.
func simulatedNames() []string { return slices.Sorted(maps.Keys(machines)) }

// simulate builds the tree of the simulated node of that name.
func simulate(name string) (*sysfs.Mem, error) {
	describe, ok := machines[name]
	if !ok {
		return nil, fmt.Errorf("there is no simulated node %.40q; there are sim:%s", name, strings.Join(simulatedNames(), ", sim:"))
	}
	return build(describe()), nil
}

// mlx5 names the vectors of an mlx5 function: one for asynchronous events, then one
// for each completion queue.
func mlx5(pci string, completions int) []string {
	names := []string{"mlx5_async0@pci:" + pci}
	for i := range completions {
		names = append(names, fmt.Sprintf("mlx5_comp%d@pci:%s", i, pci))
	}
	return names
}

// dgx has two sockets of 56 cores with SMT, and four NICs and four GPUs on each.
func dgx() machine {
	m := machine{
		hostname: "sim-dgx",
		bootID:   "5f0c2a10-6467-4278-8000-7264726d6174",
		nodes:    []cpulist.Set{span(0, 55).Union(span(112, 167)), span(56, 111).Union(span(168, 223))},
		sibling:  112,
		policy: policy{
			driver: "intel_pstate", governor: "powersave", governors: "performance powersave",
			min: 800_000, max: 3_800_000, base: 2_000_000,
		},
		gpus: map[string]int{
			"0000:1b:00.0": 0, "0000:43:00.0": 0, "0000:52:00.0": 0, "0000:61:00.0": 0,
			"0000:9d:00.0": 1, "0000:c3:00.0": 1, "0000:d1:00.0": 1, "0000:df:00.0": 1,
		},
	}
	for i, bus := range []int{0x18, 0x40, 0x4f, 0x5e, 0x9a, 0xc0, 0xce, 0xdc} {
		pci := fmt.Sprintf("0000:%02x:00.0", bus)
		m.nics = append(m.nics, nic{
			pci: pci, rdma: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("ibp%ds0", bus), driver: "mlx5_core",
			linkLayer: "InfiniBand", rate: "400 Gb/sec (4X NDR)", node: i / 4, vectors: mlx5(pci, 64),
		})
	}
	management := nic{pci: "0000:e1:00.0", netdev: "eno3", driver: "ixgbe", node: 1}
	for i := range 16 {
		management.vectors = append(management.vectors, fmt.Sprintf("eno3-TxRx-%d", i))
	}
	m.nics = append(m.nics, management)
	return m
}

// large is what size costs are measured on: two sockets of 64 cores with SMT, and sixteen
// NICs with 4,000 interrupts.
func large() machine {
	m := machine{
		hostname: "sim-large",
		bootID:   "5f0c2a10-6c61-4267-8000-7264726d6174",
		nodes:    []cpulist.Set{span(0, 63).Union(span(128, 191)), span(64, 127).Union(span(192, 255))},
		sibling:  128,
		policy: policy{
			driver: "acpi-cpufreq", governor: "schedutil", governors: "performance powersave schedutil",
			min: 1_500_000, max: 3_700_000, table: []int{3_700_000, 2_450_000, 1_500_000},
		},
	}
	for i := range 16 {
		pci := fmt.Sprintf("0000:%02x:00.0", 0x10+8*i)
		m.nics = append(m.nics, nic{
			pci: pci, rdma: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("ens%dnp0", i+1), driver: "mlx5_core",
			linkLayer: "Ethernet", rate: "400 Gb/sec (4X NDR)", node: i / 8, vectors: mlx5(pci, 249),
		})
	}
	return m
}

// small has one socket of four cores with SMT and two NICs.
func small() machine {
	m := machine{
		hostname: "sim-small",
		bootID:   "5f0c2a10-736d-416c-8000-6c7264726d61",
		nodes:    []cpulist.Set{span(0, 7)},
		sibling:  4,
		policy: policy{
			driver: "acpi-cpufreq", governor: "schedutil",
			governors: "conservative ondemand userspace powersave performance schedutil",
			min:       1_200_000, max: 3_000_000,
			table:   []int{3_000_000, 2_600_000, 2_200_000, 1_800_000, 1_200_000},
			perCore: true,
		},
	}
	for i := range 2 {
		pci := fmt.Sprintf("0000:0%d:00.0", i+1)
		m.nics = append(m.nics, nic{
			pci: pci, rdma: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("ens%df0np0", i+1), driver: "mlx5_core",
			linkLayer: "Ethernet", rate: "100 Gb/sec (4X EDR)", vectors: mlx5(pci, 4),
		})
	}
	return m
}

// vm is a virtual machine of eight CPUs with a passed-through NIC, and no cpufreq.
func vm() machine {
	const pci = "0000:00:06.0"
	return machine{
		hostname: "sim-vm", bootID: "5f0c2a10-766d-4000-8000-000000000001", vendor: "QEMU", product: "Standard PC (Q35 + ICH9, 2009)",
		nodes: []cpulist.Set{span(0, 7)}, sibling: 4,
		nics: []nic{{pci: pci, rdma: "mlx5_0", netdev: "ens6", driver: "mlx5_core", linkLayer: "Ethernet", rate: "100 Gb/sec (4X EDR)", vectors: mlx5(pci, 4)}},
	}
}

// shared is the small machine with virtual functions on its first NIC, and somebody
// else's queue pairs.
func shared() machine {
	m := small()
	m.hostname, m.bootID = "sim-shared", "5f0c2a10-7368-4000-8000-000000000001"
	m.nics[0].vfs = 4
	m.processes = []Process{{PID: 4711, Start: 900, Comm: "storaged", Cmdline: []string{"/usr/sbin/storaged"}, UID: 998}}
	m.resources = `{"devices": [{"index": 1, "name": "mlx5_0", "ports": 1}, {"index": 2, "name": "mlx5_1", "ports": 1}],
 "qps": [
  {"device": "mlx5_0", "lqpn": 1, "port": 1, "type": "GSI", "state": "RTS", "kernel": "ib_core"},
  {"device": "mlx5_0", "lqpn": 210, "rqpn": 877, "port": 1, "type": "RC", "state": "RTS", "tid": 4711},
  {"device": "mlx5_0", "lqpn": 211, "rqpn": 878, "port": 1, "type": "RC", "state": "RTS", "tid": 4711}],
 "cqs": [{"device": "mlx5_0", "cqn": 9, "cqe": 1023, "users": 4, "tid": 4711}],
 "mrs": [{"device": "mlx5_0", "mrn": 3, "bytes": 268435456, "tid": 4711}]}
`
	return m
}

// span returns the CPUs from first to last.
func span(first, last int) cpulist.Set {
	cpus := make([]int, 0, last-first+1)
	for cpu := first; cpu <= last; cpu++ {
		cpus = append(cpus, cpu)
	}
	return cpulist.New(cpus...)
}
