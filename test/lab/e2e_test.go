package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/e2e.sh
var e2eScript string

// TestEndToEnd applies a spec on a node under traffic and takes it back. The script
// asks the guest's kernel; here is what only the host knows, the hardware's side, and
// what the benchmark says of its messages.
func TestEndToEnd(t *testing.T) {
	needLab(t)
	program := filepath.Join(t.TempDir(), "rdmatune")
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	if err := vm.BuildRDMATune(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: e2eScript, Files: []string{"testdata/e2e.hcl"}, Programs: []string{program},
		Out: t.TempDir(), Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the script says above what failed", res.ExitCode)
	}
	checkBench(t, filepath.Join(res.OutDir, "bench.json"))

	// The script's marks stand where apply had ended and where its checks had. From one
	// to the other the hardware must be in the locked state.
	writes, locked := res.PStates[2], byte(slices.Index(vm.Frequencies, 2_200_000))
	applied, checked := bytes.IndexByte(writes, 0xa1), bytes.IndexByte(writes, 0xa2)
	if applied < 1 || checked < applied {
		t.Fatalf("CPU 2: the script's marks are not in the P-states %x", writes)
	}
	if writes[applied-1] != locked || len(bytes.Trim(writes[applied+1:checked], string(rune(locked)))) > 0 {
		t.Errorf("CPU 2: the hardware got P-states %x; want %x before a1, and nothing else until a2", writes, locked)
	}
}

// checkBench reads the client's report as any program would.
func checkBench(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	var rep struct {
		Version  string `json:"format_version"`
		Workload string `json:"workload"`
		Device   string `json:"device"`
		Kind     string `json:"kind"`
		Sizes    []struct {
			Size, N                                int64
			Lost, Duplicated, Reordered, Corrupted uint64
			P50                                    float64 `json:"p50_us"`
			P99                                    float64 `json:"p99_us"`
		}
		Unknown  uint64
		Complete bool
		Switches []struct{ Outcome string }
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		t.Errorf("bench.json: %v in %.300q", err, b)
		return
	}
	if rep.Version != bench.FormatVersion || rep.Workload != "bench" || rep.Device != "rxe1" || rep.Kind != "round_trip" ||
		!rep.Complete || rep.Unknown != 0 {
		t.Errorf("bench.json: %+v", rep)
	}
	var sizes []int64
	for _, s := range rep.Sizes {
		sizes = append(sizes, s.Size)
		if s.N == 0 || s.P50 <= 0 || s.P99 < s.P50 {
			t.Errorf("%d bytes: n %d, P50 %v, P99 %v", s.Size, s.N, s.P50, s.P99)
		}
		if s.Lost+s.Duplicated+s.Reordered+s.Corrupted != 0 {
			t.Errorf("%d bytes: lost %d, duplicated %d, reordered %d, corrupted %d; want none",
				s.Size, s.Lost, s.Duplicated, s.Reordered, s.Corrupted)
		}
	}
	if !slices.Equal(sizes, []int64{8, 4096, 65_536}) {
		t.Errorf("sizes %v", sizes)
	}
	// One by the first apply, none by the second, which only heals drift, and destroy's
	// way back.
	if len(rep.Switches) != 2 || rep.Switches[0].Outcome != "switched" || rep.Switches[1].Outcome != "switched" {
		t.Errorf("switches %+v, want two", rep.Switches)
	}
}
