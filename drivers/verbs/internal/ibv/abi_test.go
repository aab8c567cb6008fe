package ibv

import (
	"os/exec"
	"strings"
	"testing"
)

// TestABI compares abi.h with the library's own header.
func TestABI(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "gcc", "-fsyntax-only", "testdata/abi_check.c").CombinedOutput()
	switch {
	case err == nil:
	case strings.Contains(string(out), "infiniband/verbs.h: No such file"):
		t.Fatal("the real header is needed to compare with: apt-get install libibverbs-dev")
	default:
		t.Fatalf("abi.h differs from infiniband/verbs.h: %v\n%s", err, out)
	}
}
