// Package cpupolicy finds the cpufreq policies of a node: a policy is the CPUs that
// share one clock setting.
package cpupolicy

import (
	"fmt"
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
	ids, _ := fs.Numbered(cpuDir+"/cpufreq", "policy") // not there: the CPUs' own, or none
	policies := make([]Policy, 0, len(ids))
	for _, id := range ids {
		name := "policy" + strconv.Itoa(id)
		policies = append(policies, Policy{name, cpuDir + "/cpufreq/" + name})
	}
	if len(policies) > 0 {
		return policies
	}
	ids, _ = fs.Numbered(cpuDir, "cpu")
	for _, id := range ids {
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
	text, ok := strings.CutPrefix(name, "policy")
	id, err := strconv.Atoi(text)
	if !ok || err != nil || id < 0 || strconv.Itoa(id) != text {
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
