package drivertest

import (
	"testing"

	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/node"
)

// Simulated opens a built-in node with a state directory of its own.
func Simulated(t *testing.T, name string) *node.Node {
	t.Helper()
	return open(t, "sim:"+name)
}

// Captured opens a node whose tree is unpacked from a txtar archive; see
// fixture.Files for its form.
func Captured(t *testing.T, archive string) *node.Node {
	t.Helper()
	return open(t, fixture.Tree(t, archive))
}

func open(t *testing.T, ref string) *node.Node {
	t.Helper()
	n, err := node.Open(ref, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
