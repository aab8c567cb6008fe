// Command guest is the first and only service of the lab's virtual machine: it
// mounts what a node has, loads the modules that the host chose, wires the two
// network cards to each other, gives each a soft RoCE device, runs the script, and
// hands its exit code to the host before powering off.
//
// The host places everything in the initial file system: the list of modules in
// load order (/lab/modules), the script (/lab/script) and its files beside it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

func main() {
	work := run
	if os.Getpid() != 1 {
		// It powers the machine off: on no account another one than its own.
		if line, err := os.ReadFile("/proc/cmdline"); err != nil || !slices.Contains(strings.Fields(string(line)), proto.Mark) {
			fmt.Fprintln(os.Stderr, "guest: runs only in the lab's virtual machine, as its first process or as a service")
			os.Exit(2)
		}
		work = begin
	}
	code, err := work()
	if err != nil {
		fmt.Println("guest:", err)
	}
	// Without a report the host takes the run for a crash, which is then the truth.
	if err := report(code); err != nil {
		fmt.Println("guest: report exit code:", err)
	}
	unix.Sync()
	// PID 1 must not return: the kernel would panic. Power-off does not return.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("guest: power off:", err)
	}
	select {}
}

// run brings the node up and runs the script, or lets systemd do so when it is there:
// this program is then its service. Its code is what the host gets;
// proto.SetupFailed when the script could not even start.
func run() (int, error) {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"path", func() error { return os.Setenv("PATH", proto.Path) }}, // exec looks tools up by it
		{"mount", mountAll},
		{"modules", loadModules},
		{"share", mountShare},
		{"limits", raiseLimits},
		{"network", twoHosts},
	} {
		if err := step.do(); err != nil {
			return proto.SetupFailed, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if _, err := os.Stat(proto.Systemd); err == nil {
		return proto.SetupFailed, unix.Exec(proto.Systemd, []string{proto.Systemd}, os.Environ())
	}
	return begin()
}

// begin runs the script on a machine that is up.
func begin() (int, error) {
	fmt.Println(proto.Ready, uptime())
	return script()
}

// script runs the host's script with dash and returns its exit code, 128 and the
// signal's number when a signal ended it, as a shell does.
func script() (int, error) {
	if err := os.Chdir(proto.Dir); err != nil {
		return proto.SetupFailed, err
	}
	cmd := exec.Command("/bin/sh", proto.Script)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=" + proto.Path, "HOME=/root", "LANG=C.UTF-8", "TERM=dumb", "OUT=" + proto.Share}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return proto.SetupFailed, err
	}
	return 0, nil
}

// report writes code as text to the debug console that the host keeps as a file.
func report(code int) error {
	port, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	for _, b := range []byte(strconv.Itoa(code) + "\n") {
		if _, err := port.WriteAt([]byte{b}, proto.ExitPort); err != nil {
			return err
		}
	}
	return nil
}

// loadModules loads what /lab/modules names, one path a line, in that order.
func loadModules() error {
	list, err := os.Open(proto.Modules)
	if err != nil {
		return err
	}
	defer list.Close()
	for sc := bufio.NewScanner(list); sc.Scan(); {
		if err := loadModule(sc.Text()); err != nil {
			return fmt.Errorf("%s: %w", sc.Text(), err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// raiseLimits lets the script register as much memory as it likes, as a node set
// up for RDMA does.
func raiseLimits() error {
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all); err != nil {
		return fmt.Errorf("memlock: %w", err)
	}
	return unix.Sethostname([]byte("lab"))
}

// uptime is the guest's own clock, in seconds, for the console.
func uptime() string {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return ""
	}
	s, _, _ := strings.Cut(string(b), " ")
	return s + " s after boot"
}

// wait polls until ok says so, for at most a minute: link negotiation of the
// emulated card alone takes seconds.
func wait(what string, ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no %s within a minute", what)
		}
	}
	return nil
}
