package param

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 guards", 1: "1 guard", 2: "2 guards", -1: "-1 guards"} {
		if got := Count(n, "guard"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
