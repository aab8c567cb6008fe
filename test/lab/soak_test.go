package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

//go:embed testdata/soak.sh
var soakScript string

// soakTime is how long events are made to happen when the environment does not say.
const soakTime = 2 * time.Minute

// TestSoak sets thousands of random events against the daemon, and a model of what must
// hold after each. RDMATUNE_SOAK_SEED repeats a run, as far as a machine repeats itself;
// RDMATUNE_SOAK_TIME and RDMATUNE_SOAK_EVENTS bound it, and fewer than RDMATUNE_SOAK_LEAST
// events fail it. RDMATUNE_SOAK_WITHOUT leaves kinds of
// events out; RDMATUNE_SOAK_OUT keeps what happened, and the daemon's log.
//
// It runs when RDMATUNE_SOAK is 1: it takes minutes of a machine of its own, and what it
// draws differs each time.
func TestSoak(t *testing.T) {
	needLab(t)
	if os.Getenv("RDMATUNE_SOAK") != "1" {
		t.Skip("takes minutes; run it with: RDMATUNE_SOAK=1 RDMATUNE_LAB=1 go test -v -run TestSoak ./test/lab")
	}
	out := os.Getenv("RDMATUNE_SOAK_OUT")
	if out == "" {
		out = t.TempDir()
	}
	settings := map[string]string{"SEED": strconv.FormatInt(time.Now().UnixNano(), 10), "TIME": soakTime.String(), "EVENTS": "", "LEAST": "", "WITHOUT": ""}
	script := ""
	for name, value := range settings {
		if given := os.Getenv("RDMATUNE_SOAK_" + name); given != "" {
			value = given
		}
		settings[name] = value
		script += fmt.Sprintf("export RDMATUNE_SOAK_%s='%s'\n", name, strings.ReplaceAll(value, "'", ""))
	}
	limit, err := time.ParseDuration(settings["TIME"])
	if err != nil {
		t.Fatalf("RDMATUNE_SOAK_TIME: %v", err)
	}
	dir := t.TempDir()
	if err := vm.EnsurePackages(t.Context(), t.Output(), true); err != nil {
		t.Fatal(err)
	}
	program, test := filepath.Join(dir, "rdmatune"), filepath.Join(dir, "soak.test")
	if err := vm.BuildRDMATune(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", test, "./soak")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	nothing := filepath.Join(dir, "nothing")
	if err := buildNothing(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	res, err := vm.Run(t.Context(), vm.Config{
		Script: script + soakScript, Programs: []string{program, test, nothing}, Out: out, Timeout: limit + vm.DefaultTimeout,
		Console: logWriter(t), Log: t.Output(), Install: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d; the test says above what failed", res.ExitCode)
	}
	if !strings.Contains(res.Console, "--- PASS: TestSoak ") {
		t.Error("it did not pass, or was skipped")
	}
}
