package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/interrupts"
	"github.com/rdmatune/rdmatune/internal/natural"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// factsVersion is the version of the contract in facts.go.
const factsVersion = "1.0"

const (
	cpuDir  = "/sys/devices/system/cpu"
	nodeDir = "/sys/devices/system/node"
)

// A survey collects the facts of a node. What it cannot read it leaves null and
// notes why: one bad file never costs more than its own fact.
type survey struct {
	fs    sysfs.FS
	facts *Facts

	online   cpulist.Set         // from facts.CPUs.Online; empty when that is unknown
	numa     map[int]cpulist.Set // online CPUs of each NUMA node; nil without any
	rows     []interrupts.Row
	rowsErr  error             // why there are no rows
	pciReals map[string]string // PCI function -> its directory
}

// Facts reads the node's facts anew. Lists are in the order of names and numbers;
// the error is ctx's.
func (n *Node) Facts(ctx context.Context) (*Facts, error) {
	tree := n.FS()
	// It is read of every node, so that a snapshot has it.
	simulated := ofSimulated(tree) && n.kind != Local || n.kind == Simulated
	s := &survey{
		fs:       tree,
		facts:    &Facts{FormatVersion: factsVersion, Simulated: simulated, Why: map[string]string{}},
		pciReals: map[string]string{},
	}
	steps := []func(){s.system, s.processors, s.numaNodes, s.interruptTable, s.netdevs, s.rdma, s.gpus, s.cpufreq}
	if n.kind == Local {
		steps = append(steps, s.soft)
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		step()
	}
	return s.facts, nil
}

// why notes the reason that the fact at path is null, or what is to be said of it.
func (s *survey) why(path, reason string) {
	if _, said := s.facts.Why[path]; !said {
		s.facts.Why[path] = printable.Line(reason)
	}
}

// reason is err as a Why text: the path and what the kernel said.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

// text returns the content of a file as one printable line, nil and a reason at path when
// it has none.
func (s *survey) text(path, file string) *string {
	t, err := s.fs.ReadString(file)
	switch {
	case err != nil:
		s.why(path, reason(err))
		return nil
	case t == "":
		s.why(path, file+": empty")
		return nil
	}
	return new(printable.Line(t))
}

// khz returns the positive integer of a cpufreq file.
func (s *survey) khz(path, file string) *int64 {
	n, err := s.fs.ReadInt(file)
	if err == nil && n <= 0 {
		err = errors.New(file + ": not a frequency")
	}
	if err != nil {
		s.why(path, reason(err))
		return nil
	}
	return &n
}

// list reads a file that holds a CPU list.
func (s *survey) list(file string) (cpulist.Set, error) {
	t, err := s.fs.ReadString(file)
	if err != nil {
		return cpulist.New(), err
	}
	set, err := cpulist.ParseKernel(t)
	if err != nil {
		return cpulist.New(), errors.New(file + ": " + err.Error())
	}
	return set, nil
}

// listFact is list as a fact.
func (s *survey) listFact(path, file string) *string {
	set, err := s.list(file)
	if err != nil {
		s.why(path, reason(err))
		return nil
	}
	return formatted(set)
}

func formatted(set cpulist.Set) *string {
	t := cpulist.Format(set)
	return &t
}

// system reads what tells of the node as a whole.
func (s *survey) system() {
	s.facts.Hostname = s.text("hostname", "/proc/sys/kernel/hostname")
	s.facts.Kernel = s.text("kernel", "/proc/sys/kernel/osrelease")
	if s.facts.Kernel == nil {
		// "Linux version 6.1.0-13-amd64 (...)"
		if words := strings.Fields(s.optional("/proc/version")); len(words) > 2 && words[1] == "version" {
			s.facts.Kernel = new(printable.Line(words[2]))
			delete(s.facts.Why, "kernel")
		}
	}
	s.facts.Virtualised = s.hypervisor()
}

// ofSimulated reports whether a capture is of a simulated node.
func ofSimulated(tree sysfs.FS) bool {
	for _, file := range []string{"board_vendor", "sys_vendor"} {
		if vendor, err := tree.ReadString("/sys/class/dmi/id/" + file); err == nil && vendor == simulatedVendor {
			return true
		}
	}
	return false
}

// optional returns the content of a file that need not be there.
func (s *survey) optional(file string) string {
	t, err := s.fs.ReadString(file)
	if err != nil {
		return ""
	}
	return t
}

// hypervisors tells by the first words of the firmware's vendor (sys_vendor of DMI)
// and product who made the machine. An empty name is real hardware of a maker that
// also makes virtual machines.
var hypervisors = []struct{ vendor, product, name string }{
	{"Amazon EC2", "*.metal", ""},
	{"Amazon EC2", "*", "Amazon EC2"},
	{"Google", "Google Compute Engine*", "Google Compute Engine"},
	{"Microsoft Corporation", "Virtual Machine*", "Hyper-V"},
	{"QEMU", "*", "QEMU"},
	{"VMware, Inc.", "*", "VMware"},
	{"Xen", "*", "Xen"},
	{"innotek GmbH", "*", "VirtualBox"},
	{"Alibaba Cloud", "*", "Alibaba Cloud"},
	{"OpenStack Foundation", "*", "OpenStack"},
	{"Red Hat", "KVM*", "KVM"},
}

// hypervisor tells whether the node is a virtual machine: by its firmware's words,
// then by the flag that x86 processors show to guests only.
func (s *survey) hypervisor() *string {
	vendor, product := s.optional("/sys/class/dmi/id/sys_vendor"), s.optional("/sys/class/dmi/id/product_name")
	for _, h := range hypervisors {
		if vendor == h.vendor && matchesWord(h.product, product) {
			return &h.name
		}
	}
	info := s.optional("/proc/cpuinfo")
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "flags" {
			if slices.Contains(strings.Fields(value), "hypervisor") {
				return new("unknown hypervisor")
			}
			return new("")
		}
	}
	if vendor != "" {
		return new("")
	}
	s.why("virtualised", "neither DMI nor /proc/cpuinfo tells")
	return nil
}

// matchesWord matches a pattern with one '*' at its start or end.
func matchesWord(pattern, word string) bool {
	if rest, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(word, rest)
	}
	if rest, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(word, rest)
	}
	return word == pattern
}

// interruptTable reads /proc/interrupts for all devices at once.
func (s *survey) interruptTable() {
	s.rows, s.rowsErr = interrupts.Table(s.fs)
	if s.rowsErr != nil {
		s.why("rdma.irqs.name", reason(s.rowsErr))
	}
}

// dirNames lists the subdirectories of dir, links to directories included, in
// natural order: /sys/class/net holds a file, bonding_masters, among the devices.
func (s *survey) dirNames(dir string) ([]string, error) {
	names, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !s.fs.IsDir(dir + "/" + name) })
	slices.SortStableFunc(names, natural.Compare)
	return names, nil
}

// deviceNames is dirNames for a list of devices, the fact at path. A name that cannot be
// printed as it is (a capture may have any) is left out, since it would be shown and be
// asked for.
func (s *survey) deviceNames(path, dir string) ([]string, error) {
	names, err := s.dirNames(dir)
	names = slices.DeleteFunc(names, func(name string) bool {
		odd := printable.Line(name) != name
		if odd {
			s.why(path, fmt.Sprintf("%.40q in %s is no name of a device, and left out", name, dir))
		}
		return odd
	})
	return names, err
}
