// Package cpulist reads and writes sets of CPUs in the forms that the kernel and
// people use: lists ("0-3,8") and comma-grouped hexadecimal masks. It bounds every
// CPU number, so that hostile text cannot make a set grow without limit.
package cpulist

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Set is an immutable set of CPU numbers.
type Set = cpuset.CPUSet

// MaxCPUs bounds CPU numbers: they are below it. It is the largest NR_CPUS that
// the kernel's Kconfig offers on x86 (MAXSMP).
const MaxCPUs = 8192

// New returns the set of cpus.
func New(cpus ...int) Set { return cpuset.New(cpus...) }

// Format returns the canonical list of s, as the kernel prints it: ascending,
// ranges joined, "" for the empty set.
func Format(s Set) string { return s.String() }

// ParseKernel reads a list as the kernel prints it in /sys and /proc. Blank text,
// "(null)" (printed for a mask that was never allocated) and padding NULs are the
// empty set. "all" and "N" are an error here, since the last CPU is not known.
func ParseKernel(text string) (Set, error) { return ParseKernelN(text, -1) }

// ParseKernelN reads a list as the kernel takes it on its command line
// (Documentation/admin-guide/kernel-parameters.rst, "cpu lists"): as ParseKernel,
// with "all" for every CPU up to last, "N" for last, and strides "0-15:2/4" (the
// first two of every four).
func ParseKernelN(text string, last int) (Set, error) {
	if i := strings.IndexByte(text, 0); i >= 0 && strings.Trim(text[i:], "\x00") == "" {
		text = text[:i]
	}
	text = strings.TrimSpace(text)
	if text == "" || text == "(null)" {
		return New(), nil
	}
	var cpus []int
	for elem := range strings.SplitSeq(text, ",") {
		elem = strings.TrimSpace(elem)
		if elem == "" {
			continue // the kernel's own parser skips empty elements
		}
		more, err := kernelElement(elem, last)
		if err != nil {
			return New(), err
		}
		cpus = append(cpus, more...)
		if len(cpus) > 8*MaxCPUs {
			return New(), fmt.Errorf("CPU list names more than %d CPUs", 8*MaxCPUs)
		}
	}
	return New(cpus...), nil
}

// kernelElement reads one element between commas.
func kernelElement(elem string, last int) ([]int, error) {
	span, stride, hasStride := strings.Cut(elem, ":")
	used, group := 1, 1
	if hasStride {
		u, g, ok := strings.Cut(stride, "/")
		var okU, okG bool
		used, okU = number(u)
		group, okG = number(g)
		if !ok || !okU || !okG || used == 0 || group == 0 || used > group {
			return nil, fmt.Errorf("CPU list element %.40q: the stride is not USED/GROUP", elem)
		}
	}
	lo, hi, err := kernelSpan(span, last)
	if err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := lo; cpu <= hi; cpu++ {
		if (cpu-lo)%group < used {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// kernelSpan reads "A", "A-B" or "all".
func kernelSpan(span string, last int) (lo, hi int, err error) {
	if strings.EqualFold(span, "all") && last >= 0 && last < MaxCPUs {
		return 0, last, nil
	}
	a, b, isRange := strings.Cut(span, "-")
	lo, okA := kernelNumber(a, last)
	hi, okB := lo, okA
	if isRange {
		hi, okB = kernelNumber(b, last)
	}
	switch {
	case !okA || !okB:
		return 0, 0, fmt.Errorf("CPU list element %.40q is neither a CPU below %d nor a range of them", span, MaxCPUs)
	case hi < lo:
		return 0, 0, fmt.Errorf("CPU list element %.40q runs backwards", span)
	}
	return lo, hi, nil
}

// kernelNumber reads a CPU number, or "N" for last.
func kernelNumber(s string, last int) (int, bool) {
	if (s == "N" || s == "n") && last >= 0 && last < MaxCPUs {
		return last, true
	}
	return number(s)
}

// number reads a CPU number: decimal digits only, below MaxCPUs.
func number(s string) (int, bool) {
	if s == "" || len(s) > 9 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n < MaxCPUs
}
