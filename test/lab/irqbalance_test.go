package main

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/irqbalance.sh
var irqbalanceScript string

// TestIrqbalance negotiates with the real daemon: what it moves before it leaves alone
// after, and may move again in the end, while it runs on.
func TestIrqbalance(t *testing.T) {
	needLab(t)
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "irqbalance.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "../../internal/irqbalance")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: irqbalanceScript, Programs: []string{program}, Out: t.TempDir(),
		Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the test says above what failed, or (2) the daemon has ended", res.ExitCode)
	}
	if !strings.Contains(res.Console, "--- PASS: TestDaemon ") {
		t.Error("TestDaemon did not pass, or was skipped")
	}
}
