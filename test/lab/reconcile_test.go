package main

import (
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/reconcile.sh
var reconcileScript string

// TestReconcile sets everything on the machine against the daemon. The script asks the
// kernel; here is what the benchmark says of its messages.
func TestReconcile(t *testing.T) {
	needLab(t)
	program := filepath.Join(t.TempDir(), "rdmatune")
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	if err := vm.BuildRDMATune(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: reconcileScript, Files: []string{"testdata/reconcile.hcl"}, Programs: []string{program},
		Out: t.TempDir(), Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the script says above what failed", res.ExitCode)
	}
	b, err := os.ReadFile(filepath.Join(res.OutDir, "bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rep struct {
		Sizes []struct {
			N                                      int64
			Lost, Duplicated, Reordered, Corrupted uint64
		}
		Switches []struct{ Outcome string }
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		t.Fatalf("bench.json: %v in %.300q", err, b)
	}
	for _, s := range rep.Sizes {
		if s.N == 0 || s.Lost+s.Duplicated+s.Reordered+s.Corrupted != 0 {
			t.Errorf("messages %+v", s)
		}
	}
	// Five kills of the daemon and dozens of sweeps later: one switch, for one change.
	if len(rep.Switches) != 1 || rep.Switches[0].Outcome != "switched" {
		t.Errorf("switches %+v, want one", rep.Switches)
	}
}
