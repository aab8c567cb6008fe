package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/pci"
	"github.com/rdmatune/rdmatune/internal/printable"
)

const pciDir = "/sys/bus/pci/devices"

// pciFunction returns the PCI function that the device at dir belongs to, "" when to
// none: the nearest one on the device's real path, which leads over auxiliary and
// virtio devices. Captures may have a directory in place of the link, and tell the
// function by their "device" link alone.
func (s *survey) pciFunction(dir string) string {
	for _, d := range []string{dir + "/device", dir} {
		if real, err := s.fs.Realpath(d); err == nil {
			if f := pci.OfPath(real); f != "" {
				s.pciReals[f] = real[:strings.LastIndex(real, f)+len(f)]
				return f
			}
		}
	}
	return ""
}

// functionDir is the directory of a PCI function.
func (s *survey) functionDir(function string) string {
	if dir := pciDir + "/" + function; s.fs.IsDir(dir) {
		return dir
	}
	return s.pciReals[function]
}

// numaNode returns the NUMA node of a PCI function, nil and a reason at path when
// the firmware names none (-1). A virtual function without one has its parent's.
func (s *survey) numaNode(path, function string) *int {
	dir := s.functionDir(function)
	n, err := s.fs.ReadInt(dir + "/numa_node")
	if err == nil && n < 0 {
		if parent, physErr := s.fs.Realpath(dir + "/physfn"); physErr == nil {
			if pn, err := s.fs.ReadInt(parent + "/numa_node"); err == nil && pn >= 0 {
				s.why(path, "inherited from the physical function "+pci.OfPath(parent))
				n = pn
			}
		}
	}
	switch {
	case err != nil:
		s.why(path, reason(err))
		return nil
	case n < 0:
		s.why(path, dir+"/numa_node is -1: the firmware names no NUMA node")
		return nil
	case n >= 1<<16:
		s.why(path, fmt.Sprintf("%s/numa_node: %d is no node", dir, n))
		return nil
	}
	return new(int(n))
}

// localCPUs returns the online CPUs near a PCI function. The NUMA node decides where
// it has CPUs; local_cpulist stands in, except where the node is unknown: the kernel
// lists all CPUs then, which means that it does not know.
func (s *survey) localCPUs(path, function string, node *int) *string {
	listed, listErr := s.list(s.functionDir(function) + "/local_cpulist")
	if listErr != nil {
		if mask, err := s.fs.ReadString(s.functionDir(function) + "/local_cpus"); err == nil {
			listed, listErr = cpulist.ParseMask(mask)
		}
	}
	if !s.online.IsEmpty() {
		listed = listed.Intersection(s.online)
	}
	if node == nil {
		return s.localWithoutNode(path, listed, listErr)
	}
	cpus := s.numa[*node]
	switch {
	case !cpus.IsEmpty():
		if listErr == nil && !listed.IsEmpty() && !listed.Equals(cpus) && !listed.IsSubsetOf(cpus) {
			s.why(path, fmt.Sprintf("local_cpulist says %s, NUMA node %d has %s; the node is followed",
				cpulist.Format(listed), *node, cpulist.Format(cpus)))
		}
		return formatted(cpus)
	case listErr == nil && !listed.IsEmpty():
		s.why(path, fmt.Sprintf("NUMA node %d has no online CPU; local_cpulist is followed", *node))
		return formatted(listed)
	}
	s.why(path, fmt.Sprintf("NUMA node %d has no online CPU", *node))
	return nil
}

// localWithoutNode is localCPUs of a function whose NUMA node is unknown: with one
// NUMA node at most, all CPUs are equally near.
func (s *survey) localWithoutNode(path string, listed cpulist.Set, listErr error) *string {
	withCPUs := 0
	for _, cpus := range s.numa {
		if !cpus.IsEmpty() {
			withCPUs++
		}
	}
	switch {
	case withCPUs <= 1 && !s.online.IsEmpty():
		return formatted(s.online)
	case listErr == nil && !listed.IsEmpty() && !s.online.IsEmpty() && !listed.Equals(s.online):
		return formatted(listed)
	}
	s.why(path, "its NUMA node is not known")
	return nil
}

