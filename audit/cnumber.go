package audit

import (
	"math"
	"strconv"
	"strings"
)

// How C reads numbers from text, by function.

// strtol is strtoll(3) with base 0: white space, a sign, 0x and 0 prefixes; it stops at
// the first character that it does not know and returns how far it came. Out of range
// it saturates.
func strtol(s string) (n int64, used int, overflow bool) {
	i := 0
	for i < len(s) && (s[i] == ' ' || s[i] >= '\t' && s[i] <= '\r') {
		i++
	}
	negative := false
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		negative = s[i] == '-'
		i++
	}
	base := uint64(10)
	switch {
	case len(s) > i+2 && s[i] == '0' && (s[i+1] == 'x' || s[i+1] == 'X') && digit(s[i+2]) < 16:
		base, i = 16, i+2
	case i < len(s) && s[i] == '0':
		base = 8
	}
	var v uint64
	start := i
	for i < len(s) && digit(s[i]) < base {
		if v > (math.MaxUint64-digit(s[i]))/base {
			overflow = true
		} else {
			v = v*base + digit(s[i])
		}
		i++
	}
	if i == start {
		return 0, 0, false
	}
	switch {
	case !negative && (overflow || v > math.MaxInt64):
		return math.MaxInt64, i, true
	case negative && (overflow || v > 1<<63):
		return math.MinInt64, i, true
	case negative:
		return -int64(v), i, false
	}
	return int64(v), i, false
}

func digit(c byte) uint64 {
	switch {
	case c >= '0' && c <= '9':
		return uint64(c - '0')
	case c >= 'a' && c <= 'f':
		return uint64(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return uint64(c-'A') + 10
	}
	return 255
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

// scanLong is scanf's %ld: decimal; what does not fit saturates.
func scanLong(text string) (n int64, rest string, overflow, ok bool) {
	s := strings.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if end < len(s) && (s[end] == '-' || s[end] == '+') {
		end++
	}
	digits := end
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end == digits {
		return 0, "", false, false
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(s[:end], "+"), 10, 64) // saturates as scanf does
	return n, s[end:], err != nil, true
}

// floatEnd is where a decimal floating point number at the start of s ends.
func floatEnd(s string) int {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.' || i == 0 && (s[i] == '+' || s[i] == '-')) {
		i++
	}
	if i < len(s)-1 && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if s[j] == '+' || s[j] == '-' {
			j++
		}
		if j < len(s) && s[j] >= '0' && s[j] <= '9' {
			for j < len(s) && s[j] >= '0' && s[j] <= '9' {
				j++
			}
			return j
		}
	}
	return i
}
