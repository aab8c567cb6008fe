// Package pci knows the text of PCI addresses: DOMAIN:BUS:DEVICE.FUNCTION in
// lower-case hexadecimal. The domain has four digits or more ("10000:00:04.0" on
// machines with VMD, "8b76:00:02.0" in Azure).
package pci

import (
	"regexp"
	"strings"
)

var address = regexp.MustCompile(`[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]`)

// Valid reports whether s is one whole PCI address.
func Valid(s string) bool {
	return s != "" && len(s) <= 16 && address.FindString(s) == s
}

// OfPath returns the PCI function that path leads through last, "" when none. In
// /sys a device hangs below its parents, so the deepest function is the nearest:
// below it may be an auxiliary or a virtio device.
func OfPath(path string) string {
	found := ""
	for elem := range strings.SplitSeq(path, "/") {
		if Valid(elem) {
			found = elem
		}
	}
	return found
}

// Find returns the first PCI address in s, "" when none.
func Find(s string) string {
	for at := 0; at < len(s); {
		loc := address.FindStringIndex(s[at:])
		if loc == nil {
			return ""
		}
		from, to := at+loc[0], at+loc[1]
		if (from == 0 || !isHex(s[from-1])) && (to == len(s) || !isHex(s[to])) {
			return s[from:to]
		}
		at = from + 1
	}
	return ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
