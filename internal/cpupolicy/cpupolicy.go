// Package cpupolicy finds the cpufreq policies of a node: a policy is the CPUs that
// share one clock setting.
package cpupolicy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

const cpuDir = "/sys/devices/system/cpu"

// A Policy is one cpufreq policy.
type Policy struct {
	Name string // "policy3"
	Dir  string // where its files are
}

// List returns the policies by number. It is empty on a machine without cpufreq.
// Kernels before 4.3 have no policy directories but one in each CPU's; it counts
// for the first CPU that it covers.
func List(fs sysfs.FS) []Policy {
	ids := numbered(fs, cpuDir+"/cpufreq", "policy")
	policies := make([]Policy, 0, len(ids))
	for _, id := range ids {
		name := "policy" + strconv.Itoa(id)
		policies = append(policies, Policy{name, cpuDir + "/cpufreq/" + name})
	}
	if len(policies) > 0 {
		return policies
	}
	for _, id := range numbered(fs, cpuDir, "cpu") {
		dir := perCPU(id)
		if !fs.IsDir(dir) {
			continue
		}
		if cpus, err := CPUs(fs, dir, "affected_cpus"); err == nil && cpus.Size() > 0 && cpus.List()[0] != id {
			continue
		}
		policies = append(policies, Policy{"policy" + strconv.Itoa(id), dir})
	}
	return policies
}

func perCPU(id int) string { return cpuDir + "/cpu" + strconv.Itoa(id) + "/cpufreq" }

// Find returns the policy of that name; the error is an errno when it is not there.
func Find(fs sysfs.FS, name string) (Policy, error) {
	id, ok := suffix(name, "policy")
	if !ok {
		return Policy{}, fmt.Errorf("%.40q is not the name of a cpufreq policy", name)
	}
	for _, dir := range []string{cpuDir + "/cpufreq/" + name, perCPU(id)} {
		if fs.IsDir(dir) {
			return Policy{name, dir}, nil
		}
	}
	return Policy{}, fmt.Errorf("cpufreq policy %s: %w", name, syscall.ENOENT)
}

// CPUs reads affected_cpus or related_cpus of a policy's directory: CPU numbers
// between blanks.
func CPUs(fs sysfs.FS, dir, file string) (cpulist.Set, error) {
	text, err := fs.ReadString(dir + "/" + file)
	if err != nil {
		return cpulist.New(), err
	}
	return cpulist.ParseKernel(strings.Join(strings.Fields(text), ","))
}

// numbered returns the numbers of the entries of dir that are prefix and a number.
func numbered(fs sysfs.FS, dir, prefix string) []int {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil
	}
	var ids []int
	for _, name := range names {
		if id, ok := suffix(name, prefix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func suffix(name, prefix string) (int, bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.Atoi(text)
	return id, err == nil && id >= 0 && id < cpulist.MaxCPUs && strconv.Itoa(id) == text
}
