package drivertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/node"
)

// Simulated opens a built-in node with a state directory of its own.
func Simulated(t *testing.T, name string) *node.Node {
	t.Helper()
	return open(t, "sim:"+name)
}

// Captured opens a node whose tree is unpacked from a txtar archive. A file whose
// name ends in "@" is a symbolic link to its content, one in "!" is read-only.
func Captured(t *testing.T, archive string) *node.Node {
	t.Helper()
	a, err := txtar.ParseFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range a.Files {
		name, link := strings.CutSuffix(f.Name, "@")
		name, fixed := strings.CutSuffix(name, "!")
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if fixed {
			mode = 0o444
		}
		if link {
			err = os.Symlink(strings.TrimSpace(string(f.Data)), path)
		} else {
			err = os.WriteFile(path, f.Data, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return open(t, root)
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
