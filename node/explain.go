package node

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/interrupts"
	"github.com/rdmatune/rdmatune/internal/printable"
)

// maxExplain bounds a value of Explain, in bytes.
const maxExplain = 256

// Explain returns what can explain a number measured on the device, beyond Facts: by
// name, only what the node says. Names are of the part that they are about ("cpu.model",
// "nic.psid", "gpu.driver"), values as the kernel writes them.
func (n *Node) Explain(facts *Facts, device string) map[string]string {
	x := explainer{node: n, out: map[string]string{}}
	x.cpu(facts)
	x.kernel()
	for i := range facts.RDMA {
		if r := &facts.RDMA[i]; r.Name == device {
			x.nic(r)
			x.topology(facts, r)
		}
	}
	x.gpu(facts)
	return x.out
}

// An explainer collects facts, one line each.
type explainer struct {
	node *Node
	out  map[string]string
}

func (x *explainer) put(key, value string) {
	value, _, _ = strings.Cut(strings.TrimSpace(value), "\n")
	if value = printable.Clip(value, maxExplain); value != "" {
		x.out[key] = value
	}
}

// file puts the first line of a file, if it can be read.
func (x *explainer) file(key, name string) {
	if text, err := x.node.FS().ReadString(name); err == nil {
		x.put(key, text)
	}
}

// cpu puts what /proc/cpuinfo says of the first CPU; a word that not every
// architecture has is left out.
func (x *explainer) cpu(facts *Facts) {
	text, err := x.node.FS().ReadString("/proc/cpuinfo")
	if err == nil {
		first, _, _ := strings.Cut(text, "\n\n")
		for line := range strings.Lines(first) {
			name, value, _ := strings.Cut(line, ":")
			switch strings.TrimSpace(name) {
			case "model name", "cpu": // x86 and arm64 that have one; POWER
				x.put("cpu.model", value)
			case "CPU part": // arm64: a number, with the implementer's
				x.put("cpu.part", value)
			case "CPU implementer":
				x.put("cpu.implementer", value)
			case "microcode":
				x.put("cpu.microcode", value)
			}
		}
	}
	if facts.CPUs.Online != nil {
		x.put("cpu.online", *facts.CPUs.Online)
	}
	x.put("numa.nodes", strconv.Itoa(len(facts.NUMA)))
	x.file("cpu.smt", "/sys/devices/system/cpu/smt/control")
	x.file("cpu.idle_driver", "/sys/devices/system/cpu/cpuidle/current_driver")
	if len(facts.Cpufreq) > 0 && facts.Cpufreq[0].Driver != nil {
		x.put("cpu.frequency_driver", *facts.Cpufreq[0].Driver)
	}
}

func (x *explainer) kernel() {
	x.file("kernel.command_line", "/proc/cmdline")
	x.file("kernel.version", "/proc/sys/kernel/version")
	x.file("kernel.numa_balancing", "/proc/sys/kernel/numa_balancing")
	x.file("kernel.transparent_hugepages", "/sys/kernel/mm/transparent_hugepage/enabled")
	x.file("cgroup", fmt.Sprintf("/proc/%d/cgroup", x.node.Self()))
}

func (x *explainer) nic(r *RDMA) {
	dir := rdmaDir + "/" + r.Name
	x.file("nic.psid", dir+"/board_id") // the vendor's name of the card and its configuration
	x.file("nic.model", dir+"/hca_type")
	x.file("nic.node_type", dir+"/node_type")
	x.file("nic.rate", dir+"/ports/1/rate")
	x.file("nic.link_layer", dir+"/ports/1/link_layer")
	if r.Driver != nil {
		x.file("nic.driver_version", "/sys/module/"+*r.Driver+"/version")
		x.file("nic.driver_srcversion", "/sys/module/"+*r.Driver+"/srcversion")
	}
	if len(r.Netdevs) > 0 {
		x.file("nic.mtu", netDir+"/"+r.Netdevs[0]+"/mtu")
	}
	if r.VFs != nil {
		x.put("nic.virtual_functions", strconv.Itoa(*r.VFs))
	}
	if r.PhysFn != nil {
		x.put("nic.physical_function", *r.PhysFn)
	}
	if r.PCI == nil {
		return
	}
	function := "/sys/bus/pci/devices/" + *r.PCI
	if _, ok := x.out["nic.model"]; !ok {
		vendor, err := x.node.FS().ReadString(function + "/vendor")
		part, err2 := x.node.FS().ReadString(function + "/device")
		if err == nil && err2 == nil {
			x.put("nic.model", vendor+":"+part)
		}
	}
	for _, f := range []string{"current_link_speed", "current_link_width", "max_link_speed", "max_link_width"} {
		x.file("pcie."+strings.TrimPrefix(f, "current_"), function+"/"+f)
	}
}

