// Package interrupts tells which interrupt vectors a PCI function has, what their
// handlers are called, and which CPUs they are asked to go to.
package interrupts

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/pci"
)

// A Row is one numbered line of /proc/interrupts.
type Row struct {
	Number int
	Action string // names of the handlers, comma-separated; "" when none is installed
	PCI    string // the function that the row names, "" when it names none
}

// ParseTable reads /proc/interrupts. Lines that do not start with a number (NMI:,
// Err:, FIQ:) are no vectors and left out, whatever their shape.
func ParseTable(text []byte) []Row {
	var rows []Row
	columns := -1
	for line := range bytes.Lines(text) {
		s := strings.TrimRight(string(line), "\n\x00")
		if columns < 0 {
			if fields := strings.Fields(s); len(fields) > 0 && strings.HasPrefix(fields[0], "CPU") {
				columns = len(fields)
				continue
			}
		}
		label, rest, ok := strings.Cut(s, ":")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(label), 10, 31)
		if err != nil {
			continue
		}
		// A copy: a row that held on to its line would keep the counters of all CPUs.
		rest = strings.Clone(afterCounters(rest, columns))
		row := Row{Number: int(n), Action: action(rest)}
		// An action names its own function; the chip column of newer kernels the
		// function of the vector. They agree except for sub-functions.
		if row.PCI = pci.Find(row.Action); row.PCI == "" {
			row.PCI = pci.Find(rest)
		}
		rows = append(rows, row)
	}
	return rows
}

// afterCounters skips the counters of a row: one per column of the header, since
// the chip's name after them may start with a digit.
func afterCounters(s string, columns int) string {
	at := 0
	for n := 0; columns < 0 || n < columns; n++ {
		i := at
		for i < len(s) && s[i] == ' ' {
			i++
		}
		digits := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == digits || i < len(s) && s[i] != ' ' {
			break
		}
		at = i
	}
	return s[at:]
}

// trigger is the column before the actions: "67633152-edge", "16384", "Edge", "-event".
var trigger = regexp.MustCompile(`^([0-9]+|[0-9]*-[A-Za-z]+|Edge|Level|[0-9]+ +(Edge|Level))$`)

// action returns the handlers' names: what follows the last gap of two blanks, which
// the kernel prints before them. Names may hold single blanks. The chip and the
// trigger, which stand before, vary too much to be read from the left.
func action(s string) string {
	t := strings.TrimRight(s, " ")
	gap := strings.LastIndex(t, "  ")
	if gap < 0 || strings.TrimSpace(t[:gap]) == "" {
		return "" // the chip alone
	}
	t = t[gap+2:]
	if trigger.MatchString(t) {
		return ""
	}
	return t
}

// Counts adds up the counters of the numbered interrupts by CPU ("CPU3"), from the
// text of /proc/interrupts.
func Counts(text []byte, numbers map[int]bool) map[string]uint64 {
	out := map[string]uint64{}
	var cpus []string
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if cpus == nil {
			if len(fields) == 0 || !strings.HasPrefix(fields[0], "CPU") {
				return out // without the header nobody knows whose the counters are
			}
			cpus = fields
			continue
		}
		if len(fields) < len(cpus)+1 {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSuffix(fields[0], ":"))
		if err != nil || !numbers[n] {
			continue
		}
		for i, cpu := range cpus {
			if count, err := strconv.ParseUint(fields[i+1], 10, 64); err == nil {
				out[cpu] += count
			}
		}
	}
	return out
}
