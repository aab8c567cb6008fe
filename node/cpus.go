package node

import (
	"fmt"

	"github.com/rdmatune/rdmatune/internal/cpulist"
)

// CPUs returns the CPUs that are online, and those that the machine has, of which some
// may be offline. Affinities may name even more: CPUs that could be plugged in.
func (n *Node) CPUs() (online, present cpulist.Set, err error) {
	for _, list := range []struct {
		name string
		set  *cpulist.Set
	}{{"online", &online}, {"present", &present}} {
		text, err := n.FS().ReadString(cpuDir + "/" + list.name)
		if err != nil {
			return cpulist.New(), cpulist.New(), err
		}
		if *list.set, err = cpulist.ParseKernel(text); err != nil {
			return cpulist.New(), cpulist.New(), fmt.Errorf("%s/%s: %w", cpuDir, list.name, err)
		}
	}
	return online, present, nil
}
