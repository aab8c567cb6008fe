package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/node"
)

func open(t testing.TB, ref string) *node.Node {
	t.Helper()
	n, err := node.Open(ref, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func facts(t testing.TB, n *node.Node) *node.Facts {
	t.Helper()
	f, err := n.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func marshal(t *testing.T, f *node.Facts) []byte {
	t.Helper()
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// TestFacts holds the facts of whole machines: each testdata/*.txtar is one.
func TestFacts(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no machines in testdata: %v", err)
	}
	for _, file := range archives {
		t.Run(filepath.Base(file), func(t *testing.T) {
			golden.Check(t, strings.TrimSuffix(filepath.Base(file), ".txtar")+".json", marshal(t, facts(t, open(t, fixture.Tree(t, file)))))
		})
	}
	t.Run("small", func(t *testing.T) { golden.Check(t, "sim-small.json", marshal(t, facts(t, open(t, "sim:small")))) })
}

// TestFactsRepeat: the same node gives the same bytes.
func TestFactsRepeat(t *testing.T) {
	n := open(t, "sim:dgx")
	first := marshal(t, facts(t, n))
	for range 3 {
		if again := marshal(t, facts(t, n)); !bytes.Equal(first, again) {
			t.Fatal(cmp.Diff(string(first), string(again)))
		}
	}
}

func TestFactsOfDGX(t *testing.T) {
	f := facts(t, open(t, "sim:dgx"))
	if len(f.RDMA) != 8 || len(f.GPUs) != 8 || len(f.Netdevs) != 9 || len(f.Cpufreq) != 224 || len(f.CPUs.Cores) != 224 || len(f.NUMA) != 2 {
		t.Fatalf("%d NICs, %d GPUs, %d netdevs, %d policies, %d CPUs, %d NUMA nodes", len(f.RDMA), len(f.GPUs), len(f.Netdevs), len(f.Cpufreq), len(f.CPUs.Cores), len(f.NUMA))
	}
	if *f.CPUs.Online != "0-223" || f.CPUs.Cores["3"] != "3,115" || !f.Simulated {
		t.Errorf("CPUs %s, core of CPU 3 %s", *f.CPUs.Online, f.CPUs.Cores["3"])
	}
	for i, d := range f.RDMA {
		local := []string{"0-55,112-167", "56-111,168-223"}[i/4]
		if *d.NUMANode != i/4 || *d.LocalCPUs != local || len(d.IRQs) != 65 || *d.Driver != "mlx5_core" || len(d.Netdevs) != 1 {
			t.Errorf("%s: %+v", d.Name, d)
		}
	}
	if d := f.RDMA[0]; d.Name != "mlx5_0" || *d.PCI != "0000:18:00.0" || d.IRQs[3].Key != "0000:18:00.0/3" || *d.IRQs[3].Name != "mlx5_comp2@pci:0000:18:00.0" {
		t.Errorf("mlx5_0: %+v", d)
	}
	if len(f.Why) != 1 {
		t.Errorf("facts of a tidy machine are missing: %v", f.Why)
	}
}

// TestLocal looks at whatever machine this is: what holds on all of them.
func TestLocal(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	n, err := node.Open("local", state)
	if err != nil {
		t.Fatal(err)
	}
	f := facts(t, n)
	if f.CPUs.Online == nil || *f.CPUs.Online == "" || f.Simulated || f.Kernel == nil {
		t.Errorf("CPUs %+v, kernel %v", f.CPUs, f.Kernel)
	}
	found := false
	for _, d := range f.RDMA {
		if d.Name == "soft0" {
			found = *d.Driver == "soft" && len(d.Netdevs) == 1 && d.Netdevs[0] == "lo" && *d.LocalCPUs == *f.CPUs.Online && d.PCI == nil
		}
	}
	if !found || f.Why["rdma.soft0.pci"] != "software device" {
		t.Errorf("RDMA devices %+v; want soft0", f.RDMA)
	}
	if id, err := n.BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot id %q, %v", id, err)
	}
	if n.StateDir() != state || n.Ref() != "local" || n.Kind() != node.Local || n.Self() != os.Getpid() {
		t.Errorf("state %s, ref %s, kind %s", n.StateDir(), n.Ref(), n.Kind())
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking has made the state directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Facts(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("facts in a cancelled context: %v", err)
	}
}

func TestIsolcpus(t *testing.T) {
	for cmdline, want := range map[string]string{
		"isolcpus=nohz,domain,4-N nohz_full=all": "4-7",
		"isolcpus=2-3":                           "2-3",
		"quiet isolcpus=managed_irq,0-1 ro":      "",
		"isolcpus=domain,managed_irq,all":        "0-7",
		"isolcpus=domain":                        "",
		"isolcpus=0-N:1/2":                       "0,2,4,6",
		"root=/dev/sda":                          "",
	} {
		f := facts(t, open(t, fixture.Files(t,
			txtar.File{Name: "proc/cmdline", Data: []byte(cmdline + "\n")},
			txtar.File{Name: "sys/devices/system/cpu/online", Data: []byte("0-7\n")},
			txtar.File{Name: "sys/devices/system/cpu/possible", Data: []byte("0-7\n")},
		)))
		if f.CPUs.Isolated == nil || *f.CPUs.Isolated != want {
			t.Errorf("%s: isolated %v, want %q", cmdline, f.CPUs.Isolated, want)
		}
	}
}

// TestIRQsUnread: without a table of interrupts, that none are listed does not mean that
// there are none.
func TestIRQsUnread(t *testing.T) {
	const dev = "sys/bus/pci/devices/0000:43:00.0/"
	for name, tc := range map[string]struct {
		more    []txtar.File
		unknown bool
		why     string
	}{
		"neither":           {nil, true, "/proc/interrupts: no such file or directory"},
		"a table":           {[]txtar.File{{Name: "proc/interrupts", Data: []byte("     CPU0\n")}}, false, "neither"},
		"vectors, no table": {[]txtar.File{{Name: dev + "msi_irqs/40", Data: []byte("msix\n")}}, false, ""},
	} {
		f := facts(t, open(t, fixture.Files(t, append(tc.more,
			txtar.File{Name: dev + "infiniband/qib0/fw_ver", Data: []byte("1\n")},
			txtar.File{Name: "sys/class/infiniband/qib0@", Data: []byte("../../bus/pci/devices/0000:43:00.0/infiniband/qib0")})...)))
		if why := f.Why["rdma.qib0.irqs"]; len(f.RDMA) != 1 || (f.RDMA[0].IRQs == nil) != tc.unknown || !strings.Contains(why, tc.why) || (tc.why == "") != (why == "") {
			t.Errorf("%s: %+v, %q", name, f.RDMA, why)
		}
	}
}

// TestGPUsLeftOut: a display device whose maker cannot be read may be a GPU, and the facts
// say so.
func TestGPUsLeftOut(t *testing.T) {
	device := func(name, class, vendor string) []txtar.File {
		files := []txtar.File{{Name: "sys/bus/pci/devices/" + name + "/class", Data: []byte(class + "\n")}}
		if vendor != "" {
			files = append(files, txtar.File{Name: "sys/bus/pci/devices/" + name + "/vendor", Data: []byte(vendor + "\n")})
		}
		return files
	}
	for name, tc := range map[string]struct {
		files []txtar.File
		gpus  int
		why   string
	}{
		"no vendor":              {device("0004:04:00.0", "0x030000", ""), 0, "0004:04:00.0"},
		"accelerator, no vendor": {device("0004:04:00.0", "0x120000", ""), 0, "0004:04:00.0"},
		"one of two":             {append(device("0004:05:00.0", "0x030000", ""), device("0004:04:00.0", "0x030000", "0x10de")...), 1, "0004:05:00.0"},
		"many": {slices.Concat(device("0035:03:00.0", "0x030000", ""), device("0004:04:00.0", "0x030000", ""), device("0004:05:00.0", "0x038000", ""),
			device("0035:04:00.0", "0x030000", ""), device("0035:05:00.0", "0x030000", "")), 0, "0004:04:00.0, 0004:05:00.0, 0035:03:00.0 and 2 more"},
		"a 3D controller":   {device("0004:04:00.0", "0x030200", ""), 1, ""},
		"a plain screen":    {device("0004:04:00.0", "0x030000", "0x1a03"), 0, ""},
		"no display at all": {device("0004:04:00.0", "0x020000", ""), 0, ""},
	} {
		f := facts(t, open(t, fixture.Files(t, tc.files...)))
		if why := f.Why["gpus"]; len(f.GPUs) != tc.gpus || !strings.HasSuffix(why, tc.why) || (why == "") != (tc.why == "") {
			t.Errorf("%s: %+v, %q", name, f.GPUs, why)
		}
	}
}

// TestOddNames: a device or netdev of a name that no terminal should get is left out, and
// the facts say so in characters that one may.
func TestOddNames(t *testing.T) {
	const dev = "sys/bus/pci/devices/0000:43:00.0/"
	for _, odd := range []string{"a\x1b[31mb", "a\nb", "a\u009b2J", "a\u202eb", "a\xffb"} {
		f := facts(t, open(t, fixture.Files(t,
			txtar.File{Name: "sys/class/infiniband/" + odd + "/fw_ver", Data: []byte("1\n")},
			txtar.File{Name: "sys/class/infiniband/mlx5_0/fw_ver", Data: []byte("1\n")},
			txtar.File{Name: "sys/class/infiniband/mlx5_0/device@", Data: []byte("../../../bus/pci/devices/0000:43:00.0")},
			txtar.File{Name: "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", Data: []byte(odd + "\n")},
			txtar.File{Name: "sys/class/net/" + odd + "/address"},
			txtar.File{Name: "sys/class/net/größe0/address"},
			txtar.File{Name: dev + "net/" + odd + "/address"},
			txtar.File{Name: dev + "net/größe0/address"},
			txtar.File{Name: "sys/bus/pci/devices/0000:43:00.0" + odd + "/class", Data: []byte("0x030200\n")},
		)))
		if len(f.RDMA) != 1 || f.RDMA[0].Name != "mlx5_0" || cmp.Diff([]string{"größe0"}, f.RDMA[0].Netdevs) != "" || len(f.GPUs) != 0 {
			t.Errorf("%q: RDMA devices %+v, GPUs %+v", odd, f.RDMA, f.GPUs)
		}
		if len(f.Netdevs) != 1 || f.Netdevs[0].Name != "größe0" {
			t.Errorf("%q: netdevs %+v", odd, f.Netdevs)
		}
		for _, list := range []string{"rdma", "netdevs"} {
			if why := f.Why[list]; !strings.Contains(why, "left out") || printable.Line(why) != why {
				t.Errorf("%q: why of %s: %q", odd, list, why)
			}
		}
	}
}

// TestOddTexts: what files and links say is shown on terminals, too.
func TestOddTexts(t *testing.T) {
	const dev, odd = "sys/bus/pci/devices/0000:43:00.0/", "a\x1b[31mb\u009b2J\n"
	dir := fixture.Files(t,
		txtar.File{Name: "proc/sys/kernel/hostname", Data: []byte(odd)},
		txtar.File{Name: "proc/version", Data: []byte("Linux version " + odd)},
		txtar.File{Name: "proc/interrupts", Data: []byte("     CPU0\n 40:  0  PCI-MSI 1-edge      " + odd)},
		txtar.File{Name: "sys/class/infiniband/mlx5_0@", Data: []byte("../../bus/pci/devices/0000:43:00.0/infiniband/mlx5_0")},
		txtar.File{Name: dev + "infiniband/mlx5_0/fw_ver", Data: []byte(odd)},
		txtar.File{Name: dev + "infiniband/mlx5_0/ports/1/link_layer", Data: []byte(odd)},
		txtar.File{Name: dev + "infiniband/mlx5_0/ports/1/state", Data: []byte("4: " + odd)},
		txtar.File{Name: dev + "infiniband/mlx5_0/device/driver@", Data: []byte("../../../../drivers/" + strings.TrimSpace(odd))},
		txtar.File{Name: dev + "msi_irqs/40", Data: []byte("msix\n")},
		txtar.File{Name: "sys/devices/system/cpu/online", Data: []byte("0\n")},
		txtar.File{Name: "sys/devices/system/cpu/cpufreq/policy0/affected_cpus", Data: []byte("0\n")},
		txtar.File{Name: "sys/devices/system/cpu/cpufreq/policy0/scaling_governor", Data: []byte(odd)},
		txtar.File{Name: "sys/devices/system/cpu/cpufreq/policy0/scaling_driver", Data: []byte(odd)},
		txtar.File{Name: "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors", Data: []byte(odd)},
		txtar.File{Name: "sys/devices/system/cpu/cpufreq/policy0/energy_performance_available_preferences", Data: []byte(odd)},
	)
	f := facts(t, open(t, dir))
	const want = "a?[31mb?2J"
	if len(f.RDMA) != 1 || len(f.RDMA[0].IRQs) != 1 || len(f.Cpufreq) != 1 {
		t.Fatalf("%+v", f)
	}
	d, p := f.RDMA[0], f.Cpufreq[0]
	for name, got := range map[string]*string{
		"hostname": f.Hostname, "kernel": f.Kernel, "firmware": d.Firmware, "link layer": d.LinkLayer, "state": d.State, "driver": d.Driver,
		"interrupt": d.IRQs[0].Name, "governor": p.Governor, "cpufreq driver": p.Driver, "governors": &p.Governors[0], "preferences": &p.EnergyPreferences[0],
	} {
		if got == nil || *got != want {
			t.Errorf("%s: %v, want %q", name, got, want)
		}
	}
}

func BenchmarkOpenDGX(b *testing.B) {
	for b.Loop() {
		open(b, "sim:dgx")
	}
}

func BenchmarkFactsDGX(b *testing.B) {
	n := open(b, "sim:dgx")
	for b.Loop() {
		facts(b, n)
	}
}
