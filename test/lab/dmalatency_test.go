package main

import (
	_ "embed"
	"path/filepath"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/dmalatency.sh
var dmaLatencyScript string

// TestDMALatency holds /dev/cpu_dma_latency by a daemon that starts, follows its spec, is
// killed, and stops.
func TestDMALatency(t *testing.T) {
	needLab(t)
	program := filepath.Join(t.TempDir(), "rdmatune")
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	if err := vm.BuildRDMATune(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: dmaLatencyScript, Programs: []string{program}, Out: t.TempDir(), Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the script says above what failed", res.ExitCode)
	}
}
