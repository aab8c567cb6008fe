package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestUnread: what a capture does not hold is unknown, never fine.
func TestUnread(t *testing.T) {
	const nic = "sys/devices/pci0000:16/0000:18:00.0/"
	vectors := []txtar.File{
		put("sys/devices/system/node/online", "0-1\n"), put("sys/devices/system/node/node0/cpulist", "0-1\n"), put("sys/devices/system/node/node1/cpulist", "2-3\n"),
		put(nic+"msi_irqs/40", "msix\n"), put(nic+"msi_irqs/41", "msix\n"),
	}
	for name, tc := range map[string]struct {
		check    string
		files    []txtar.File
		level    Level
		message  string
		evidence string
	}{
		"no affinities":        {"interrupts", vectors, Unknown, "which CPUs take 2 of 2 interrupts is not known", "/proc/irq/40/smp_affinity_list: no such file"},
		"one affinity":         {"interrupts", append(vectors[:len(vectors):len(vectors)], put("proc/irq/40/smp_affinity_list", "0\n")), Unknown, "which CPUs take 1 of 2", "/proc/irq/41/"},
		"one affinity, far":    {"interrupts", append(vectors[:len(vectors):len(vectors)], put("proc/irq/40/smp_affinity_list", "3\n")), Warning, "1 of 2 interrupts on CPUs of another NUMA node", "/proc/irq/41/"},
		"all affinities":       {"interrupts", append(vectors[:len(vectors):len(vectors)], put("proc/irq/40/smp_affinity_list", "0\n"), put("proc/irq/41/smp_affinity_list", "0-1\n")), Fine, "2 interrupts near the device", "on other CPUs 0"},
		"no process":           {"daemons", []txtar.File{put("proc/cmdline", "ro\n")}, Unknown, "not told", "no process"},
		"no process to read":   {"daemons", []txtar.File{put("proc/900/status", "\n")}, Unknown, "not told", "no process"},
		"no /proc":             {"daemons", nil, Unknown, "cannot be listed", "/proc"},
		"a process":            {"daemons", []txtar.File{put("proc/1/stat", "1 (init) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 77 0\n")}, Fine, "neither", ""},
		"isolation not told":   {"isolation", nil, Unknown, "not told", "isolated: no such file"},
		"nothing isolated":     {"isolation", []txtar.File{put("sys/devices/system/cpu/isolated", "\n")}, Fine, "(none)", "(none)"},
		"neither file":         {"bounce-buffers", nil, Unknown, "not told", "/proc/cmdline (no such file or directory)} {/proc/cpuinfo"},
		"no cpuinfo":           {"bounce-buffers", []txtar.File{put("proc/cmdline", "ro\n")}, Unknown, "not told", "/proc/cpuinfo"},
		"no cmdline":           {"bounce-buffers", []txtar.File{put("proc/cpuinfo", "flags : fpu\n")}, Unknown, "not told", "/proc/cmdline"},
		"forced, no cpuinfo":   {"bounce-buffers", []txtar.File{put("proc/cmdline", "swiotlb=force\n")}, Warning, "may go through", "swiotlb=force"},
		"guest, no cmdline":    {"bounce-buffers", []txtar.File{put("proc/cpuinfo", "flags : tdx_guest\n")}, Warning, "may go through", "tdx_guest"},
		"both, nothing forces": {"bounce-buffers", []txtar.File{put("proc/cmdline", "ro\n"), put("proc/cpuinfo", "flags : fpu\n")}, Fine, "nothing forces", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := finding(t, examine(t, pair(t, "pci0000:16", "pci0000:16", tc.files...), nil), tc.check)
			if f.Level != tc.level || !strings.Contains(f.Message, tc.message) || !strings.Contains(fmt.Sprint(f.Evidence), tc.evidence) {
				t.Errorf("%s: %s %+v; want %s, %q, evidence %q", f.Level, f.Message, f.Evidence, tc.level, tc.message, tc.evidence)
			}
		})
	}
}
