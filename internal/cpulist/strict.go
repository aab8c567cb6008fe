package cpulist

import (
	"fmt"
	"strings"
)

// A SyntaxError says what is wrong in a list that a person wrote, and where.
type SyntaxError struct {
	Text   string // the whole list
	Offset int    // of the offending element, in bytes
	Elem   string // the offending element
	Msg    string
}

// Error gives the message with the element and its place, counted from 1.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("CPU list %.60q, character %d: %s", e.Text, e.Offset+1, e.Msg)
}

// ParseStrict reads a list that a person wrote. It takes "0-3,8" with spaces
// around elements; anything else is a *SyntaxError: a list that is read in another
// sense than its author's pins processes to the wrong CPUs without a word. Blank
// text is the empty set.
func ParseStrict(text string) (Set, error) {
	if strings.TrimSpace(text) == "" {
		return New(), nil
	}
	var cpus []int
	offset := 0
	for raw := range strings.SplitSeq(text, ",") {
		elem := strings.TrimSpace(raw)
		at := offset + strings.Index(raw, elem)
		lo, hi, msg := strictElement(elem)
		if msg != "" {
			return New(), &SyntaxError{Text: text, Offset: at, Elem: elem, Msg: msg}
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus = append(cpus, cpu)
		}
		if len(cpus) > 8*MaxCPUs {
			return New(), &SyntaxError{Text: text, Offset: at, Elem: elem, Msg: "the list repeats too many CPUs"}
		}
		offset += len(raw) + 1
	}
	return New(cpus...), nil
}

// strictElement reads "A" or "A-B"; msg is empty when elem is right.
func strictElement(elem string) (lo, hi int, msg string) {
	switch {
	case elem == "":
		return 0, 0, "nothing between two commas"
	case elem[0] == '^' || elem[0] == '!':
		return 0, 0, fmt.Sprintf("%.40q excludes CPUs, which a kernel list cannot say; use cpuset_subtract(list, %q)", elem, elem[1:])
	case strings.ContainsAny(elem, `"'`):
		return 0, 0, fmt.Sprintf("%.40q has quotes inside the list", elem)
	case strings.EqualFold(elem, "all") || strings.HasSuffix(elem, "-N") || elem == "N":
		return 0, 0, fmt.Sprintf("%.40q is known to the kernel command line only; use node.cpus.online", elem)
	case strings.Contains(elem, ":"):
		return 0, 0, fmt.Sprintf("%.40q has a stride, which is known to the kernel command line only; write the CPUs out", elem)
	case strings.HasPrefix(elem, "0x"):
		return 0, 0, fmt.Sprintf("%.40q is a mask; write a list such as 0-3,8", elem)
	}
	a, b, isRange := strings.Cut(elem, "-")
	lo, ok := number(a)
	hi = lo
	if isRange && ok {
		hi, ok = number(b)
	}
	switch {
	case !ok:
		return 0, 0, fmt.Sprintf("%.40q is neither a CPU below %d nor a range such as 0-3", elem, MaxCPUs)
	case hi < lo:
		return 0, 0, fmt.Sprintf("the range %q runs backwards; write %d-%d", elem, hi, lo)
	}
	return lo, hi, ""
}
