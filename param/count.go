package param

import (
	"fmt"
	"strings"
)

// Count is a number of things in words: "1 guard", "2 guards", "3 processes", "4
// policies". what is the regular noun for one of them; what may stand before it, as in
// "timed message".
func Count[N ~int | ~int64 | ~uint64](n N, what string) string {
	switch stem, y := strings.CutSuffix(what, "y"); {
	case n == 1:
		return "1 " + what
	case y && !strings.ContainsAny(stem[max(len(stem)-1, 0):], "aeiou"):
		return fmt.Sprintf("%d %sies", n, stem)
	case strings.HasSuffix(what, "s"), strings.HasSuffix(what, "h"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
