package node

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/interrupts"
	"github.com/rdmatune/rdmatune/internal/natural"
	"github.com/rdmatune/rdmatune/internal/pci"
	"github.com/rdmatune/rdmatune/internal/printable"
)

const (
	rdmaDir = "/sys/class/infiniband"
	netDir  = "/sys/class/net"
)

// rdma reads the RDMA devices, whatever they are called.
func (s *survey) rdma() {
	names, err := s.deviceNames("rdma", rdmaDir)
	if err != nil {
		s.why("rdma", reason(err))
		s.facts.RDMA = []RDMA{}
		return
	}
	s.facts.RDMA = make([]RDMA, 0, len(names)+1)
	for _, name := range names {
		s.facts.RDMA = append(s.facts.RDMA, s.rdmaDevice(name))
	}
}

func (s *survey) rdmaDevice(name string) RDMA {
	dir, path := rdmaDir+"/"+name, "rdma."+name+"."
	d := RDMA{
		Name:      name,
		Firmware:  s.text(path+"firmware", dir+"/fw_ver"),
		LinkLayer: s.text(path+"link_layer", dir+"/ports/1/link_layer"),
		State:     s.text(path+"state", dir+"/ports/1/state"),
	}
	if d.State != nil { // "4: ACTIVE"
		_, word, ok := strings.Cut(*d.State, ":")
		if ok {
			d.State = new(strings.TrimSpace(word))
		}
	}
	function := s.pciFunction(dir)
	d.Netdevs = s.rdmaNetdevs(dir, function)
	if function == "" && len(d.Netdevs) > 0 {
		// A software device runs on its netdev's hardware.
		function = s.pciFunction(netDir + "/" + d.Netdevs[0])
	}
	d.Driver = s.rdmaDriver(path+"driver", dir)
	if function == "" {
		for _, fact := range []string{"pci", "numa_node", "local_cpus", "irqs"} {
			s.why(path+fact, "neither the device nor its netdev is a PCI function")
		}
		return d
	}
	d.PCI = &function
	d.NUMANode = s.numaNode(path+"numa_node", function)
	d.LocalCPUs = s.localCPUs(path+"local_cpus", function, d.NUMANode)
	if parent, err := s.fs.Realpath(s.functionDir(function) + "/physfn"); err == nil {
		d.PhysFn = new(pci.OfPath(parent))
	}
	if n, err := s.fs.ReadInt(s.functionDir(function) + "/sriov_numvfs"); err == nil && n >= 0 && n <= 1<<16 {
		d.VFs = new(int(n))
	}
	d.IRQs = s.deviceIRQs(path+"irqs", function, &d)
	return d
}

// deviceIRQs returns the vectors of all functions of an RDMA device, nil when none are
// listed and the table that could name one cannot be read.
func (s *survey) deviceIRQs(path, function string, d *RDMA) []IRQ {
	irqs := []IRQ{}
	for _, f := range s.functions(function, d.Netdevs) {
		irqs = append(irqs, s.irqs(path, f, d.Driver)...)
	}
	switch {
	case len(irqs) > 0:
	case s.rowsErr != nil:
		s.why(path, interrupts.MSIDir(function)+" names no interrupt of it, and "+reason(s.rowsErr))
		return nil
	default:
		s.why(path, "neither "+interrupts.MSIDir(function)+" nor /proc/interrupts names an interrupt of it")
	}
	return irqs
}

// rdmaDriver returns the driver of the device: of its parent, or that of a software
// device, which has none but names its netdev in "parent".
func (s *survey) rdmaDriver(path, dir string) *string {
	if s.fs.Exists(dir+"/device/driver") || !s.fs.Exists(dir+"/parent") {
		return s.driverOf(path, dir+"/device")
	}
	return new("rdma_rxe")
}

// representor is the phys_port_name of a switch port that stands for a function,
// which is no netdev of the RDMA device itself.
var representor = regexp.MustCompile(`^(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+$`)

// maxPorts bounds the ports of an RDMA device and the GID entries looked at; a
// netdev shows up in the first few.
const (
	maxPorts = 16
	maxGIDs  = 8
)

