package natural

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	order := []string{
		"", "0000:18:00.0/2", "0000:18:00.0/10", "10", "a", "mlx5_2", "mlx5_010", "mlx5_10", "mlx5_10a", "mlx5_11",
		"n18446744073709551615", "n18446744073709551616", "policy2", "policy10", "policy10a",
	}
	for i, a := range order {
		for j, b := range order {
			if got := Compare(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("Compare(%q, %q) = %d", a, b, got)
			}
		}
	}
}

// FuzzCompare: it is an order, whatever the names are.
func FuzzCompare(f *testing.F) {
	f.Add("a1", "a01", "a1b")
	f.Add("0", "00", "")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if Compare(a, b) != -Compare(b, a) || (Compare(a, b) == 0) != (a == b) {
			t.Errorf("%q and %q: %d, %d", a, b, Compare(a, b), Compare(b, a))
		}
		if Compare(a, b) < 0 && Compare(b, c) < 0 && Compare(a, c) >= 0 {
			t.Errorf("%s: a circle", strings.Join([]string{a, b, c}, " < "))
		}
	})
}
