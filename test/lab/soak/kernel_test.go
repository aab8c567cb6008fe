package soak

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A setting names what is read from the kernel: "irq eth1/0", "governor cpu2", "min cpu2",
// "max cpu2", "idle cpu2", "usecs eth1", "pid 812", "dma".
type setting string

func (s setting) kind() string {
	kind, _, _ := strings.Cut(string(s), " ")
	return kind
}

func (s setting) of() string {
	_, of, _ := strings.Cut(string(s), " ")
	return of
}

// group is what is rewritten together: one write to a limit may move another of the policy.
func (s setting) group() string {
	switch s.kind() {
	case "min", "max", "governor":
		return "policy " + s.of()
	}
	return string(s)
}

const (
	allCPUs   = 4
	vectors   = 3 // of each card
	noLatency = "2000000000"
)

var cards = []string{"eth0", "eth1"}

// machine are the settings of the machine; processes have theirs beside.
func machineSettings() []setting {
	out := []setting{"dma"}
	for _, c := range cards {
		for i := range vectors {
			out = append(out, setting(fmt.Sprintf("irq %s/%d", c, i)))
		}
		out = append(out, setting("usecs "+c))
	}
	for c := range allCPUs {
		for _, kind := range []string{"governor", "min", "max", "idle"} {
			out = append(out, setting(fmt.Sprintf("%s cpu%d", kind, c)))
		}
	}
	return out
}

// A kernel reads and writes settings without rdmatune.
type kernel struct {
	pci map[string]string // PCI function of each card
}

func newKernel() (*kernel, error) {
	k := &kernel{pci: map[string]string{}}
	for _, c := range cards {
		dir, err := os.Readlink("/sys/class/net/" + c + "/device")
		if err != nil {
			return nil, err
		}
		k.pci[c] = filepath.Base(dir)
	}
	return k, nil
}

// file is where a setting is read and written, "" for one that is in no file, or not there.
func (k *kernel) file(s setting) string {
	cpu := "/sys/devices/system/cpu/" + s.of()
	policy := "/sys/devices/system/cpu/cpufreq/policy" + strings.TrimPrefix(s.of(), "cpu")
	switch s.kind() {
	case "irq":
		card, index, _ := strings.Cut(s.of(), "/")
		n, err := strconv.Atoi(index)
		list, dirErr := os.ReadDir("/sys/bus/pci/devices/" + k.pci[card] + "/msi_irqs")
		if err != nil || dirErr != nil || n >= len(list) {
			return ""
		}
		numbers := make([]int, 0, len(list))
		for _, d := range list {
			if irq, err := strconv.Atoi(d.Name()); err == nil {
				numbers = append(numbers, irq)
			}
		}
		slices.Sort(numbers)
		return fmt.Sprintf("/proc/irq/%d/smp_affinity_list", numbers[n])
	case "governor":
		return policy + "/scaling_governor"
	case "min":
		return policy + "/scaling_min_freq"
	case "max":
		return policy + "/scaling_max_freq"
	case "idle":
		return cpu + "/power/pm_qos_resume_latency_us"
	}
	return ""
}

// read returns the value of a setting, "" for one that is not there now.
func (k *kernel) read(s setting) string {
	switch s.kind() {
	case "dma":
		f, err := os.Open("/dev/cpu_dma_latency")
		if err != nil {
			return ""
		}
		defer f.Close()
		b := make([]byte, 4)
		if n, err := f.Read(b); err != nil || n != len(b) {
			return ""
		}
		return strconv.Itoa(int(int32(binary.LittleEndian.Uint32(b))))
	case "usecs":
		usecs, err := rxUsecs(s.of())
		if err != nil {
			return ""
		}
		return strconv.FormatUint(uint64(usecs), 10)
	case "pid":
		b, err := os.ReadFile("/proc/" + s.of() + "/status")
		if err != nil {
			return ""
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				return strings.TrimSpace(v)
			}
		}
		return ""
	case "irq":
		// While a vector moves, the kernel may show nothing, or what was.
		for range 20 {
			if v := readFile(k.file(s)); v != "" {
				return v
			}
			time.Sleep(time.Millisecond)
		}
		return ""
	}
	return readFile(k.file(s))
}

// rxUsecs asks for the coalescing of a card. The request of old (include/uapi/linux/sockios.h,
// ethtool.h) is another way than rdmatune's, and costs no process.
func rxUsecs(card string) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	coalesce := [23]uint32{unix.ETHTOOL_GCOALESCE} // the command, rx-usecs, and more
	request := struct {
		name [unix.IFNAMSIZ]byte
		data *[23]uint32
		_    [16]byte
	}{data: &coalesce}
	copy(request.name[:], card)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, errno
	}
	return coalesce[1], nil
}

func readFile(path string) string {
	if path == "" {
		return ""
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// write lets a process of its own change a setting, as somebody else would.
func (k *kernel) write(ctx context.Context, s setting, value string) error {
	switch s.kind() {
	case "usecs":
		return run(ctx, "ethtool", "-C", s.of(), "rx-usecs", value)
	case "pid":
		return run(ctx, "taskset", "-apc", value, s.of())
	}
	path := k.file(s)
	if path == "" {
		return fmt.Errorf("%s: not there", s)
	}
	return run(ctx, "sh", "-c", "echo "+value+" > "+path)
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// others returns the affinity of every interrupt that is no card's.
func (k *kernel) others() map[string]string {
	ours := map[string]bool{}
	for _, s := range machineSettings() {
		if s.kind() == "irq" {
			ours[k.file(s)] = true
		}
	}
	out := map[string]string{}
	files, _ := filepath.Glob("/proc/irq/*/smp_affinity_list") // the pattern is well-formed
	for _, f := range files {
		if !ours[f] {
			out[f] = readFile(f)
		}
	}
	return out
}
