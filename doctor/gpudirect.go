package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/gpu"
	"github.com/rdmatune/rdmatune/internal/pci"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// gpuDirect says for each pair of GPU and NIC whether the NIC can reach the GPU's
// memory: by a peer-memory module or by dma-buf, and what stands in the way.
func (e *examiner) gpuDirect() {
	var nics []node.RDMA
	for _, d := range e.Facts.RDMA {
		if hardware(d) {
			nics = append(nics, d)
		}
	}
	if len(e.Facts.GPUs) == 0 {
		return
	}
	driver := e.gpuDriver()
	if len(nics) == 0 {
		e.add(Finding{
			Check: "gpudirect", Subject: "node", Level: Problem, Evidence: driver,
			Message: param.Count(len(e.Facts.GPUs), "GPU") + " and no RDMA NIC: GPUDirect RDMA has nothing to work with",
			Why:     "GPU memory goes through host memory and TCP to other nodes", Do: "nothing, if the work stays on this node (NVLink, PCIe)",
		})
		for _, g := range e.Facts.GPUs {
			e.gpuAlone(g.PCI, driver)
		}
		return
	}
	iommu := e.iommu()
	for _, g := range e.Facts.GPUs {
		for _, d := range nics {
			e.pair(g, d, driver, iommu)
		}
	}
}

// gpuAlone says what the driver grants for a GPU that has no NIC.
func (e *examiner) gpuAlone(address string, driver []Evidence) {
	told := e.told(address)
	f := Finding{Check: "gpu", Subject: address, Level: Fine, Message: "the GPU's driver grants " + grants(told), Evidence: slices.Clone(driver)}
	if told == nil {
		f.Level, f.Message = Unknown, "what the GPU's driver grants could not be asked"
		f.Evidence = append(f.Evidence, Evidence{"libcuda.so.1", clip(e.gpuError())})
	} else {
		f.Subject += " " + clip(told.Name)
		f.Evidence = append(f.Evidence, attributes(told)...)
	}
	e.add(f)
}

func (e *examiner) gpuError() string {
	switch {
	case e.GPUErr != nil:
		return "(" + e.GPUErr.Error() + ")"
	case e.Node.Kind() != node.Local:
		return "(not asked: the node is not this machine)"
	}
	return "(this GPU is not among those that the driver lists)"
}

// told is what the GPU driver says of the GPU at an address, nil when it says nothing.
func (e *examiner) told(address string) *gpu.Device {
	i := slices.IndexFunc(e.GPUs, func(d gpu.Device) bool { return d.PCI == address })
	if i < 0 {
		return nil
	}
	return &e.GPUs[i]
}

func grants(d *gpu.Device) string {
	switch {
	case d == nil:
		return "(unknown)"
	case d.DirectRDMA && d.DMABuf:
		return "GPUDirect RDMA by a peer-memory module and by dma-buf"
	case d.DirectRDMA:
		return "GPUDirect RDMA by a peer-memory module, no dma-buf"
	case d.DMABuf:
		return "GPUDirect RDMA by dma-buf alone"
	}
	return "no GPUDirect RDMA"
}

func attributes(d *gpu.Device) []Evidence {
	return []Evidence{
		{"CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED", fmt.Sprint(d.DirectRDMA)},
		{"CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", fmt.Sprint(d.DMABuf)},
	}
}

// gpuDriver is the evidence about the GPU driver and the modules beside it.
func (e *examiner) gpuDriver() []Evidence {
	version, ok := e.read("/proc/driver/nvidia/version")
	if !ok {
		version, _ = e.read("/sys/module/nvidia/version")
	}
	out := []Evidence{version}
	for _, module := range []string{"nvidia_peermem", "nv_peer_mem"} {
		value := "not loaded"
		if e.fs.IsDir("/sys/module/" + module) {
			value = "loaded"
		}
		out = append(out, Evidence{"/sys/module/" + module, value})
	}
	return out
}

func (e *examiner) peerModule() bool {
	return e.fs.IsDir("/sys/module/nvidia_peermem") || e.fs.IsDir("/sys/module/nv_peer_mem")
}

// iommu is the evidence about the IOMMU, and whether it translates addresses.
func (e *examiner) iommu() []Evidence {
	cmdline, _ := e.fs.ReadString("/proc/cmdline")
	var words []string
	for w := range strings.FieldsSeq(cmdline) {
		if strings.Contains(w, "iommu") {
			words = append(words, w)
		}
	}
	groups, err := e.fs.ReadDir("/sys/kernel/iommu_groups")
	value := param.Count(len(groups), "group")
	if err != nil {
		value = reason(err)
	}
	return []Evidence{{"/sys/kernel/iommu_groups", value}, {"/proc/cmdline", clip(orNone(strings.Join(words, " ")))}}
}

// translates reports whether the IOMMU translates for a function: nil when not told.
func (e *examiner) translates(function string) (*bool, Evidence) {
	ev, ok := e.read("/sys/bus/pci/devices/" + function + "/iommu_group/type")
	if !ok {
		return nil, ev
	}
	return new(!strings.HasPrefix(ev.Value, "identity")), ev
}