// driverOf returns the name of the kernel driver that the device at dir is bound to.
func (s *survey) driverOf(path, dir string) *string {
	target, err := s.fs.Readlink(dir + "/driver")
	if err != nil {
		s.why(path, reason(err))
		return nil
	}
	return new(printable.Line(target[strings.LastIndex(target, "/")+1:]))
}

// netdevs reads the network devices of the node's own namespace.
func (s *survey) netdevs() {
	names, err := s.deviceNames("netdevs", netDir)
	if err != nil {
		s.why("netdevs", reason(err))
		return
	}
	s.facts.Netdevs = []Netdev{}
	for _, name := range names {
		dir := "/sys/class/net/" + name
		path := "netdevs." + name + "."
		d := Netdev{Name: name}
		if function := s.pciFunction(dir); function != "" {
			d.PCI = &function
			d.NUMANode = s.numaNode(path+"numa_node", function)
			d.Driver = s.driverOf(path+"driver", dir+"/device")
		} else {
			for _, fact := range []string{"pci", "numa_node", "driver"} {
				s.why(path+fact, "not a PCI device")
			}
		}
		s.facts.Netdevs = append(s.facts.Netdevs, d)
	}
}

// gpus reads the PCI functions that compute: 3D controllers of any maker, and the
// classes under which NVIDIA and AMD sell theirs (VGA 0300; AMD also display 0380
// and processing accelerator 1200), which are a server's plain screen otherwise.
func (s *survey) gpus() {
	names, err := s.fs.ReadDir(pciDir)
	if err != nil {
		s.why("gpus", reason(err))
		return
	}
	s.facts.GPUs = []GPU{}
	var doubtful []string
	for _, name := range names {
		if !pci.Valid(name) {
			continue
		}
		is, doubt := s.isGPU(pciDir + "/" + name)
		if doubt {
			doubtful = append(doubtful, name)
		}
		if !is {
			continue
		}
		node := s.numaNode("gpus."+name+".numa_node", name)
		s.facts.GPUs = append(s.facts.GPUs, GPU{
			PCI: name, NUMANode: node, LocalCPUs: s.localCPUs("gpus."+name+".local_cpus", name, node),
		})
	}
	s.gpusLeftOut(doubtful)
	slices.SortFunc(s.facts.GPUs, func(a, b GPU) int { return strings.Compare(a.PCI, b.PCI) })
}

// gpuClasses are the PCI classes of GPUs, with the makers that sell GPUs under them: nil
// for all. Some of those devices are a plain screen's, when another made them.
var gpuClasses = map[string][]string{
	"0302": nil,
	"0300": {"0x10de", "0x1002"},
	"0380": {"0x1002"},
	"1200": {"0x1002"},
}

// isGPU reports whether the function at dir computes; doubtful when its class leaves that
// to its maker, who cannot be read.
func (s *survey) isGPU(dir string) (is, doubtful bool) {
	class := s.optional(dir + "/class") // "0x030200"
	if len(class) != 8 {
		return false, false
	}
	makers, ok := gpuClasses[class[2:6]]
	if !ok || makers == nil {
		return ok, false
	}
	vendor := s.optional(dir + "/vendor")
	return slices.Contains(makers, vendor), vendor == ""
}

// gpusLeftOut notes the functions that may be GPUs, of which the list has none.
func (s *survey) gpusLeftOut(functions []string) {
	const most = 3
	if len(functions) == 0 {
		return
	}
	slices.Sort(functions)
	text := strings.Join(functions[:min(len(functions), most)], ", ")
	if more := len(functions) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	s.why("gpus", "display devices and accelerators whose vendor cannot be read are left out: "+text)
}
