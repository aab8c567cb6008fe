package spec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/node"
)

// Small questions to the facts that functions and resolving share.

func findRDMA(f *node.Facts, name string) *node.RDMA {
	for i := range f.RDMA {
		if f.RDMA[i].Name == name {
			return &f.RDMA[i]
		}
	}
	return nil
}

func missingDevice(f *node.Facts, name string) error {
	var names []string
	for _, r := range f.RDMA {
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("this node has no RDMA device %q: it has none at all (/sys/class/infiniband is empty or absent)", name)
	}
	return fmt.Errorf("this node has no RDMA device %q; it has %s%s", name, strings.Join(names, ", "), suggest(name, names))
}

// set reads a CPU list of the facts; unknown is the empty set.
func set(list *string) cpulist.Set {
	if list == nil {
		return cpulist.New()
	}
	s, err := cpulist.ParseKernel(*list)
	if err != nil {
		return cpulist.New()
	}
	return s
}

// coreOf is the whole core of a CPU, siblings included.
func coreOf(f *node.Facts, cpu int) cpulist.Set {
	if list, ok := f.CPUs.Cores[strconv.Itoa(cpu)]; ok {
		if s, err := cpulist.ParseKernel(list); err == nil && s.Contains(cpu) {
			return s
		}
	}
	return cpulist.New(cpu)
}

func why(f *node.Facts, path string) string {
	if w := f.Why[path]; w != "" {
		return w
	}
	return "this node does not say"
}

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func orNone(list string) string {
	if list == "" {
		return "none"
	}
	return list
}
