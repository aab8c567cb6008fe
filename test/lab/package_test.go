package main

import (
	"bytes"
	_ "embed"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/package.sh
var packageScript string

// TestPackage installs the Debian package on a machine that systemd runs, and follows it
// from there to its purge. The second version differs from the first by its number.
func TestPackage(t *testing.T) {
	needLab(t)
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	root, err := vm.DebianRoot(t.Context(), t.Output(), true)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"testdata/package.hcl"}
	for _, version := range []string{"0.1.0", "0.2.0-rc.1"} {
		dir := t.TempDir()
		build := exec.CommandContext(t.Context(), "go", "run", "../../packaging", "-arch", "amd64", "-version", version, "-out", dir)
		if msg, err := build.CombinedOutput(); err != nil {
			t.Fatalf("version %s: %v\n%s", version, err, msg)
		}
		debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(debs) != 1 {
			t.Fatalf("version %s: packages %q, error %v", version, debs, err)
		}
		files = append(files, debs[0])
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: packageScript, Files: files, Root: root,
		Out: t.TempDir(), Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the script says above what failed", res.ExitCode)
	}

	// Between the script's marks the daemon was upgraded: the hardware must have stayed
	// as it was tuned.
	writes, locked := res.PStates[2], byte(slices.Index(vm.Frequencies, 2_200_000))
	before, after := bytes.IndexByte(writes, 0xa1), bytes.IndexByte(writes, 0xa2)
	if before < 1 || after < before {
		t.Fatalf("CPU 2: the script's marks are not in the P-states %x", writes)
	}
	if writes[before-1] != locked || len(bytes.Trim(writes[before+1:after], string(rune(locked)))) > 0 {
		t.Errorf("CPU 2: the hardware got P-states %x; want %x before a1, and nothing else until a2", writes, locked)
	}
}
