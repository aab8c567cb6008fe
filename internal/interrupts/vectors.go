package interrupts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/pci"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// A Vector is one interrupt of a PCI function. Its place among the function's
// vectors lasts over a rebind of the driver; its number does not.
type Vector struct {
	PCI    string
	Index  int
	Number int
	Action string // "" when no handler is installed
}

// Key is the vector's identity: "0000:18:00.0/3".
func (v Vector) Key() string { return v.PCI + "/" + strconv.Itoa(v.Index) }

// ParseKey splits what Key joined.
func ParseKey(key string) (function string, index int, err error) {
	function, text, ok := strings.Cut(key, "/")
	index, convErr := strconv.Atoi(text)
	if !ok || !pci.Valid(function) || convErr != nil || index < 0 || text != strconv.Itoa(index) {
		return "", 0, fmt.Errorf("interrupt %.60q is not PCI-ADDRESS/INDEX", key)
	}
	return function, index, nil
}

// Table reads /proc/interrupts of fs.
func Table(fs sysfs.FS) ([]Row, error) {
	text, err := fs.ReadFile("/proc/interrupts")
	if err != nil {
		return nil, err
	}
	return ParseTable(text), nil
}

// MSIDir is where the vectors of a PCI function are listed.
func MSIDir(function string) string { return "/sys/bus/pci/devices/" + function + "/msi_irqs" }

// Vectors returns the message-signalled vectors of function in the order of their
// numbers, which is the order of their indices. Without msi_irqs (captures, old
// kernels) the rows that name the function stand in. The legacy line in
// FUNCTION/irq is never returned: it is not what the device uses.
func Vectors(fs sysfs.FS, function string, rows []Row) []Vector {
	actions := make(map[int]string, len(rows))
	for _, r := range rows {
		actions[r.Number] = r.Action
	}
	var numbers []int
	names, err := fs.ReadDir(MSIDir(function))
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 31); err == nil {
			numbers = append(numbers, int(n))
		}
	}
	if err != nil || len(numbers) == 0 {
		for _, r := range rows {
			if r.PCI == function {
				numbers = append(numbers, r.Number)
			}
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	vectors := make([]Vector, len(numbers))
	for i, n := range numbers {
		vectors[i] = Vector{PCI: function, Index: i, Number: n, Action: actions[n]}
	}
	return vectors
}

// AffinityFile is the file that holds the CPUs asked for interrupt number.
func AffinityFile(number int) string {
	return "/proc/irq/" + strconv.Itoa(number) + "/smp_affinity_list"
}

// NumberOf is the interrupt number in the path of an affinity file.
func NumberOf(path string) (number int, ok bool) {
	text, ok := strings.CutPrefix(path, "/proc/irq/")
	if !ok {
		return 0, false
	}
	text, ok = strings.CutSuffix(text, "/smp_affinity_list")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && AffinityFile(n) == path
}

// Affinity returns the CPUs asked for interrupt number. managed reports that the
// kernel places it itself and takes no request: since 6.12 the file is read-only
// then; before, only a refused write tells.
func Affinity(fs sysfs.FS, number int) (cpus cpulist.Set, managed bool, err error) {
	file := AffinityFile(number)
	text, err := settled(func() (string, error) { return fs.ReadString(file) })
	if err != nil {
		return cpulist.New(), false, err
	}
	if cpus, err = cpulist.ParseKernel(text); err != nil {
		return cpulist.New(), false, fmt.Errorf("%s: %w", file, err)
	}
	info, err := fs.Stat(file)
	return cpus, err == nil && info.Mode.Perm()&0o222 == 0, err
}

// Idle reports whether interrupt number has no handler now, such as that of a netdev which
// is down. Its affinity file takes requests then, but may go on showing an earlier one that
// never took effect, until there is a handler again. A kernel without the file that tells
// (sysfs-kernel-irq in the kernel's ABI documentation) leaves it open.
func Idle(fs sysfs.FS, number int) bool {
	handlers, err := fs.ReadString("/sys/kernel/irq/" + strconv.Itoa(number) + "/actions")
	return err == nil && strings.TrimSpace(handlers) == ""
}

// settleReads bounds the reads of a file that does not come to rest.
const settleReads = 100

// settled reads until two reads in a row agree on something, at most settleReads times.
// Where the interrupt chip moves a vector only when it fires (no interrupt remapping),
// a read at that very moment sees the affinity before the request, or nothing: the
// kernel clears the request before it takes effect (irq_move_masked_irq), and the file
// is read without its lock.
func settled(read func() (string, error)) (string, error) {
	last, err := read()
	for n := 1; n < settleReads && err == nil; n++ {
		var next string
		if next, err = read(); next == last && next != "" {
			break
		}
		last = next
	}
	return last, err
}

// An affinity that is doubted is read so often again, that far apart.
const (
	againReads = 10
	againPause = 10 * time.Millisecond
)

// Again calls look, which reads affinities again, until it reports true, for a tenth of a
// second at most, or until ctx ends; it returns what look said last. Where a vector is moved only
// when it fires and cannot be moved yet, the kernel tries at each interrupt, and each time
// its file shows the CPUs from before the request for a moment: to settled reads, too, as
// if somebody had taken the request back.
func Again(ctx context.Context, look func() bool) bool {
	for range againReads {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(againPause):
		}
		if look() {
			return true
		}
	}
	return false
}

// Effective returns the CPUs that take interrupt number now; ok is false where the
// kernel does not say.
func Effective(fs sysfs.FS, number int) (cpus cpulist.Set, ok bool) {
	text, err := fs.ReadString("/proc/irq/" + strconv.Itoa(number) + "/effective_affinity_list")
	if err != nil || text == "" {
		return cpulist.New(), false
	}
	cpus, err = cpulist.ParseKernel(text)
	return cpus, err == nil
}
