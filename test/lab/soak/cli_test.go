package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// cli runs the program beside the daemon.
func (s *soak) cli(ctx context.Context, args ...string) (code int, out string, err error) {
	cmd := exec.CommandContext(ctx, "rdmatune", append(args, "--state-dir", s.w.stateDir, "--no-color")...)
	b, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), string(b), nil
	}
	return cmd.ProcessState.ExitCode(), string(b), err
}

// bright reports whether no bad condition lasts.
func (s *soak) bright() bool {
	w := s.w
	return w.d != nil && !w.stopped && !w.invalid && !w.blocked() && !w.unbound && len(w.down) == 0 && !w.offline && w.adversary == nil
}

func cliPlan(ctx context.Context, s *soak) (string, error) {
	code, out, err := s.cli(ctx, "plan", "--detailed-exitcode", s.w.specPath)
	if err != nil || code == 1 && s.bright() {
		return "", fmt.Errorf("rdmatune plan: exit code %d, %v: %s", code, err, out)
	}
	return strconv.Itoa(code), nil
}

const lockedText = "another rdmatune is changing this node"

func cliApply(ctx context.Context, s *soak) (string, error) {
	code, out, err := s.cli(ctx, "apply", "--auto-approve", s.w.specPath)
	if err != nil || code != 0 && s.bright() && !strings.Contains(out, lockedText) {
		return "", fmt.Errorf("rdmatune apply: exit code %d, %v: %s", code, err, out)
	}
	return strconv.Itoa(code), nil
}

func cliApplyKilled(ctx context.Context, s *soak) (string, error) {
	cmd := exec.CommandContext(ctx, "rdmatune", "apply", "--auto-approve", "--state-dir", s.w.stateDir, s.w.specPath)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	after := time.Duration(s.r.IntN(600)) * time.Millisecond
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return "", err
	}
	_ = cmd.Wait() // killed, or not
	return "after " + after.String(), nil
}

// cliRefused asks for what is not allowed beside a daemon.
func cliRefused(ctx context.Context, s *soak) (string, error) {
	code, out, err := s.cli(ctx, "destroy", "--auto-approve")
	if err != nil || code != 1 {
		return "", fmt.Errorf("rdmatune destroy beside the daemon: exit code %d, %v: %s", code, err, out)
	}
	return "destroy", nil
}
