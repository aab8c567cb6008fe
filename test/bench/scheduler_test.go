package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestPatched makes the runtime of this Go quiet, and refuses others.
func TestPatched(t *testing.T) {
	_, proc, err := scheduler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := patched(proc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "proc.go", quiet, parser.SkipObjectResolution); err != nil {
		t.Error(err)
	}
	for _, p := range patches {
		if strings.Contains(string(quiet), p.old) || !strings.Contains(string(quiet), p.new) {
			t.Errorf("%q is not %q", p.old, p.new)
		}
	}
	for name, other := range map[string][]byte{
		"quiet already": quiet, "another one": []byte("package runtime\n"), "ambiguous": slices.Concat(proc, proc),
	} {
		if _, err := patched(other); err == nil {
			t.Errorf("%s: patched", name)
		}
	}
}

// TestQuiet checks that both ends of what is called quiet are, and that nothing else is.
func TestQuiet(t *testing.T) {
	here := options{device: "rxe0", peerDevice: "rxe0", addr: "10.0.0.1", quiet: "dir/quiet"}
	there := here
	there.server = "ssh b"
	for _, m := range scheduling {
		for _, c := range m.contestants(nil) {
			want := strings.HasSuffix(c.name, "quiet")
			for _, o := range []options{here, there} {
				ds := c.duels(o, m)
				if alone := strings.Contains(c.name, "one sender"); len(ds) == 0 && (!alone || m.stream) {
					t.Errorf("%s: %s has no run", m.name, c.name)
				}
				for _, d := range ds {
					server := "dir/quiet"
					if o.server != "" {
						server = quietProgram
					}
					if (d.client[0] == "dir/quiet") != want || (d.server[0] == server) != want {
						t.Errorf("%s: %s runs %q and %q", m.name, c.name, d.server[0], d.client[0])
					}
				}
			}
		}
	}
	if !(options{only: "scheduler 8 B"}).needsQuiet() || (options{only: "latency"}).needsQuiet() || (options{soft: true}).needsQuiet() {
		t.Error("what needs a quiet runtime")
	}
}
