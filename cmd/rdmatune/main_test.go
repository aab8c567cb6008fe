package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rdmatune/rdmatune/internal/golden"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rdmatune": main})
}

// TestScripts runs whole sessions of commands. Each has a run directory, a state
// directory and a home of its own, so that none touches this machine's.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *golden.Update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("RDMATUNE_RUN_DIR", filepath.Join(e.WorkDir, "run"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "xdg"))
			e.Setenv("STATE", filepath.Join(e.WorkDir, "state"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"until": until, "exitcode": exitCodeIs},
	})
}

// until runs a command again and again until it prints a text: until TEXT COMMAND
// ARGS... It polls, since what it waits for are processes that know nothing of being
// watched, and gives up after a minute.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until TEXT COMMAND ARGS...")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%v never printed %q: %v", args[1:], args[0], err)
		}
	}
}

// exitCodeIs runs a command and compares its exit code: exitcode N COMMAND ARGS...
func exitCodeIs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N COMMAND ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err = ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v: %v", args[1:], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%v ended with %d, want %d", args[1:], got, want)
	}
}
