package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/spec"
)

// TestBuild builds a whole release, and then one architecture again from another
// directory; with RDMATUNE_PACKAGES=cold also with an empty build cache, so that nothing
// of the first is used. Every byte must agree. It needs compilers for both architectures
// and takes minutes.
func TestBuild(t *testing.T) {
	mode := os.Getenv("RDMATUNE_PACKAGES")
	if mode == "" {
		t.Skip("compiles everything for two architectures; run it with: RDMATUNE_PACKAGES=1 go test ./packaging")
	}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	for _, clone := range []string{first, second} {
		command(t, "", "git", "clone", "-q", "..", clone)
	}
	command(t, first, "go", "run", "./packaging", "-install", "-out", "dist")
	if mode == "cold" {
		// Beside the clone; the temporary directory's removal takes it along.
		t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache"))
	}
	command(t, second, "go", "run", "./packaging", "-arch", "amd64", "-out", "dist")

	sums := command(t, filepath.Join(first, "dist"), "sha256sum", "-c", "SHA256SUMS")
	if n := strings.Count(sums, ": OK\n"); n != 6 {
		t.Errorf("%d files with a sum, want 6:\n%s", n, sums)
	}
	again, err := filepath.Glob(filepath.Join(second, "dist", "*amd64*"))
	if err != nil || len(again) != 3 {
		t.Fatalf("built again: %q, error %v", again, err)
	}
	for _, path := range again {
		if !bytes.Equal(content(t, path), content(t, filepath.Join(first, "dist", filepath.Base(path)))) {
			t.Errorf("%s is not as it was built before", filepath.Base(path))
		}
	}
	runs(t, first)
	for _, name := range []string{"amd64", "arm64"} {
		files, err := filepath.Glob(filepath.Join(first, "dist", "rdmatune_*_linux_"+name+"*"))
		if err != nil || len(files) != 2 {
			t.Fatalf("binaries: %q, error %v", files, err)
		}
		for _, file := range files {
			if body := content(t, file); bytes.Contains(body, []byte(first)) {
				t.Errorf("%s has the directory in it where it was built", filepath.Base(file))
			}
		}
	}
}

// runs runs the arm64 programs, emulated where this machine is none. The dynamic one
// finds its loader and C library where the cross compiler has them.
func runs(t *testing.T, clone string) {
	t.Helper()
	lacks := map[string]string{"": "", "_noverbs": " (built without verbs: it opens no RDMA device but soft0)"}
	for _, suffix := range []string{"", "_noverbs"} {
		files, err := filepath.Glob(filepath.Join(clone, "dist", "rdmatune_*_linux_arm64"+suffix))
		if err != nil || len(files) != 1 {
			t.Fatalf("programs %q, error %v", files, err)
		}
		run := []string{files[0]}
		if runtime.GOARCH != "arm64" {
			run = []string{"qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", files[0]}
		}
		if got, want := command(t, clone, run[0], append(run[1:], "version")...), "rdmatune "+spec.Version+lacks[suffix]+"\n"; got != want {
			t.Errorf("%s: version %q, want %q", filepath.Base(files[0]), got, want)
		}
		plan := command(t, clone, run[0], append(run[1:], "--state-dir", t.TempDir(), "plan", "--node", "sim:small", "examples/demo/node.hcl")...)
		if !strings.Contains(plan, "\nPlan: 8 to change, ") {
			t.Errorf("%s: planned\n%s", filepath.Base(files[0]), plan)
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
