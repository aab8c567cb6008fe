package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/node"
)

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"proc/cpuinfo":                                                       "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz\nmicrocode\t: 0x2b000571\n\nprocessor\t: 1\nmodel name\t: another\n",
		"proc/cmdline":                                                       "quiet isolcpus=1 " + strings.Repeat("x", 300) + "\n",
		"proc/interrupts":                                                    "     CPU0  CPU1\n 40:  5  7  PCI-MSI 0-edge  mlx5_comp0@pci:0000:18:00.0\n 41:  1  1  PCI-MSI 0-edge  other\n",
		"sys/devices/system/cpu/online":                                      "0-1\n",
		"sys/devices/system/node/node1/cpulist":                              "0-1\n",
		"sys/devices/pci0000:17/0000:18:00.0/numa_node":                      "1\n",
		"sys/devices/pci0000:17/0000:18:00.0/vendor":                         "0x15b3\n",
		"sys/devices/pci0000:17/0000:18:00.0/device":                         "0x1021\n",
		"sys/devices/pci0000:17/0000:18:00.0/msi_irqs/40":                    "msix\n",
		"sys/devices/pci0000:17/0000:18:00.0/current_link_speed":             "16.0 GT/s PCIe\n",
		"sys/devices/pci0000:17/0000:18:00.0/current_link_width":             "8\n",
		"sys/devices/pci0000:17/0000:18:00.0/max_link_width":                 "16\n",
		"sys/devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0/board_id":     "MT_0000000838\n",
		"sys/devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0/hca_type":     "MT4129\n",
		"sys/devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0/fw_ver":       "28.39.1002\n",
		"sys/devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq":            "2600000\n",
		"sys/devices/system/cpu/cpufreq/policy0/affected_cpus":               "0 1\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"sys/class/infiniband/mlx5_0":                                  "../../devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0",
		"sys/devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0/device": "../..",
		"sys/bus/pci/devices/0000:18:00.0":                             "../../../devices/pci0000:17/0000:18:00.0",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	n, err := node.Open(dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	facts, err := n.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := n.Explain(facts, "mlx5_0")
	want := map[string]string{
		"cpu.model": "A CPU @ 2.00GHz", "cpu.microcode": "0x2b000571", "cpu.online": "0-1", "numa.nodes": "1",
		"kernel.command_line": "quiet isolcpus=1 " + strings.Repeat("x", 239) + "...",
		"nic.psid":            "MT_0000000838", "nic.model": "MT4129", "nic.rate": "400 Gb/sec (4X NDR)",
		"pcie.link_speed": "16.0 GT/s PCIe", "pcie.link_width": "8", "pcie.max_link_width": "16",
		"topology": "1 NUMA nodes; NIC on 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if other := n.Explain(facts, "nonsense"); other["nic.psid"] != "" || other["cpu.model"] == "" {
		t.Errorf("a device that is not there: %v", other)
	}
	before := node.Activity{Interrupts: map[string]uint64{"CPU0": 2, "CPU1": 7}}
	if diff := cmp.Diff(map[string]string{"interrupts": "3", "interrupts.busiest": "CPU0: 3", "frequency": "2600 to 2600 MHz"}, n.Observed(facts, "mlx5_0", before)); diff != "" {
		t.Errorf("observed (-want +got)\n%s", diff)
	}
}
