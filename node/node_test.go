package node_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
)

func TestOpenErrors(t *testing.T) {
	for ref, says := range map[string]string{
		"sim:nothing":        "sim:dgx, sim:large, sim:shared, sim:small, sim:vm",
		"sim:":               "sim:dgx, sim:large, sim:shared, sim:small, sim:vm",
		"/no/such/directory": "captured directory",
		t.TempDir():          "holds neither",
	} {
		if n, err := node.Open(ref, t.TempDir()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%s) = %v, %v; want %q", ref, n, err, says)
		}
	}
}

func TestDirectories(t *testing.T) {
	state := t.TempDir()
	seen := map[string]bool{}
	dirs := []string{fixture.Files(t, txtar.File{Name: "proc/x"}), fixture.Files(t, txtar.File{Name: "proc/x"})}
	for _, ref := range append(dirs, "sim:small", "sim:dgx") {
		n, err := node.Open(ref, state)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if !strings.HasPrefix(n.StateDir(), filepath.Join(state, "nodes")+"/") || seen[n.StateDir()] || n.RunDir() != filepath.Join(n.StateDir(), "run") {
			t.Errorf("%s: state in %s, run directory %s", ref, n.StateDir(), n.RunDir())
		}
		seen[n.StateDir()] = true
		if id, err := n.BootID(); err != nil || id == "" || n.Self() != 0 {
			t.Errorf("%s: boot id %q, %v", ref, id, err)
		}
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 0 {
		t.Errorf("opening has written %v, %v", entries, err)
	}
}

func TestDefaultStateDir(t *testing.T) {
	if dir := node.DefaultStateDir(); !filepath.IsAbs(dir) || !strings.HasSuffix(dir, "rdmatune") {
		t.Errorf("state directory %s", dir)
	}
}

// TestKernelManners writes to simulated files and reads what the kernel would show.
func TestKernelManners(t *testing.T) {
	const (
		policy = "/sys/devices/system/cpu/cpufreq/policy1/"
		irq    = "/proc/irq/122/"
	)
	type step struct {
		file, value string
		err         error
		file2, want string // what another file shows then
	}
	for name, steps := range map[string][]step{
		"affinity list": {{irq + "smp_affinity_list", "3,1-2\n", nil, irq + "smp_affinity_list", "1-3"}, {irq + "smp_affinity_list", "6", nil, irq + "smp_affinity", "40"}},
		"affinity mask": {{irq + "smp_affinity", "c0", nil, irq + "smp_affinity_list", "6-7"}, {irq + "smp_affinity", "c0", nil, irq + "effective_affinity_list", "6"}, {irq + "smp_affinity", "c0", nil, irq + "effective_affinity", "40"}},
		"affinity refused": {
			{irq + "smp_affinity_list", "", syscall.EINVAL, irq + "smp_affinity_list", "0-7"},
			{irq + "smp_affinity_list", "8", syscall.ERANGE, irq + "smp_affinity_list", "0-7"},
			{irq + "smp_affinity_list", "x", syscall.EINVAL, irq + "smp_affinity_list", "0-7"},
			{irq + "effective_affinity_list", "1", syscall.EPERM, irq + "effective_affinity_list", "2"},
		},
		"governor": {
			{policy + "scaling_governor", "performance", nil, policy + "scaling_governor", "performance"},
			{policy + "scaling_governor", "turbo", syscall.EINVAL, policy + "scaling_governor", "performance"},
			{policy + "scaling_governor", "", syscall.EINVAL, policy + "scaling_governor", "performance"},
			{policy + "scaling_driver", "x", syscall.EACCES, policy + "scaling_driver", "acpi-cpufreq"},
		},
		"limits are rounded down": {
			{policy + "scaling_max_freq", "2500000", nil, policy + "scaling_max_freq", "2200000"},
			{policy + "scaling_max_freq", "9999999", nil, policy + "scaling_max_freq", "3000000"},
			{policy + "scaling_max_freq", "1", nil, policy + "scaling_max_freq", "1200000"},
			{policy + "scaling_max_freq", "-1", syscall.EINVAL, policy + "scaling_max_freq", "1200000"},
		},
		"a lower limit waits for the upper": {
			{policy + "scaling_max_freq", "1800000", nil, policy + "scaling_min_freq", "1200000"},
			{policy + "scaling_min_freq", "2600000", nil, policy + "scaling_min_freq", "1800000"},
			{policy + "scaling_max_freq", "3000000", nil, policy + "scaling_min_freq", "2600000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, "sim:small").FS()
			for _, s := range steps {
				if err := f.WriteFile(s.file, s.value); !errors.Is(err, s.err) || s.err == nil && err != nil {
					t.Errorf("write %q to %s: %v, want %v", s.value, s.file, err, s.err)
				}
				if got, err := f.ReadString(s.file2); err != nil || got != s.want {
					t.Errorf("after %q to %s: %s is %q, %v; want %q", s.value, s.file, s.file2, got, err, s.want)
				}
			}
		})
	}
}

var trainer = node.Process{PID: 4711, Start: 1000, Comm: "trainer) x\ny", Cmdline: []string{"/opt/trainer", "-v"}, Workload: "w", UID: 1000, Threads: []int{4713}}

func TestAdopt(t *testing.T) {
	state := t.TempDir()
	n, err := node.Open("sim:small", state)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Adopt(trainer, node.Process{PID: 4800, Start: 5, Comm: "other"}); err != nil {
		t.Fatal(err)
	}
	pids, err := n.Procs().PIDs()
	if diff := cmp.Diff([]int{4711, 4800}, pids); diff != "" || err != nil {
		t.Errorf("processes: %v\n%s", err, diff)
	}
	if comm, err := n.Procs().Comm(4711); err != nil || comm != "trainer) x?y" {
		t.Errorf("comm %q, %v", comm, err)
	}
	if uid, err := n.Procs().UID(4711); err != nil || uid != 1000 {
		t.Errorf("uid %d, %v", uid, err)
	}
	if env, err := n.Procs().Environ(4711); err != nil || env["RDMATUNE_WORKLOAD"] != "w" {
		t.Errorf("environment %v, %v", env, err)
	}
	if set, err := n.Affinity(4713); err != nil || set.String() != "0-7" {
		t.Errorf("affinity %s, %v", set, err)
	}
	if err := n.SetAffinity(4713, cpulist.New(2, 3, 900)); err != nil {
		t.Fatal(err)
	}
	if err := n.SetAffinity(4713, cpulist.New(900)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("CPUs that are not there: %v", err)
	}
	if err := n.SetAffinity(4712, cpulist.New(1)); !errors.Is(err, procs.ErrGone) {
		t.Errorf("a thread that is not there: %v", err)
	}
	affinities := func(n *node.Node) string {
		t.Helper()
		threads, err := n.Procs().Threads(4711)
		if err != nil {
			t.Fatal(err)
		}
		s := ""
		for _, th := range threads {
			s += th.Key() + "=" + th.CPUs.String() + " "
		}
		return s
	}
	if got, want := affinities(n), "4711@1000=0-7 4713@1000=2-3 "; got != want {
		t.Errorf("affinities %s, want %s", got, want)
	}

	// Another rdmatune on the same node sees what was set; another process of the same
	// id does not inherit it.
	again, err := node.Open("sim:small", state)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Adopt(trainer); err != nil {
		t.Fatal(err)
	}
	if got, want := affinities(again), "4711@1000=0-7 4713@1000=2-3 "; got != want {
		t.Errorf("affinities %s, want %s", got, want)
	}
	later := trainer
	later.Start = 2000
	if err := again.Adopt(later); err != nil {
		t.Fatal(err)
	}
	if got, want := affinities(again), "4711@2000=0-7 4713@2000=0-7 "; got != want {
		t.Errorf("affinities %s, want %s", got, want)
	}
	if err := again.Adopt(); err != nil {
		t.Fatal(err)
	}
	if pids, err := again.Procs().PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("processes %v, %v after adopting none", pids, err)
	}
	if err := open(t, "local").Adopt(trainer); err == nil {
		t.Error("the local node adopts processes")
	}
}

