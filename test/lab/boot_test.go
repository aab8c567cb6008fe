package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/boot.sh
var bootScript string

// needLab skips a test that boots a machine, unless it was asked for: a boot takes
// many seconds and, as root, may install packages.
func needLab(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMATUNE_LAB") != "1" {
		t.Skip("boots a virtual machine; run it with: RDMATUNE_LAB=1 go test ./test/lab/...")
	}
}

// logWriter shows a machine's console in the test's log.
func logWriter(t *testing.T) io.Writer { return vm.Prefix(t.Output(), "| ") }

// TestBoot checks the machine itself: everything that the other tests build on.
func TestBoot(t *testing.T) {
	needLab(t)
	in := filepath.Join(t.TempDir(), "in.txt")
	if err := os.WriteFile(in, []byte("from the host\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: bootScript, Files: []string{in}, Out: t.TempDir(),
		Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 7 {
		t.Errorf("exit code %d, want the script's 7", res.ExitCode)
	}
	for name, want := range map[string]string{
		"file":        "from the host\n",
		"devices":     "rxe0 rxe1\n",
		"states":      "4: ACTIVE\n4: ACTIVE\n",
		"netdevs":     "rxe0 eth0 node 0\nrxe1 eth1 node 1\n",
		"nodes":       "node0 0-1\nnode1 2-3\n",
		"cpufreq":     strings.Repeat("acpi-cpufreq 3000000 2600000 2200000 1800000 1200000\n", 4),
		"vectors":     "eth0 3\neth1 3\n",
		"rx-usecs":    "250\n",
		"irq":         "2\n",
		"locked":      "2200000 2200000 2200000\n",
		"queue pairs": "2 RC queue pairs\n",
	} {
		got, err := os.ReadFile(filepath.Join(res.OutDir, name))
		if err != nil {
			t.Error(err)
		} else if string(got) != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	wire, err := os.ReadFile(filepath.Join(res.OutDir, "wire"))
	if err != nil {
		t.Error(err)
	} else if before, after, ok := strings.Cut(strings.TrimSpace(string(wire)), " "); !ok || before == after {
		t.Errorf("packets sent by eth0 before and after ib_send_lat: %q; nothing took the wire", wire)
	}

	// The guest locked CPU 3 to the third state and left the others' limits alone.
	if third := byte(slices.Index(vm.Frequencies, 2_200_000)); !bytes.HasSuffix(res.PStates[3], []byte{third}) {
		t.Errorf("CPU 3: the hardware got P-states %v, want %d last", res.PStates[3], third)
	}
	if len(res.PStates) != 4 {
		t.Errorf("P-states of %d CPUs, want 4", len(res.PStates))
	}
}

// TestFailures checks that a run that goes wrong says so and ends in time.
func TestFailures(t *testing.T) {
	needLab(t)
	t.Run("signal", func(t *testing.T) {
		res, err := vm.Run(t.Context(), vm.Config{Script: "kill -9 $$", Out: t.TempDir()})
		if err != nil || res.ExitCode != 128+9 {
			t.Errorf("exit code %d, error %v; want 137", res.ExitCode, err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		res, err := vm.Run(t.Context(), vm.Config{Script: "echo c > /proc/sysrq-trigger", Out: t.TempDir()})
		if !errors.Is(err, vm.ErrNoExit) || !strings.Contains(res.Console, "Kernel panic") {
			t.Errorf("error %v; want no exit code and a kernel panic on the console", err)
		}
	})
	t.Run("interrupt", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := vm.Run(ctx, vm.Config{Script: "sleep 600", Out: t.TempDir(), Console: whenReady(cancel)})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v; want that of the interrupt", err)
		}
	})
	t.Run("hang", func(t *testing.T) {
		_, err := vm.Run(t.Context(), vm.Config{Script: "true", Out: t.TempDir(), Boot: 1})
		if err == nil || !strings.Contains(err.Error(), "not up after 1ns") {
			t.Errorf("error %v; want it to say that the machine was not up", err)
		}
	})
}

// A whenReady is called when the guest's script starts.
type whenReady func()

func (f whenReady) Write(line []byte) (int, error) {
	if strings.HasPrefix(string(line), "lab: ready") {
		f()
	}
	return len(line), nil
}
