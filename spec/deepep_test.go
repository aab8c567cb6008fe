package spec

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// TestDeepEP holds the formula to values worked out from DeepEP's own code, in bytes.
func TestDeepEP(t *testing.T) {
	for _, tc := range []struct {
		tokens, hidden, experts int64
		want                    string
	}{
		{128, 7168, 256, "1908410496"},
		{128, 7168, 288, "2146961792"},
		{256, 7168, 256, "3816818816"},
	} {
		if got := deepepNeeds(tc.tokens, tc.hidden, tc.experts).String(); got != tc.want {
			t.Errorf("%d tokens, hidden %d, %d experts: %s, want %s", tc.tokens, tc.hidden, tc.experts, got, tc.want)
		}
	}
	call := func(args ...int64) (string, error) {
		vals := make([]cty.Value, len(args))
		for i, a := range args {
			vals[i] = cty.NumberIntVal(a)
		}
		v, err := deepepBytes.Call(vals)
		if err != nil {
			return "", err
		}
		return v.AsBigFloat().Text('f', 0), nil
	}
	if got, err := call(128, 7168, 16, 256, 2_000_000_000); err != nil || got != "1908410496" {
		t.Errorf("with a buffer that is large enough: %s, %v", got, err)
	}
	for want, args := range map[string][]int64{
		"needs|need 1908410496 (1908410496 B)|too small": {128, 7168, 16, 256, 1_908_410_495},
		"less than 32 GiB": {2048, 5120, 8, 448},
		"do not divide":    {128, 7168, 48, 256},
		"one buffer":       {128, 7168, 16, 256, 1 << 40, 1},
	} {
		_, err := call(args...)
		if err == nil {
			t.Errorf("%v is taken", args)
			continue
		}
		found := false
		for w := range strings.SplitSeq(want, "|") {
			found = found || strings.Contains(err.Error(), w)
		}
		if !found {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	// 31.94 GiB fits, 32.21 GiB does not.
	if _, err := call(1840, 5120, 8, 448); err != nil {
		t.Errorf("just below the limit: %v", err)
	}
	if _, err := call(1856, 5120, 8, 448); err == nil {
		t.Error("just above the limit is taken")
	}
}
