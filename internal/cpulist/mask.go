package cpulist

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseMask reads a mask as the kernel prints it: hexadecimal groups of 32 bits,
// the rightmost group for CPUs 0 to 31, leading groups and digits left out.
func ParseMask(text string) (Set, error) {
	text = strings.TrimSpace(strings.TrimRight(text, "\x00"))
	if text == "" {
		return New(), nil
	}
	groups := strings.Split(text, ",")
	if len(groups) > MaxCPUs/32 {
		return New(), fmt.Errorf("CPU mask has %d groups, more than %d CPUs", len(groups), MaxCPUs)
	}
	var cpus []int
	for i, group := range groups {
		if len(group) > 8 || strings.ContainsAny(group, "+-_") {
			return New(), fmt.Errorf("CPU mask group %.20q is not at most 8 hexadecimal digits", group)
		}
		bits, err := strconv.ParseUint(group, 16, 32)
		if err != nil {
			return New(), fmt.Errorf("CPU mask group %.20q is not at most 8 hexadecimal digits", group)
		}
		base := (len(groups) - 1 - i) * 32
		for bit := range 32 {
			if bits&(1<<bit) != 0 {
				cpus = append(cpus, base+bit)
			}
		}
	}
	return New(cpus...), nil
}

// FormatMask returns the mask of s as the kernel prints it on a machine with
// width possible CPUs: whole groups, the first cut to the digits it needs.
func FormatMask(s Set, width int) string {
	width = max(width, 1)
	if list := s.List(); len(list) > 0 {
		width = max(width, list[len(list)-1]+1)
	}
	groups := make([]uint32, (width+31)/32)
	for _, cpu := range s.UnsortedList() {
		groups[cpu/32] |= 1 << (cpu % 32)
	}
	top := len(groups) - 1
	var b strings.Builder
	fmt.Fprintf(&b, "%0*x", (width-32*top+3)/4, groups[top])
	for i := top - 1; i >= 0; i-- {
		fmt.Fprintf(&b, ",%08x", groups[i])
	}
	return b.String()
}
