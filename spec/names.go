package spec

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// identifier is what a workload, a variable and a local may be called. It is
// narrower than HCL's: a name also becomes a file name and a metric's label.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// ValidAddress reports whether s can be a workload's address: a name, with for_each
// also a key.
func ValidAddress(s string) bool {
	name, key, keyed := strings.Cut(s, "[")
	if !identifier.MatchString(name) || !keyed {
		return identifier.MatchString(s)
	}
	key, ok := strings.CutSuffix(key, "]")
	text, err := strconv.Unquote(key)
	return ok && err == nil && validKey(text) && strconv.Quote(text) == key
}

// validKey reports whether s can be a key of for_each: it becomes part of addresses,
// file names and environment variables.
func validKey(s string) bool {
	return s != "" && len(s) <= 63 && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '"' || r == '\\' || r == utf8.RuneError || !strconv.IsPrint(r)
	})
}
