// Package vm runs a script in a virtual machine with what rdmatune tunes: two soft
// RoCE devices on two wired network cards with interrupts and coalescing of their
// own, two NUMA nodes, and a real acpi-cpufreq driver whose writes to the hardware
// the host sees.
//
// The machine is QEMU's software emulation with Debian's own kernel: no privilege,
// no KVM, no network. Latencies in it mean nothing; what the kernel says does.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// A Config says what to run. Only Script must be given.
type Config struct {
	// Script is run with dash, in a directory that holds Files. Its exit code is the
	// run's. What it writes to $OUT is in the result's OutDir.
	Script string
	// Files are host paths of files or directories; each appears in the script's
	// directory under its base name, with its permission bits.
	Files []string
	// Programs are host paths of programs for /usr/bin; the shared libraries that they
	// name come along.
	Programs []string
	// Root, when not empty, is the tar file of a root file system with systemd, as
	// DebianRoot makes it: systemd runs the machine, and the script when it has brought
	// it up. Then the script finds what is in there, and none of the host's tools.
	Root string
	// Remapping gives the machine an IOMMU with interrupt remapping: then an interrupt
	// moves to its new CPU at once. Without, as on many machines, it moves when it
	// comes next, and effective_affinity_list lags behind smp_affinity_list.
	Remapping bool
	// Out is the results directory on the host; it is made when missing. Empty: a
	// temporary directory that the caller removes.
	Out string
	// Console gets the console's lines as they come; nil: nothing.
	Console io.Writer
	// Log gets one line for each step that takes time; nil: nothing.
	Log io.Writer
	// Install lets the run install missing Debian packages when it is root.
	Install bool
	// Boot bounds the time until the script starts, Timeout the whole run, both
	// without preparation. 0: DefaultBoot and DefaultTimeout.
	Boot, Timeout time.Duration
}

// Default bounds. A boot takes 6 s on an idle core and the longest script a minute; a
// busy CI machine is given twenty to thirty times that.
const (
	DefaultBoot    = 2 * time.Minute
	DefaultTimeout = 30 * time.Minute
)

// systemdBoot is DefaultBoot of a machine with systemd.
const systemdBoot = 2 * DefaultBoot

// bootTries is how often a machine is started that does not come up within
// DefaultBoot. QEMU's emulation of several CPUs in threads stalls once in a few dozen
// boots, before the kernel has said a word; the script has not begun then.
const bootTries = 3

var errNotUp = errors.New("not up")

// A Result is what a run left.
type Result struct {
	ExitCode int    // the script's
	Console  string // the console's last MiB
	OutDir   string // holds the script's files, console.log and pstate/
	// PStates has, per CPU, every byte that the guest's kernel wrote to that CPU's
	// P-state control port, oldest first: indices into Frequencies.
	PStates map[int][]byte
}

// ErrNoExit: the machine stopped or was stopped without an exit code of the script.
var ErrNoExit = errors.New("the machine gave no exit code")

// Run boots a machine, runs c.Script in it and powers it off. The error is about the
// machine; a script that fails is a Result with its exit code. When a boot hangs or
// a bound is passed, the error ends with the console's last lines.
func Run(ctx context.Context, c Config) (Result, error) {
	tries := 1
	if c.Boot <= 0 {
		c.Boot, tries = DefaultBoot, bootTries
		if c.Root != "" {
			c.Boot = systemdBoot
		}
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	out, err := outDir(c.Out)
	if err != nil {
		return Result{}, err
	}
	res := Result{OutDir: out}
	m, done, err := prepare(ctx, c, out)
	if err != nil {
		return res, err
	}
	defer done()
	var console *console
	for try := 1; ; try++ {
		if console, err = newConsole(filepath.Join(out, "console.log"), c.Console); err != nil {
			return res, err
		}
		fmt.Fprintf(c.Log, "booting %s, results in %s\n", m.kernel.Version, out)
		err = errors.Join(m.boot(ctx, console, c.Boot, c.Timeout), console.Close())
		if !errors.Is(err, errNotUp) || try == tries {
			break
		}
		fmt.Fprintf(c.Log, "%v; trying again\n", err)
	}
	res.Console = console.Tail()
	if err == nil {
		res.ExitCode, err = m.exitCode()
	}
	if err != nil {
		return res, fmt.Errorf("%w; the console ends with:\n%s", err, console.lastLines(30))
	}
	res.PStates, err = m.pstates()
	return res, err
}

func outDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "rdmatune-lab-")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// A machine is ready to boot.
type machine struct {
	kernel    kernel
	initramfs string
	ssdt      string
	out       string
	exitFile  string
	remapping bool
}

// prepare makes everything that a boot needs; done removes what only this boot needs.
func prepare(ctx context.Context, c Config, out string) (m machine, done func(), err error) {
	if err := EnsurePackages(ctx, c.Log, c.Install); err != nil {
		return m, nil, err
	}
	k, err := findKernel(ctx, c.Log, c.Install)
	if err != nil {
		return m, nil, fmt.Errorf("kernel: %w", err)
	}
	tmp, err := os.MkdirTemp("", "rdmatune-lab-boot-")
	if err != nil {
		return m, nil, err
	}
	remove := func() { _ = os.RemoveAll(tmp) } // a leftover in the temporary directory is no failure of the run
	defer func() {
		if err != nil {
			remove()
		}
	}()
	m = machine{
		kernel:    k,
		initramfs: filepath.Join(tmp, "initramfs"),
		ssdt:      filepath.Join(tmp, "cpufreq.aml"),
		out:       out,
		exitFile:  filepath.Join(tmp, "exit"),
		remapping: c.Remapping,
	}
	if err := os.MkdirAll(filepath.Join(out, "pstate"), 0o755); err != nil {
		return m, nil, err
	}
	if err := compileSSDT(ctx, m.ssdt); err != nil {
		return m, nil, fmt.Errorf("ssdt: %w", err)
	}
	guest := filepath.Join(tmp, "init")
	if err := buildGuest(ctx, guest); err != nil {
		return m, nil, err
	}
	if err := writeInitramfs(ctx, m.initramfs, c, k, guest); err != nil {
		return m, nil, fmt.Errorf("initial file system: %w", err)
	}
	return m, remove, nil
}

// exitCode reads what the guest wrote to its exit port.
func (m machine) exitCode() (int, error) {
	b, err := os.ReadFile(m.exitFile)
	if err != nil {
		return 0, err
	}
	text, whole := strings.CutSuffix(string(b), "\n")
	code, err := strconv.Atoi(text)
	if !whole || err != nil {
		return 0, ErrNoExit
	}
	return code, nil
}

func (m machine) pstateFile(cpu int) string {
	return filepath.Join(m.out, "pstate", "cpu"+strconv.Itoa(cpu))
}

func (m machine) pstates() (map[int][]byte, error) {
	all := make(map[int][]byte, proto.CPUs)
	for cpu := range proto.CPUs {
		b, err := os.ReadFile(m.pstateFile(cpu))
		if err != nil {
			return nil, err
		}
		all[cpu] = b
	}
	return all, nil
}
