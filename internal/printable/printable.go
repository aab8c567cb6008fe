// Package printable makes texts of unknown origin fit for one line of a terminal:
// names of processes, lines of files, answers of sockets.
package printable

import (
	"strconv"
	"strings"
)

// Line returns text with '?' for each character that is not printable in the sense of
// strconv.IsPrint, and for each run of bytes that is not UTF-8. That leaves no control
// character of either set (C0, C1), no line end, and nothing that changes the direction
// of what follows.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Clip is Line for at most most bytes of text; what is cut off leaves "...".
func Clip(text string, most int) string {
	if len(text) <= most {
		return Line(text)
	}
	return Line(strings.ToValidUTF8(text[:max(most, 0)], "")) + "..."
}
