package param

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseBytes reads a size: digits, then nothing or one of B, KiB, MiB, GiB, with
// at most one space between. K, KB, M, MB, G and GB are taken as powers of 1024
// too, and notice says so, since other tools disagree about them. Anything else is
// an error that says what was found: a size is never guessed.
func ParseBytes(s string) (n int64, notice string, err error) {
	num, unit, err := splitUnit(s)
	if err != nil {
		return 0, "", fmt.Errorf("size %w; write bytes as an integer or with B, KiB, MiB or GiB", err)
	}
	shift, binary := uint(0), unit
	switch unit {
	case "", "B":
	case "KiB", "K", "KB":
		shift, binary = 10, "KiB"
	case "MiB", "M", "MB":
		shift, binary = 20, "MiB"
	case "GiB", "G", "GB":
		shift, binary = 30, "GiB"
	default:
		return 0, "", fmt.Errorf("size %q: unknown unit %q; use B, KiB, MiB or GiB", s, unit)
	}
	n, err = strconv.ParseInt(num, 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, "", fmt.Errorf("size %q is too large", s)
	}
	if binary != unit {
		notice = fmt.Sprintf("%q is read as %s %s = %d bytes (1 %s = 1024-based); write %s to be clear",
			s, num, binary, n<<shift, unit, binary)
	}
	return n << shift, notice, nil
}

// ParseFrequency reads a frequency such as "2600MHz" or "2.6GHz" and returns kHz.
// A unit is required (Hz, kHz, MHz or GHz); up to three decimals are allowed with
// MHz and six with GHz, so that the result is always a whole number of kHz.
func ParseFrequency(s string) (kHz int64, err error) {
	num, unit, err := splitUnit(s)
	if err != nil && !strings.Contains(s, ".") {
		return 0, fmt.Errorf("frequency %w; write it as in 2600MHz", err)
	}
	if err != nil {
		i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if i < 0 {
			i = len(s)
		}
		num, unit = s[:i], strings.TrimPrefix(s[i:], " ")
	}
	decimals := map[string]int{"kHz": 0, "KHz": 0, "MHz": 3, "GHz": 6}
	d, ok := decimals[unit]
	if !ok {
		if unit == "" {
			return 0, fmt.Errorf("frequency %q has no unit; write it as in 2600MHz", s)
		}
		return 0, fmt.Errorf("frequency %q: unknown unit %q; use kHz, MHz or GHz", s, unit)
	}
	whole, frac, hasFrac := strings.Cut(num, ".")
	if whole == "" || hasFrac && (frac == "" || !allDigits(frac)) || !allDigits(whole) {
		return 0, fmt.Errorf("frequency %q: %q is not a number", s, num)
	}
	if len(frac) > d {
		return 0, fmt.Errorf("frequency %q is finer than 1 kHz", s)
	}
	kHz, err = strconv.ParseInt(whole+frac+strings.Repeat("0", d-len(frac)), 10, 64)
	if err != nil || kHz > 100_000_000 {
		return 0, fmt.Errorf("frequency %q is too large", s)
	}
	if kHz == 0 {
		return 0, fmt.Errorf("frequency %q is zero", s)
	}
	return kHz, nil
}

// ParseDuration reads a duration: digits followed by us, ms, s, m or h. Unlike
// time.ParseDuration it takes no fractions, signs or chains.
func ParseDuration(s string) (time.Duration, error) {
	num, unit, err := splitUnit(s)
	if err != nil {
		return 0, fmt.Errorf("duration %w; write it as in 500ms, 2s or 10m", err)
	}
	units := map[string]time.Duration{
		"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
	}
	u, ok := units[unit]
	if !ok {
		if unit == "" {
			return 0, fmt.Errorf("duration %q has no unit; use us, ms, s, m or h", s)
		}
		return 0, fmt.Errorf("duration %q: unknown unit %q; use us, ms, s, m or h", s, unit)
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n > int64(math.MaxInt64/u) {
		return 0, fmt.Errorf("duration %q is too large", s)
	}
	return time.Duration(n) * u, nil
}

// splitUnit splits "16 KiB" into "16" and "KiB". Its errors start with the quoted
// text so that a caller can put the kind of quantity before it.
func splitUnit(s string) (num, unit string, err error) {
	i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if i < 0 {
		i = len(s)
	}
	num, unit = s[:i], strings.TrimPrefix(s[i:], " ")
	switch {
	case s == "":
		return "", "", fmt.Errorf("%q is empty", s)
	case strings.HasPrefix(s, "-"):
		return "", "", fmt.Errorf("%q is negative", s)
	case num == "":
		return "", "", fmt.Errorf("%q does not start with a number", s)
	case strings.HasPrefix(unit, "."):
		return "", "", fmt.Errorf("%q is a fraction", s)
	case i < len(s) && s[i] == ' ' && unit == "":
		return "", "", fmt.Errorf("%q ends in a space", s)
	}
	return num, unit, nil
}

func allDigits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}