// TestConcurrent: one goroutine looks while others write and processes come and go.
func TestConcurrent(t *testing.T) {
	n := open(t, "sim:small")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			p := trainer
			p.PID += i
			for cpu := range 8 {
				if err := errors.Join(n.Adopt(p), n.FS().WriteFile("/proc/irq/122/smp_affinity_list", strconv.Itoa(cpu))); err != nil {
					t.Error(err)
				}
				if f, err := n.Facts(t.Context()); err != nil || len(f.RDMA) != 2 || len(f.RDMA[0].IRQs) != 5 || f.RDMA[0].IRQs[2].Affinity == nil {
					t.Errorf("facts %+v, %v", f, err)
				}
				if _, err := n.Procs().PIDs(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCoalesce(t *testing.T) {
	n := open(t, "sim:small")
	before, err := n.Coalesce("ens1f0np0")
	if err != nil || before.RXUsecs == nil || *before.RXUsecs != 8 || before.AdaptiveRX == nil || !*before.AdaptiveRX {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := n.SetCoalesce("ens1f0np0", ethnl.Coalesce{RXUsecs: new(uint32(0)), AdaptiveRX: new(false)}); err != nil {
		t.Fatal(err)
	}
	want := before
	want.RXUsecs, want.AdaptiveRX = new(uint32(0)), new(false)
	if after, err := n.Coalesce("ens1f0np0"); err != nil || cmp.Diff(want, after) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(want, after))
	}
	if other, err := n.Coalesce("ens2f0np0"); err != nil || *other.RXUsecs != 8 {
		t.Errorf("the other netdev: %+v, %v", other, err)
	}
	for _, name := range []string{"absent0", "lo"} {
		if _, err := n.Coalesce(name); !errors.Is(err, ethnl.ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "..", "a/b", "../../etc", "sixteen-letters-"} {
		if _, err := n.Coalesce(name); err == nil || errors.Is(err, ethnl.ErrNotSupported) {
			t.Errorf("%q: %v", name, err)
		}
		if err := n.SetCoalesce(name, ethnl.Coalesce{}); err == nil {
			t.Errorf("%q is set", name)
		}
	}
}

func TestInjectFaults(t *testing.T) {
	n := open(t, "sim:small")
	if err := n.Adopt(trainer); err != nil {
		t.Fatal(err)
	}
	n.InjectFaults(new(sysfs.Faults).FailWrite("/affinity/4711", 1, syscall.EPERM).
		FailWrite("/ethtool/ens1f0np0", 1, syscall.EINVAL).FailWrite("/proc/irq/122", 1, syscall.ENOSPC))
	if err := n.SetAffinity(4711, cpulist.New(1)); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
	if err := n.SetCoalesce("ens1f0np0", ethnl.Coalesce{RXUsecs: new(uint32(1))}); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	if err := n.FS().WriteFile("/proc/irq/122/smp_affinity_list", "1"); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if err := n.FS().WriteFile("/proc/irq/999/smp_affinity_list", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
