package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fail says all that is known.
func (s *soak) fail(ctx context.Context, err error) {
	s.t.Helper()
	if d := s.w.d; d != nil && d.alive() {
		// Where each of its goroutines is, at the end of the log that is kept.
		defer func() {
			if err := d.signal(syscall.SIGQUIT); err == nil {
				_ = d.wait(patience)
			}
			s.keep()
		}()
	}
	code, out, cliErr := s.cli(ctx, "status")
	log, logErr := os.ReadFile(s.w.logPath)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	tree, _ := exec.CommandContext(ctx, "ls", "-la", s.w.stateDir).Output()
	s.t.Fatalf("%s=%s event %d: %v\n\nthe last events:\n%s\n\nstatus (exit code %d, %v):\n%s\n\nthe daemon's log (%v):\n%s\n\nstate:\n%s", seedVar, os.Getenv(seedVar), s.done, err,
		strings.Join(s.history[max(0, len(s.history)-60):], "\n"), code, cliErr, out, logErr, strings.Join(lines[max(0, len(lines)-50):], "\n"), tree)
}

// outVar is where the machine's results are kept.
const outVar = "OUT"

// note adds a line to what happened, which is written at once: a machine that hangs says
// nothing more.
func (s *soak) note(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs ", time.Since(s.began).Seconds()) + fmt.Sprintf(format, args...)
	s.history = append(s.history, line)
	if _, err := fmt.Fprintln(s.out, line); err != nil {
		s.t.Error(err)
	}
}

// keep puts the daemon's log, its state and its experiments where the machine's results
// are.
func (s *soak) keep() {
	to := os.Getenv(outVar)
	err := s.out.Close()
	files, globErr := filepath.Glob(filepath.Join(s.w.stateDir, "[^b]*")) // not the ballast
	for _, name := range append(files, s.w.logPath) {
		b, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o600))
	}
	if err = errors.Join(err, globErr); err != nil {
		s.t.Error(err)
	}
}

// report prints what was measured.
func (s *soak) report(ctx context.Context, took time.Duration) {
	t := s.t
	t.Logf("%d events in %v", s.done, took.Round(time.Second))
	for _, k := range kinds {
		t.Logf("  %-15s %d", k.name, s.counts[k.name])
	}
	told := slices.Sorted(maps.Values(s.heals))
	quantiles := func(what string, list []time.Duration) {
		if n := len(list); n > 0 {
			t.Logf("%s: %d; P50 %v, P99 %v, longest %v", what, n, list[n/2].Round(time.Millisecond), list[n*99/100].Round(time.Millisecond), list[n-1].Round(time.Millisecond))
		}
	}
	quantiles("heals after writers that the kernel named, stops of the daemon and full disks included", told)
	slices.Sort(s.seen)
	quantiles("from one write alone to the value being back, as another process sees it", s.seen)
	before, err := s.w.d.look(s.done)
	if err != nil {
		s.fail(ctx, err)
	}
	t.Logf("highest RSS %d KiB at event %d, %d KiB of it anonymous; CPU time for each event %v", s.highest.rss, s.highest.event, s.highest.anon, ((s.spent + before.cpu) / time.Duration(max(s.done, 1))).Round(time.Microsecond))
	time.Sleep(idleTime)
	after, err := s.w.d.look(s.done)
	if err != nil {
		s.fail(ctx, err)
	}
	t.Logf("idle for %v: %v of CPU time", idleTime, after.cpu-before.cpu)
	if st, err := os.Stat(filepath.Join(s.w.stateDir, "experiments.db")); err == nil {
		t.Logf("the experiment database has %d KiB", st.Size()>>10)
	}
}
