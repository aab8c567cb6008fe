package node

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// builder writes the files of a simulated machine.
type builder struct {
	*sysfs.Mem
	machine
	cpus       cpulist.Set
	interrupts strings.Builder // /proc/interrupts below its header
	counters   string          // of one row
	local      []locality      // of each NUMA node
	irq        int             // next interrupt number
}

// locality is the CPUs of one NUMA node in the forms in which files show them.
type locality struct {
	cpus       []int
	list, mask string
}

// firstIRQ is the first interrupt number of a NIC: those below belong to what every
// machine has.
const firstIRQ = 120

// build returns the tree of m.
func build(m machine) *sysfs.Mem {
	b := &builder{Mem: sysfs.NewMem(), machine: m, cpus: cpulist.New(), irq: firstIRQ}
	for _, cpus := range m.nodes {
		b.cpus = b.cpus.Union(cpus)
	}
	b.counters = strings.Repeat("          0", b.cpus.Size())
	for _, cpus := range m.nodes {
		b.local = append(b.local, locality{cpus.List(), cpulist.Format(cpus), cpulist.FormatMask(cpus, b.cpus.Size())})
	}
	for _, n := range m.nics {
		b.interrupts.Grow(len(n.vectors) * (len(b.counters) + 80))
	}
	b.system()
	b.processors()
	for _, n := range m.nics {
		b.nic(n)
	}
	for _, pci := range slices.Sorted(maps.Keys(m.gpus)) {
		b.function(pci, "0x10de", "0x030200", m.gpus[pci], "nvidia")
	}
	header := strings.Repeat(" ", 5)
	for _, cpu := range b.cpus.List() {
		header += fmt.Sprintf("%11s", "CPU"+strconv.Itoa(cpu))
	}
	b.File("/proc/interrupts", header+"\n"+b.interrupts.String())
	return b.Mem
}

// put writes text and a newline, as the kernel does.
func (b *builder) put(dir string, files map[string]string) {
	for name, text := range files {
		b.File(path.Join(dir, name), text+"\n")
	}
}

// readOnly is put for files that the kernel lets nobody write.
func (b *builder) readOnly(dir string, files map[string]string) {
	for name, text := range files {
		b.FileMode(path.Join(dir, name), 0o444, text+"\n")
	}
}

// system writes what tells of the machine as a whole.
func (b *builder) system() {
	all := cpulist.Format(b.cpus)
	b.readOnly("/proc", map[string]string{
		"cmdline":                   "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro",
		"sys/kernel/hostname":       b.hostname,
		"sys/kernel/osrelease":      "6.12.0-sim",
		"sys/kernel/random/boot_id": b.bootID,
		"self/status":               "Name:\trdmatune\nCpus_allowed_list:\t" + all,
		"self/cgroup":               "0::/",
		"irq/default_smp_affinity":  cpulist.FormatMask(b.cpus, b.cpus.Size()),
	})
	b.readOnly("/sys/class/dmi/id", map[string]string{
		"sys_vendor": cmp.Or(b.vendor, simulatedVendor), "product_name": cmp.Or(b.product, "simulated node"), "board_vendor": simulatedVendor,
	})
	for _, p := range b.machine.processes {
		show(b.Mem, p, all)
	}
	if b.resources != "" {
		b.File(resourcesFile, b.resources)
	}
	b.readOnly(cpuDir, map[string]string{
		"online": all, "present": all, "possible": all, "offline": "", "isolated": "",
		"kernel_max": "8191", "smt/active": "1", "smt/control": "on",
	})
	for id, local := range b.local {
		b.readOnly(fmt.Sprintf("%s/node%d", nodeDir, id), map[string]string{"cpulist": local.list, "cpumap": local.mask})
	}
	list := "0"
	if len(b.nodes) > 1 {
		list += "-" + strconv.Itoa(len(b.nodes)-1)
	}
	b.readOnly(nodeDir, map[string]string{"online": list, "has_cpu": list})
}

// processors writes the CPUs, their topology and their cpufreq policies.
func (b *builder) processors() {
	switch b.policy.driver {
	case "":
	case "intel_pstate":
		b.put(cpuDir+"/intel_pstate", map[string]string{"no_turbo": "0"})
	default:
		b.put(cpuDir+"/cpufreq", map[string]string{"boost": "1"})
	}
	for id, cpus := range b.nodes {
		for _, cpu := range cpus.List() {
			core := cpu % b.sibling
			pair := cpulist.Format(cpulist.New(core, core+b.sibling))
			dir := fmt.Sprintf("%s/cpu%d", cpuDir, cpu)
			b.readOnly(dir+"/topology", map[string]string{
				"thread_siblings_list": pair, "core_cpus_list": pair,
				"physical_package_id": strconv.Itoa(id), "core_id": strconv.Itoa(core),
			})
			if cpu != 0 { // x86 cannot take CPU 0 off line
				b.File(dir+"/online", "1\n")
			}
			b.File(dir+"/power/pm_qos_resume_latency_us", "0\n")
			b.Link(fmt.Sprintf("%s/node%d", dir, id), fmt.Sprintf("../../node/node%d", id))
			if b.policy.driver == "" {
				continue
			}
			owner, covers := cpu, strconv.Itoa(cpu)
			if b.policy.perCore {
				owner, covers = core, fmt.Sprintf("%d %d", core, core+b.sibling)
			}
			b.Link(dir+"/cpufreq", fmt.Sprintf("../cpufreq/policy%d", owner))
			if owner == cpu {
				b.cpufreq(fmt.Sprintf("%s/cpufreq/policy%d", cpuDir, owner), covers)
			}
		}
	}
}