// rdmaNetdevs returns the netdevs of an RDMA device: those that its GIDs belong to,
// and those of its PCI function. It is empty for InfiniBand without IPoIB.
func (s *survey) rdmaNetdevs(dir, function string) []string {
	names := []string{}
	add := func(name string) {
		if netdevName(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	ports, err := s.fs.Numbered(dir+"/ports", "")
	if err == nil {
		for _, port := range ports[:min(len(ports), maxPorts)] {
			for gid := range maxGIDs {
				add(s.optional(dir + "/ports/" + strconv.Itoa(port) + "/gid_attrs/ndevs/" + strconv.Itoa(gid)))
			}
		}
	}
	if function != "" {
		devs, err := s.dirNames(s.functionDir(function) + "/net")
		for _, name := range devs {
			if err == nil && !representor.MatchString(s.optional(netDir+"/"+name+"/phys_port_name")) {
				add(name)
			}
		}
	}
	if len(names) == 0 && function == "" {
		add(s.optional(dir + "/parent")) // rxe without a GID: its port is down
	}
	slices.SortStableFunc(names, natural.Compare)
	return names
}

// functions returns the PCI functions that serve an RDMA device: its own, and, when
// it stands for a bond, those of the bond's other members that have no RDMA device
// of their own.
func (s *survey) functions(own string, netdevs []string) []string {
	all := []string{own}
	for _, dev := range netdevs {
		bond := netDir + "/" + dev
		if master, err := s.fs.Realpath(bond + "/master"); err == nil {
			bond = master
		}
		for slave := range strings.FieldsSeq(s.optional(bond + "/bonding/slaves")) {
			if netdevName(slave) != nil {
				continue
			}
			f := s.pciFunction(netDir + "/" + slave)
			if f != "" && !slices.Contains(all, f) && !s.fs.IsDir(s.functionDir(f)+"/infiniband") {
				all = append(all, f)
			}
		}
	}
	return all
}

// irqs returns the vectors of a PCI function. irdma shares its function with the
// Ethernet driver: only its own vectors count where they can be told.
func (s *survey) irqs(path, function string, driver *string) []IRQ {
	vectors := interrupts.Vectors(s.fs, function, s.rows)
	isOther := func(v interrupts.Vector) bool { return !strings.HasPrefix(v.Action, "irdma") }
	if driver != nil && *driver == "irdma" && !allOf(vectors, isOther) {
		vectors = slices.DeleteFunc(vectors, isOther)
	}
	irqs := make([]IRQ, len(vectors))
	for i, v := range vectors {
		irqs[i] = IRQ{Key: v.Key(), Number: v.Number}
		if v.Action != "" {
			irqs[i].Name = new(printable.Line(v.Action))
		}
		cpus, managed, err := interrupts.Affinity(s.fs, v.Number)
		if err != nil {
			s.why(path+".affinity", reason(err))
			continue
		}
		irqs[i].Affinity = formatted(cpus)
		if managed || s.tellsManaged() {
			irqs[i].Managed = &managed
		} else {
			s.why(path+".managed", "only Linux 6.12 and later tell")
		}
	}
	return irqs
}

// tellsManaged reports whether the kernel makes the affinity file of an interrupt
// that it places itself read-only, as 6.12 and later do.
func (s *survey) tellsManaged() bool {
	if s.facts.Kernel == nil {
		return false
	}
	var x, y int
	_, _ = fmt.Sscanf(*s.facts.Kernel, "%d.%d", &x, &y) // what does not parse is old
	return x > 6 || x == 6 && y >= 12
}

func allOf(vectors []interrupts.Vector, holds func(interrupts.Vector) bool) bool {
	return !slices.ContainsFunc(vectors, func(v interrupts.Vector) bool { return !holds(v) })
}

// softName is the RDMA device that rdmatune's own software provider offers on every
// machine that it runs on.
const softName = "soft0"

// soft adds that device. It has no hardware; every CPU is as near as another.
func (s *survey) soft() {
	if slices.ContainsFunc(s.facts.RDMA, func(d RDMA) bool { return d.Name == softName }) {
		return
	}
	d := RDMA{Name: softName, Driver: new("soft"), Netdevs: []string{"lo"}, IRQs: []IRQ{}, State: new("ACTIVE")}
	if !s.online.IsEmpty() {
		d.LocalCPUs = new(cpulist.Format(s.online))
	}
	for _, fact := range []string{"pci", "numa_node", "firmware", "link_layer"} {
		s.why("rdma."+softName+"."+fact, "software device")
	}
	s.facts.RDMA = append(s.facts.RDMA, d)
	slices.SortStableFunc(s.facts.RDMA, func(a, b RDMA) int { return natural.Compare(a.Name, b.Name) })
}
