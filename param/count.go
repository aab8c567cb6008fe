package param

import "fmt"

// Count is a number of things in words: "1 guard", "2 guards". what is the regular noun
// for one of them; what may stand before it, as in "timed message".
func Count[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
