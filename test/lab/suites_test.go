package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

// suites are the tests that run on a machine's own devices: the semantics of verbs
// on soft RoCE, the host drivers on sysfs, procfs and ethtool of a real kernel, and
// the transport on real queue pairs: its tiers, lanes and memory, and its switch under
// load, again and again, from every profile to every other, and with a peer that is
// killed, cut off or stalled at each of its steps.
var suites = []struct {
	pkg   string
	tests []string
}{
	{"drivers/verbs/ibverbs", []string{"TestSemantics", "TestEvents"}},
	{"drivers/drivertest", []string{"TestLocal"}},
	{"drivers/verbs/transport", []string{"TestSizes", "TestLimits", "TestBuffers", "TestManySendersAndReceivers", "TestFullReceiver", "TestCancelOffer",
		"TestCancelRecv", "TestCloseWithOffers", "TestUnordered", "TestDualOrdered", "TestSwitchUnderLoad", "TestSwitchWithRendezvous", "TestEveryProfileToEvery",
		"TestManySwitchesLeakNothing", "TestBothOpen", "TestCreditsWrap", "TestFaultAtEveryStep", "TestTwoProcesses"}},
}

// TestSuites runs them inside the lab.
func TestSuites(t *testing.T) {
	needLab(t)
	dir := t.TempDir()
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	var programs []string
	script := "cd /tmp\n"
	for _, s := range suites {
		name := filepath.Base(s.pkg) + ".test"
		path := filepath.Join(dir, name)
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", path, "../../"+s.pkg)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", s.pkg, err, out)
		}
		programs = append(programs, path)
		script += "RDMATUNE_DEVICE=rxe1 " + name + " -test.v -test.run '^(" + strings.Join(s.tests, "|") + ")$' || exit 1\n"
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: script, Programs: programs, Out: t.TempDir(), Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the suites say above what failed", res.ExitCode)
	}
	for _, s := range suites {
		for _, name := range s.tests {
			if !strings.Contains(res.Console, "--- PASS: "+name+" ") {
				t.Errorf("%s: %s did not pass, or was skipped", s.pkg, name)
			}
		}
	}
}
