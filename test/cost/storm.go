package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// trainer is the name of the only process that the storm's spec tunes.
const trainer = "rdmatune-cost-t"

const stormSpec = `workload "trainer" {
  match {
    comm = "` + trainer + `"
  }
  cpu_pinning {
    cpus = "0"
  }
}
`

// nothing is the smallest program: it ends at once.
const nothing = `void _start(void) { __asm__("mov $60, %eax; xor %edi, %edi; syscall"); }`

// starter starts a program again and again, each when the one before has ended, as few
// instructions apart as a process can.
const starter = `
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
extern char **environ;
int main(int argc, char **argv) {
	for (int n = atoi(argv[2]); n > 0; n--) {
		pid_t pid;
		if (posix_spawn(&pid, argv[1], 0, 0, argv + 1, environ) || waitpid(pid, 0, 0) != pid)
			return 1;
	}
	return 0;
}
`

// storm starts programs on all CPUs and, amid them and after them, one that is to be
// pinned.
func storm(ctx context.Context, work string, starts int) error {
	if err := os.WriteFile(filepath.Join(work, "node.hcl"), []byte(stormSpec), 0o600); err != nil {
		return err
	}
	if err := os.Setenv("RDMATUNE_RUN_DIR", filepath.Join(work, "run")); err != nil {
		return err
	}
	build := command(ctx, "go", "build", "-o", filepath.Join(work, "rdmatune"), "github.com/rdmatune/rdmatune/cmd/rdmatune")
	if err := build.Run(); err != nil {
		return err
	}
	tiny, many := filepath.Join(work, "nothing"), filepath.Join(work, "starter")
	if err := compile(ctx, nothing, "-static", "-nostdlib", "-o", tiny); err != nil {
		return err
	}
	if err := compile(ctx, starter, "-O2", "-o", many); err != nil {
		return err
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return err
	}
	if err := os.Symlink(sleep, filepath.Join(work, trainer)); err != nil {
		return err
	}
	d, err := start(ctx, work)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.wait(ctx, 3*time.Second); err != nil {
		return err
	}
	before, err := d.used()
	if err != nil {
		return err
	}
	began := time.Now()
	workers := runtime.NumCPU()
	errs := make([]error, workers)
	var storm sync.WaitGroup
	for i := range workers {
		storm.Go(func() { errs[i] = exec.CommandContext(ctx, many, tiny, strconv.Itoa(starts/workers)).Run() })
	}
	if err := d.wait(ctx, time.Second); err != nil {
		return err
	}
	amid, err := d.pinned(ctx)
	if err != nil {
		return err
	}
	storm.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("starter: %w", err)
		}
	}
	after, err := d.used()
	if err != nil {
		return err
	}
	then, err := d.pinned(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d starts in %v: %.0f a second\n", starts, took.Round(time.Millisecond), float64(starts)/took.Seconds())
	fmt.Printf("a process of the workload: pinned %v after its start amid them, %v after its start after them\n", amid.Round(time.Millisecond), then.Round(time.Millisecond))
	fmt.Println(after.since(before, took))
	return d.status(ctx)
}

// compile compiles a program in C.
func compile(ctx context.Context, text string, args ...string) error {
	gcc := exec.CommandContext(ctx, "gcc", append([]string{"-x", "c", "-"}, args...)...)
	gcc.Stdin = strings.NewReader(text)
	if out, err := gcc.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w: %s", err, out)
	}
	return nil
}

// patience is how long a process may wait for being pinned.
const patience = 30 * time.Second

// pinned starts a process of the workload and returns how long it ran before it was pinned.
func (d *daemon) pinned(ctx context.Context) (time.Duration, error) {
	p := exec.CommandContext(ctx, filepath.Join(d.work, trainer), "60")
	began := time.Now()
	if err := p.Start(); err != nil {
		return 0, err
	}
	defer func() {
		p.Process.Kill()
		p.Wait()
	}()
	status := fmt.Sprintf("/proc/%d/status", p.Process.Pid)
	for time.Since(began) < patience {
		text, err := os.ReadFile(status)
		if err != nil {
			return 0, err
		}
		if bytes.Contains(text, []byte("\nCpus_allowed_list:\t0\n")) {
			return time.Since(began), nil
		}
		if err := d.wait(ctx, 2*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("a process of the workload was not pinned within %v", patience)
}
