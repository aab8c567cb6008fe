package cpupolicy

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/internal/sysfs"
)

func TestList(t *testing.T) {
	const cpus = "/sys/devices/system/cpu/"
	now := sysfs.NewMem()
	for _, name := range []string{"policy10", "policy2", "policy0", "boost", "policy02"} {
		now.Dir(cpus + "cpufreq/" + name)
	}
	now.Link(cpus+"cpu2/cpufreq", "../cpufreq/policy2")
	old := sysfs.NewMem()
	for cpu, covers := range map[string]string{"cpu0": "0 1", "cpu1": "0 1", "cpu2": "2", "cpuidle": ""} {
		old.File(cpus+cpu+"/cpufreq/affected_cpus", covers+"\n")
	}
	old.Dir(cpus + "cpu3")
	for name, tc := range map[string]struct {
		tree *sysfs.Mem
		want []Policy
	}{
		"policies": {now, []Policy{{"policy0", cpus + "cpufreq/policy0"}, {"policy2", cpus + "cpufreq/policy2"}, {"policy10", cpus + "cpufreq/policy10"}}},
		"per CPU":  {old, []Policy{{"policy0", cpus + "cpu0/cpufreq"}, {"policy2", cpus + "cpu2/cpufreq"}}},
		"none":     {sysfs.NewMem(), []Policy{}},
	} {
		f := tc.tree.Open(t.TempDir(), nil)
		if diff := cmp.Diff(tc.want, List(f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, p := range tc.want {
			if got, err := Find(f, p.Name); err != nil || got != p {
				t.Errorf("%s: Find(%s) = %v, %v", name, p.Name, got, err)
			}
		}
		if _, err := Find(f, "policy99"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Find of none: %v", name, err)
		}
	}
}

func TestCPUs(t *testing.T) {
	m := sysfs.NewMem()
	m.File("/p/affected_cpus", "0 1 56\n")
	m.File("/p/related_cpus", "\n")
	m.File("/p/bad", "0 x\n")
	f := m.Open(t.TempDir(), nil)
	if set, err := CPUs(f, "/p", "affected_cpus"); err != nil || set.String() != "0-1,56" {
		t.Errorf("%s, %v", set, err)
	}
	if set, err := CPUs(f, "/p", "related_cpus"); err != nil || !set.IsEmpty() {
		t.Errorf("%s, %v", set, err)
	}
	if set, err := CPUs(f, "/p", "bad"); err == nil {
		t.Errorf("%s is read from junk", set)
	}
}
