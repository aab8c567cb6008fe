package node

// Facts is what was found on a node: the contract behind `rdmatune facts --json`
// and the value of `node` in a spec. CPU sets are canonical kernel lists
// ("0-3,8"; "" is the empty set). A nil pointer or slice is unknown, never zero;
// Why says why, by JSON path.
type Facts struct {
	FormatVersion string   `json:"format_version"` // "1.0"; minor = more fields, major = changed meaning
	Hostname      *string  `json:"hostname"`
	Kernel        *string  `json:"kernel"` // release, as uname -r
	CPUs          CPUs     `json:"cpus"`
	NUMA          []NUMA   `json:"numa"`
	RDMA          []RDMA   `json:"rdma"`
	Netdevs       []Netdev `json:"netdevs"`
	GPUs          []GPU    `json:"gpus"`
	// PState is intel_pstate's limits for all CPUs; nil where that driver is not in charge.
	PState  *PState  `json:"intel_pstate,omitempty"`
	Cpufreq []Policy `json:"cpufreq"` // empty: no cpufreq on this node

	// Simulated is true for a built-in node and a snapshot of one: nothing measured there
	// says anything of hardware.
	Simulated bool `json:"simulated"`
	// Virtualised names the hypervisor when the node is a virtual machine, "" when
	// it is not, nil when it could not be told.
	Virtualised *string `json:"virtualised"`
	// Why maps a JSON path ("rdma.mlx5_0.numa_node"; "*" stands for all items of a list)
	// to the reason that it is null, or to what is doubtful about it.
	Why map[string]string `json:"why,omitempty"`
}

// CPUs are the node's CPU sets.
type CPUs struct {
	Online   *string `json:"online"`
	Offline  *string `json:"offline"`
	Possible *string `json:"possible"`
	Isolated *string `json:"isolated"` // isolcpus domain and isolated cpuset partitions
	Allowed  *string `json:"allowed"`  // what rdmatune's own cpuset lets it use
	// Cores maps every online CPU to its whole core, siblings included, as a list:
	// "0" -> "0,56". Without topology a CPU is its own core.
	Cores map[string]string `json:"cores"`
}

// NUMA is one node with an id as the kernel labels it; CPUs may be empty (memory only).
type NUMA struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"` // online ones only
}

// RDMA is one RDMA device.
type RDMA struct {
	Name      string   `json:"name"`
	PCI       *string  `json:"pci"`
	NUMANode  *int     `json:"numa_node"` // nil also where the kernel says -1
	LocalCPUs *string  `json:"local_cpus"`
	Netdevs   []string `json:"netdevs"`
	Driver    *string  `json:"driver"`
	Firmware  *string  `json:"firmware"`
	LinkLayer *string  `json:"link_layer"`
	State     *string  `json:"state"` // of port 1: ACTIVE, DOWN, INIT
	// PhysFn is the physical function when the device is a virtual one; nil when not.
	PhysFn *string `json:"physfn,omitempty"`
	// VFs counts the virtual functions of the device's function; nil when it has no SR-IOV.
	VFs  *int  `json:"vfs,omitempty"`
	IRQs []IRQ `json:"irqs"`
}

// IRQ is one interrupt vector of a device.
type IRQ struct {
	Key      string  `json:"key"`    // PCI function and MSI-X index: "0000:18:00.0/3"
	Number   int     `json:"number"` // this boot's number: not an identity
	Name     *string `json:"name"`   // action name, nil when no handler is installed
	Affinity *string `json:"affinity"`
	Managed  *bool   `json:"managed"` // affinity is the kernel's own
}

// Netdev is one network device.
type Netdev struct {
	Name     string  `json:"name"`
	PCI      *string `json:"pci"`
	NUMANode *int    `json:"numa_node"`
	Driver   *string `json:"driver"`
}

// GPU is one GPU by its PCI function.
type GPU struct {
	PCI       string  `json:"pci"`
	NUMANode  *int    `json:"numa_node"`
	LocalCPUs *string `json:"local_cpus"`
}

// PState is what intel_pstate limits all CPUs to, beside their policies.
type PState struct {
	NoTurbo    *bool `json:"no_turbo"`
	MaxPerfPct *int  `json:"max_perf_pct"` // percent of the highest frequency
}

// Policy is one cpufreq policy. Frequencies are kHz.
type Policy struct {
	Policy         string  `json:"policy"` // "policy0"
	CPUs           *string `json:"cpus"`   // affected, online
	Driver         *string `json:"driver"`
	Governor       *string `json:"governor"`
	MinKHz         *int64  `json:"min_khz"`
	MaxKHz         *int64  `json:"max_khz"`
	HardwareMinKHz *int64  `json:"hardware_min_khz"`
	HardwareMaxKHz *int64  `json:"hardware_max_khz"`
	BaseKHz        *int64  `json:"base_khz"` // base_frequency, nil where the driver has none
	// AvailableKHz are the only frequencies the policy can hold, ascending; nil where
	// any value in the range is accepted.
	AvailableKHz []int64  `json:"available_khz"`
	Governors    []string `json:"governors"`
	// EnergyPreferences are those offered; nil where the driver has none.
	EnergyPreferences []string `json:"energy_preferences"`
}