func (e *examiner) pair(g node.GPU, d node.RDMA, driver, iommu []Evidence) {
	told := e.told(g.PCI)
	f := Finding{Check: "gpudirect", Subject: g.PCI + " and " + d.Name, Level: Fine, Evidence: slices.Clone(driver)}
	distance, bridges := e.distance(g.PCI, *d.PCI)
	crosses := map[string]string{"SYS": " (crosses the link between sockets)", "NODE": " (crosses host bridges of one socket)"}[distance]
	f.Evidence = append(f.Evidence, Evidence{"PCIe distance", distance + crosses})
	if told != nil {
		f.Evidence = append(f.Evidence, attributes(told)...)
	} else {
		f.Evidence = append(f.Evidence, Evidence{"libcuda.so.1", clip(e.gpuError())})
	}
	module := e.peerModule()
	switch {
	case told == nil && module:
		f.Message = "a peer-memory module is loaded: probably possible; the driver could not be asked"
		f.Level = Unknown
	case told == nil:
		f.Level, f.Message = Unknown, "no peer-memory module is loaded; whether the driver offers dma-buf could not be asked"
	case told.DirectRDMA && module && told.DMABuf:
		f.Message = "possible, by module and by dma-buf"
	case told.DirectRDMA && module:
		f.Message = "possible, by the peer-memory module"
	case told.DMABuf:
		f.Message = "possible by dma-buf, for programs that use it; there is no peer-memory module for others"
	case told.DirectRDMA:
		f.Level, f.Message = Problem, "the driver grants it and nothing provides it: no peer-memory module is loaded, and no dma-buf"
		f.Do = "modprobe nvidia-peermem, or use the open kernel module of the driver (dma-buf)"
	case module:
		f.Level, f.Message = Warning, "a peer-memory module is loaded, and the driver does not grant GPUDirect RDMA: they disagree"
	default:
		f.Level, f.Message = Problem, "the GPU's driver does not grant GPUDirect RDMA"
	}
	if f.Level != Fine && f.Why == "" {
		f.Why = "without it each message is copied through host memory"
	}
	if crosses != "" && f.Level == Fine {
		f.Level = Warning
		f.Message += "; but far apart (" + distance + "): a nearer NIC serves this GPU better"
		f.Why = "peer traffic between host bridges is slow, and some chip sets do not pass it on"
	}
	if on := e.acs(bridges); len(on) > 0 {
		f.Evidence = append(f.Evidence, Evidence{"ACS redirects at", strings.Join(on, ", ")})
		if f.Level == Fine {
			f.Level = Warning
			f.Message += "; but ACS sends peer traffic up to the root complex"
			f.Why, f.Do = "a switch could pass it on directly", "turn ACS off on these bridges, where no virtual machine relies on it"
		}
	}
	if on, ev := e.translates(*d.PCI); on != nil && *on {
		f.Evidence = append(f.Evidence, append([]Evidence{ev}, iommu...)...)
		if f.Level == Fine {
			f.Level = Warning
			f.Message += "; but the IOMMU translates every access"
			f.Why, f.Do = "translation costs time on every access and sends peer traffic through the root complex", "boot with iommu=pt, where no virtual machine needs more"
		}
	}
	e.add(f)
}

// distance is how far two PCI functions are apart, in the words that GPU tools use: PIX
// (one switch), PXB (several), PHB (one host bridge), NODE (one NUMA node), SYS; and
// the bridges between them.
func (e *examiner) distance(a, b string) (string, []string) {
	pathA, pathB := e.bridges(a), e.bridges(b)
	if len(pathA) == 0 || len(pathB) == 0 {
		return "(unknown)", nil
	}
	common := 0
	for common < min(len(pathA), len(pathB)) && pathA[common] == pathB[common] {
		common++
	}
	if common == 0 { // other host bridges
		if n, m := e.numaNode(a), e.numaNode(b); n != "" && n == m {
			return "NODE", nil
		}
		return "SYS", nil
	}
	between := slices.Concat(pathA[common:len(pathA)-1], pathB[common:len(pathB)-1])
	between = slices.DeleteFunc(between, func(f string) bool { return !pci.Valid(f) })
	switch {
	case common == 1: // the host bridge alone
		return "PHB", between
	case len(between) <= 2:
		return "PIX", between
	}
	return "PXB", between
}

// bridges are the elements of a function's path from its host bridge to itself:
// "pci0000:17", "0000:17:01.0", "0000:18:00.0".
func (e *examiner) bridges(function string) []string {
	real, err := e.fs.Realpath("/sys/bus/pci/devices/" + function)
	if err != nil {
		return nil
	}
	var out []string
	for elem := range strings.SplitSeq(real, "/") {
		if strings.HasPrefix(elem, "pci") && strings.Contains(elem, ":") || pci.Valid(elem) {
			out = append(out, elem)
		}
	}
	return out
}

func (e *examiner) numaNode(function string) string {
	n, err := e.fs.ReadInt("/sys/bus/pci/devices/" + function + "/numa_node")
	if err != nil || n < 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// PCI configuration space (PCI Express Base Specification): extended capabilities
// start at 0x100, each a word of id and next offset; the control register of Access
// Control Services is 6 bytes into it.
const (
	extendedStart = 0x100
	acsCapability = 0x000d
	acsControl    = 6
	acsRedirect   = 1<<2 | 1<<3 | 1<<5 // request redirect, completion redirect, egress control
	maxCaps       = 64
)

// acs returns those of the bridges at which ACS redirects peer traffic. Without
// privilege the registers are not readable, and nothing is said.
func (e *examiner) acs(bridges []string) []string {
	var on []string
	for _, b := range bridges {
		config, err := e.fs.ReadFile("/sys/bus/pci/devices/" + b + "/config")
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil
		}
		if redirects(config) {
			on = append(on, b)
		}
	}
	return on
}

// redirects reads the ACS control register of a configuration space.
func redirects(config []byte) bool {
	at := extendedStart
	for range maxCaps {
		if at < extendedStart || at+4 > len(config) {
			return false
		}
		header := binary.LittleEndian.Uint32(config[at:])
		if uint16(header) == acsCapability {
			return at+acsControl+2 <= len(config) && binary.LittleEndian.Uint16(config[at+acsControl:])&acsRedirect != 0
		}
		at = int(header >> 20)
	}
	return false
}
