package main

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/watch.sh
var watchScript string

// TestWatch hears of what happens on a real node: writers of interrupt affinity, frequency
// limits and latency limits, a driver that is bound again, a CPU that goes and comes, links,
// coalescing, and thousands of processes.
func TestWatch(t *testing.T) {
	needLab(t)
	dir := t.TempDir()
	program, nothing := filepath.Join(dir, "watch.test"), filepath.Join(dir, "nothing")
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "../../reconcile/watch")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := buildNothing(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: watchScript, Programs: []string{program, nothing}, Out: t.TempDir(), Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the tests say above what failed", res.ExitCode)
	}
	if passed := strings.Count(res.Console, "--- PASS: Test"); passed < 30 || strings.Contains(res.Console, "--- SKIP") {
		t.Errorf("%d tests passed; all of at least 30 must, and none be skipped", passed)
	}
}

// buildNothing builds a program that ends at once, so that thousands of processes take
// seconds.
func buildNothing(ctx context.Context, path string) error {
	compile := exec.CommandContext(ctx, "gcc", "-x", "c", "-static", "-nostdlib", "-o", path, "-")
	compile.Stdin = strings.NewReader(`void _start(void) { __asm__("mov $60, %eax; xor %edi, %edi; syscall"); }`)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compile: %w: %s", err, out)
	}
	return nil
}
