package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/node"
)

// TestSnapshot captures nodes and finds the same facts in the capture.
func TestSnapshot(t *testing.T) {
	refs, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(refs) == 0 {
		t.Fatalf("no machines in testdata: %v", err)
	}
	for i, file := range refs {
		refs[i] = fixture.Tree(t, file)
	}
	for _, ref := range append(refs, "sim:small", "sim:dgx", "sim:vm") {
		n, err := node.Open(ref, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		snap := n.StartSnapshot()
		want, err := n.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range want.Netdevs {
			if err := snap.Coalescing(d.Name); err != nil {
				t.Errorf("%s: %v", ref, err)
			}
		}
		file := filepath.Join(t.TempDir(), "node.tar.gz")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := snap.Write(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		captured, err := node.Open(file, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		got, err := captured.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -node +capture\n%s", ref, diff)
		}
		for _, d := range want.Netdevs {
			a, errA := n.Coalesce(d.Name)
			b, errB := captured.Coalesce(d.Name)
			if diff := cmp.Diff(a, b); diff != "" || (errA == nil) != (errB == nil) {
				t.Errorf("%s: coalescing of %s: %v, %v\n%s", ref, d.Name, errA, errB, diff)
			}
		}
	}
}