func (b *builder) cpufreq(dir, covers string) {
	p := b.policy
	b.readOnly(dir, map[string]string{
		"affected_cpus": covers, "related_cpus": covers,
		"cpuinfo_min_freq": strconv.Itoa(p.min), "cpuinfo_max_freq": strconv.Itoa(p.max),
		"scaling_driver": p.driver, "scaling_available_governors": p.governors, "scaling_cur_freq": strconv.Itoa(p.min),
	})
	b.put(dir, map[string]string{
		"scaling_governor": p.governor, "scaling_min_freq": strconv.Itoa(p.min),
		"scaling_max_freq": strconv.Itoa(p.max), "scaling_setspeed": "<unsupported>",
	})
	if p.base != 0 {
		b.readOnly(dir, map[string]string{"base_frequency": strconv.Itoa(p.base)})
	}
	if p.driver == "intel_pstate" {
		b.readOnly(dir, map[string]string{"energy_performance_available_preferences": "default performance balance_performance balance_power power"})
		b.put(dir, map[string]string{"energy_performance_preference": "balance_performance"})
	}
	if len(p.table) > 0 {
		words := ""
		for _, khz := range p.table {
			words += strconv.Itoa(khz) + " " // the kernel leaves the blank at the end, too
		}
		b.readOnly(dir, map[string]string{"scaling_available_frequencies": words})
	}
}

// function writes a PCI function below its root bridge and returns its directory.
func (b *builder) function(pci, vendor, class string, node int, driver string) string {
	bridge := "pci" + pci[:len("0000:18")]
	dir := "/sys/devices/" + bridge + "/" + pci
	b.readOnly(dir, map[string]string{
		"vendor": vendor, "class": class, "irq": "16",
		"local_cpulist": b.local[node].list, "local_cpus": b.local[node].mask,
	})
	b.put(dir, map[string]string{"numa_node": strconv.Itoa(node)})
	b.Link(dir+"/driver", "../../../bus/pci/drivers/"+driver)
	b.Dir("/sys/bus/pci/drivers/" + driver)
	b.Link("/sys/bus/pci/devices/"+pci, "../../../devices/"+bridge+"/"+pci)
	return dir
}

func (b *builder) nic(n nic) {
	vendor, class := "0x15b3", "0x020000"
	if n.linkLayer == "InfiniBand" {
		class = "0x020700"
	}
	if n.rdma == "" {
		vendor = "0x8086"
	}
	dir := b.function(n.pci, vendor, class, n.node, n.driver)
	b.readOnly(dir+"/net/"+n.netdev, map[string]string{"ifindex": strconv.Itoa(2 + slices.IndexFunc(b.nics, func(o nic) bool { return o.pci == n.pci })), "operstate": "up", "dev_port": "0"})
	b.Link(dir+"/net/"+n.netdev+"/device", "../../../"+n.pci)
	b.Link("/sys/class/net/"+n.netdev, "../.."+strings.TrimPrefix(dir, "/sys")+"/net/"+n.netdev)
	b.put(coalesceDir(n.netdev), map[string]string{
		"adaptive_rx": "on", "adaptive_tx": "on", "rx_usecs": "8", "rx_frames": "128", "tx_usecs": "8", "tx_frames": "128",
	})
	for index, action := range n.vectors {
		b.vector(n, dir, index, action)
	}
	if n.rdma == "" {
		return
	}
	if n.vfs > 0 {
		b.readOnly(dir, map[string]string{"sriov_numvfs": strconv.Itoa(n.vfs)})
	}
	ib := dir + "/infiniband/" + n.rdma
	b.readOnly(ib, map[string]string{"fw_ver": "28.39.1002", "node_type": "1: CA", "board_id": "SIM0000000001", "hca_type": "MT4129"})
	b.readOnly(ib+"/ports/1", map[string]string{
		"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": n.rate, "link_layer": n.linkLayer,
	})
	if n.linkLayer == "Ethernet" {
		b.readOnly(ib+"/ports/1/gid_attrs/ndevs", map[string]string{"0": n.netdev})
	}
	b.Link(ib+"/device", "../../../"+n.pci)
	b.Link("/sys/class/infiniband/"+n.rdma, "../.."+strings.TrimPrefix(ib, "/sys"))
}

// vector writes one interrupt: its place in the function, its affinity (the NIC's
// NUMA node, as drivers leave it) and its row.
func (b *builder) vector(n nic, dir string, index int, action string) {
	local := b.local[n.node]
	taken := cpulist.New(local.cpus[index%len(local.cpus)])
	irq := fmt.Sprintf("/proc/irq/%d", b.irq)
	b.put(irq, map[string]string{"smp_affinity": local.mask, "smp_affinity_list": local.list})
	b.readOnly(irq, map[string]string{
		"effective_affinity": cpulist.FormatMask(taken, b.cpus.Size()), "effective_affinity_list": cpulist.Format(taken),
		"node": strconv.Itoa(n.node),
	})
	b.Dir(irq + "/" + action)
	b.FileMode(fmt.Sprintf("%s/msi_irqs/%d", dir, b.irq), 0o444, "msix\n")
	fmt.Fprintf(&b.interrupts, "%4d:%s  IR-PCI-MSIX-%s %4d-edge      %s\n", b.irq, b.counters, n.pci, index, action)
	b.irq++
}
