package irqbalance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxIRQs bounds the list that a daemon may tell; a large machine has some ten thousand
// interrupts.
const maxIRQs = 1 << 16

// A Setup is what the daemon tells of its settings.
type Setup struct {
	Interval time.Duration // between two scans
	Banned   []int         // ascending, each once
	// BannedCPUs is the mask of the CPUs that get no interrupt, in the kernel's notation.
	BannedCPUs string
}

// parseSetup reads the answer to "setup": "SLEEP seconds", then for each banned interrupt
// "IRQ n LOAD n DIFF n CLASS n", then "BANNED mask".
func parseSetup(text string) (Setup, error) {
	var s Setup
	fields := strings.Fields(text)
	next := func(key string) (string, error) {
		if len(fields) < 2 || fields[0] != key {
			return "", fmt.Errorf("irqbalance's setup: no %s where it should be", key)
		}
		v := fields[1]
		fields = fields[2:]
		return v, nil
	}
	sleep, err := next("SLEEP")
	if err != nil {
		return s, err
	}
	seconds, err := strconv.ParseInt(sleep, 10, 32)
	if err != nil || seconds < 0 {
		return s, fmt.Errorf("irqbalance's setup: interval %.20q", sleep)
	}
	s.Interval = time.Duration(seconds) * time.Second
	for len(fields) > 0 && fields[0] == "IRQ" {
		text, err := next("IRQ")
		if err != nil {
			return s, err
		}
		irq, err := parseIRQ(text)
		if err != nil {
			return s, fmt.Errorf("irqbalance's setup: %w", err)
		}
		for _, key := range []string{"LOAD", "DIFF", "CLASS"} {
			if _, err := next(key); err != nil {
				return s, err
			}
		}
		if s.Banned = append(s.Banned, irq); len(s.Banned) > maxIRQs {
			return s, errors.New("irqbalance's setup: too many interrupts")
		}
	}
	if s.BannedCPUs, err = next("BANNED"); err != nil {
		return s, err
	}
	if len(fields) > 0 || strings.Trim(s.BannedCPUs, "0123456789abcdefABCDEF,") != "" {
		return s, errors.New("irqbalance's setup: more than a CPU mask at its end")
	}
	s.Banned = unique(s.Banned)
	return s, nil
}

func parseIRQ(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%.20q is not the number of an interrupt", text)
	}
	return int(n), nil
}

// bannedByArgs returns the interrupts of --banirq in a daemon's command line, in all of the
// ways in which getopt_long(3) takes it.
func bannedByArgs(args []string) []int {
	var irqs []int
	add := func(text string) {
		if n, err := parseIRQ(strings.TrimSpace(text)); err == nil {
			irqs = append(irqs, n)
		}
	}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			return unique(irqs)
		case (a == "--banirq" || a == "-i") && i+1 < len(args):
			i++
			add(args[i])
		case strings.HasPrefix(a, "--banirq="):
			add(a[len("--banirq="):])
		case strings.HasPrefix(a, "-i"):
			add(a[len("-i"):])
		}
	}
	return unique(irqs)
}

// unique sorts irqs in place and drops what is there twice.
func unique(irqs []int) []int {
	slices.Sort(irqs)
	return slices.Compact(irqs)
}

// without returns the elements of a that are not in b; both are sorted.
func without(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(n int) bool {
		_, found := slices.BinarySearch(b, n)
		return found
	})
}

// union returns the elements of both, sorted.
func union(a, b []int) []int { return unique(slices.Concat(a, b)) }
