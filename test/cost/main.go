// Command cost measures what the daemon costs, rdmatune itself on this machine's kernel:
// CPU time, memory and descriptors.
//
//	sudo go run ./test/cost idle     on a large node, while nothing happens
//	sudo go run ./test/cost storm    while programs are started as fast as this machine can
//
// The idle node is the simulated one of 256 CPUs and 4,000 interrupts. Its files are
// written to a tmpfs and mounted over /sys and /proc/irq in a mount namespace that ends
// with the command, so that the daemon takes them for this machine's: it keeps each file
// open, has it marked for fanotify and reads it at every sweep. It refuses files that are
// not the kernel's, so the one that is measured is built with a line that lets tmpfs pass.
//
// The storm is on this machine as it is. The daemon's workload is a process of a name that
// nothing else has; it is pinned, and nothing else is changed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "idle" && args[0] != "storm" {
		return errors.New("idle or storm?")
	}
	f := flag.NewFlagSet(args[0], flag.ExitOnError)
	settle := f.Duration("settle", 3*time.Minute, "idle: `time` after the start that is not counted")
	windows := f.Int("windows", 5, "idle: `number` of times that are measured")
	window := f.Duration("window", time.Minute, "idle: each `time`")
	starts := f.Int("starts", 20_000, "storm: `number` of programs that are started")
	f.Parse(args[1:])
	if os.Getuid() != 0 {
		return errors.New("root is needed")
	}
	if work := os.Getenv(inside); work != "" {
		return idle(ctx, work, *settle, *window, *windows)
	}
	work, err := os.MkdirTemp("", "rdmatune-cost-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if args[0] == "storm" {
		return storm(ctx, work, *starts)
	}
	if err := buildForTmpfs(ctx, work); err != nil {
		return err
	}
	cmd := command(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), inside+"="+work)
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	return cmd.Run()
}

// command is one that tells what it does, and ends by the signal that a daemon expects.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// A daemon is rdmatune reconcile with a state and a run directory of its own.
type daemon struct {
	program, work string
	cmd           *exec.Cmd
	log           *os.File
	gone          chan error
}

// start starts the program in work, with work/node.hcl.
func start(ctx context.Context, work string) (*daemon, error) {
	d := &daemon{program: filepath.Join(work, "rdmatune"), work: work, gone: make(chan error, 1)}
	var err error
	if d.log, err = os.Create(filepath.Join(work, "log")); err != nil {
		return nil, err
	}
	d.cmd = command(ctx, d.program, "reconcile", "--state-dir", filepath.Join(work, "state"), filepath.Join(work, "node.hcl"))
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(err, d.log.Close())
	}
	go func() { d.gone <- d.cmd.Wait() }()
	return d, nil
}

func (d *daemon) stop() {
	if d.cmd.Process.Signal(unix.SIGTERM) == nil {
		<-d.gone
	}
	d.log.Close()
}

// wait lets some time pass in which the daemon must not end.
func (d *daemon) wait(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-d.gone:
		d.gone <- err
		text, _ := os.ReadFile(d.log.Name())
		return fmt.Errorf("the daemon ended: %v: %s", err, text)
	case <-time.After(t):
		return nil
	}
}

// status is what the daemon says of itself, as people read it.
func (d *daemon) status(ctx context.Context) error {
	return command(ctx, d.program, "status", "--state-dir", filepath.Join(d.work, "state")).Run()
}

// use is what a process has used and holds.
type use struct {
	cpu           time.Duration
	resident, own float64 // MiB, and of them in no file
	descriptors   int
}

// used says what the daemon has used so far.
func (d *daemon) used() (u use, err error) {
	pid := d.cmd.Process.Pid
	if u.cpu, err = cpuTime(pid); err != nil {
		return u, err
	}
	if u.resident, u.own, err = memory(pid); err != nil {
		return u, err
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	u.descriptors = len(fds)
	return u, err
}

// since renders what was used after before, in a time of t.
func (u use) since(before use, t time.Duration) string {
	spent := u.cpu - before.cpu
	return fmt.Sprintf("%.1f ms in %v: %.3f %% of one CPU; %.1f MiB resident, %.1f of them in no file; %d descriptors",
		float64(spent.Microseconds())/1000, t.Round(time.Millisecond), 100*spent.Seconds()/t.Seconds(), u.resident, u.own, u.descriptors)
}

// cpuTime is how long the threads of a process have run, as the scheduler counts it.
func cpuTime(pid int) (total time.Duration, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		return 0, errors.Join(err, errors.New("no scheduler statistics of the daemon"))
	}
	for _, file := range tasks {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		ns, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total += time.Duration(n)
	}
	return total, nil
}

// memory is what a process has in memory, and how much of that is in no file, in MiB.
func memory(pid int) (resident, own float64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmRSS":
			resident = kib / 1024
		case "RssAnon":
			own = kib / 1024
		}
	}
	if resident == 0 {
		return 0, 0, errors.New("no memory of the daemon")
	}
	return resident, own, nil
}
