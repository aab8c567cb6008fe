package param

import "testing"

func TestCount(t *testing.T) {
	for _, tc := range []struct {
		n          int
		what, want string
	}{
		{0, "guard", "0 guards"}, {1, "guard", "1 guard"}, {2, "guard", "2 guards"}, {1, "timed message", "1 timed message"},
		{1, "process", "1 process"}, {2, "process", "2 processes"}, {2, "switch", "2 switches"}, {1, "policy", "1 policy"},
		{3, "policy", "3 policies"}, {2, "relay", "2 relays"},
	} {
		if got := Count(tc.n, tc.what); got != tc.want {
			t.Errorf("%d of %q: %q", tc.n, tc.what, got)
		}
	}
}