// topology says where the NIC and the GPUs are, in one line.
func (x *explainer) topology(facts *Facts, r *RDMA) {
	place := func(node *int) string {
		if node == nil {
			return "?"
		}
		return strconv.Itoa(*node)
	}
	text := fmt.Sprintf("%d NUMA nodes; NIC on %s", len(facts.NUMA), place(r.NUMANode))
	gpus := map[string]int{}
	for _, g := range facts.GPUs {
		gpus[place(g.NUMANode)]++
	}
	for _, n := range slices.Sorted(maps.Keys(gpus)) {
		text += fmt.Sprintf("; %d GPUs on %s", gpus[n], n)
	}
	x.put("topology", text)
}

func (x *explainer) gpu(facts *Facts) {
	if len(facts.GPUs) == 0 {
		return
	}
	x.put("gpu.count", strconv.Itoa(len(facts.GPUs)))
	x.file("gpu.driver", "/proc/driver/nvidia/version")
	pci := facts.GPUs[0].PCI
	text, err := x.node.FS().ReadString("/proc/driver/nvidia/gpus/" + pci + "/information")
	if err == nil {
		for line := range strings.Lines(text) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "Model" {
				x.put("gpu.model", value)
			}
		}
		return
	}
	vendor, err := x.node.FS().ReadString("/sys/bus/pci/devices/" + pci + "/vendor")
	part, err2 := x.node.FS().ReadString("/sys/bus/pci/devices/" + pci + "/device")
	if err == nil && err2 == nil {
		x.put("gpu.model", vendor+":"+part)
	}
}

// Activity is what the node did until now, for the difference of two moments.
type Activity struct {
	Interrupts map[string]uint64 // taken, by CPU, of the device's vectors
}

// Activity counts the interrupts that the device's vectors have taken.
func (n *Node) Activity(facts *Facts, device string) Activity {
	a := Activity{Interrupts: map[string]uint64{}}
	for _, r := range facts.RDMA {
		if r.Name != device || len(r.IRQs) == 0 {
			continue
		}
		text, err := n.FS().ReadFile("/proc/interrupts")
		if err != nil {
			return a
		}
		numbers := map[int]bool{}
		for _, q := range r.IRQs {
			numbers[q.Number] = true
		}
		maps.Copy(a.Interrupts, interrupts.Counts(text, numbers))
	}
	return a
}

// Observed says what the node did since before, and the frequencies that it shows
// now, by name.
func (n *Node) Observed(facts *Facts, device string, before Activity) map[string]string {
	out := map[string]string{}
	total := uint64(0)
	var busiest string
	var most uint64
	for cpu, count := range n.Activity(facts, device).Interrupts {
		if count < before.Interrupts[cpu] {
			continue // the vectors are others now
		}
		d := count - before.Interrupts[cpu]
		if total += d; d > most {
			most, busiest = d, cpu
		}
	}
	if len(before.Interrupts) > 0 {
		out["interrupts"] = strconv.FormatUint(total, 10)
		if most > 0 {
			out["interrupts.busiest"] = fmt.Sprintf("%s: %d", busiest, most)
		}
	}
	low, high := int64(0), int64(0)
	for _, p := range facts.Cpufreq {
		khz, err := n.FS().ReadInt("/sys/devices/system/cpu/cpufreq/" + p.Policy + "/scaling_cur_freq")
		if err != nil || khz <= 0 {
			continue
		}
		if low == 0 || khz < low {
			low = khz
		}
		high = max(high, khz)
	}
	if high > 0 {
		out["frequency"] = fmt.Sprintf("%d to %d MHz", low/1000, high/1000)
	}
	return out
}
