// Command lab boots a virtual machine with soft RoCE devices, wired network cards,
// two NUMA nodes and a real cpufreq driver, runs a script in it, and exits with the
// script's exit code. With no script, it shows what the machine has.
//
//	go run ./test/lab [flags] [SCRIPT...]
//
// The machine needs no privilege; missing Debian packages are installed when run as
// root. The scripts run one after the other, with dash, in one machine; rdmatune is
// on their path, extra files are in their directory, and what they leave in $OUT is
// in the results directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

// tour is the script when none is given.
const tour = `uname -a
rdma link
for n in eth0 eth1; do echo "$n: NUMA node $(cat /sys/class/net/$n/device/numa_node)"; done
grep . /sys/devices/system/cpu/cpufreq/policy*/scaling_driver
cat /sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	var (
		files   []string
		binary  = flags.String("binary", "", "copy this `program` in as rdmatune instead of building it")
		build   = flags.Bool("build", true, "build cmd/rdmatune and copy it in")
		install = flags.Bool("install", true, "as root, install missing Debian packages")
		out     = flags.String("out", "", "results `directory` (default: a new temporary one)")
		remap   = flags.Bool("remapping", false, "give the machine an IOMMU with interrupt remapping")
		boot    = flags.Duration("boot-timeout", vm.DefaultBoot, "longest time until the script starts")
		timeout = flags.Duration("timeout", vm.DefaultTimeout, "longest time of the whole run")
	)
	flags.Func("file", "copy this `path`, a file or a directory, in beside the script (repeatable)", func(s string) error {
		files = append(files, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2, nil // the flag set has printed why
	}
	script, err := readScripts(flags.Args())
	if err != nil {
		return 1, err
	}
	log := vm.Prefix(os.Stderr, "lab: ")
	if err := vm.EnsurePackages(ctx, log, *install); err != nil {
		return 1, err
	}
	tmp, err := os.MkdirTemp("", "rdmatune-lab-build-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(tmp)
	var programs []string
	program := filepath.Join(tmp, "rdmatune")
	switch {
	case *binary != "":
		if err := copyFile(program, *binary); err != nil {
			return 1, err
		}
		programs = append(programs, program)
	case *build:
		if err := vm.BuildRDMATune(ctx, program); err != nil {
			return 1, err
		}
		programs = append(programs, program)
	}
	start := time.Now()
	res, err := vm.Run(ctx, vm.Config{
		Script: script, Files: files, Programs: programs, Out: *out,
		Console: vm.Prefix(os.Stdout, "| "), Log: log,
		Install: *install, Remapping: *remap, Boot: *boot, Timeout: *timeout,
	})
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "lab: exit code %d after %v, results in %s\n",
		res.ExitCode, time.Since(start).Round(100*time.Millisecond), res.OutDir)
	return res.ExitCode, nil
}

// readScripts joins the scripts, each in a subshell of its own so that one's exit
// does not skip the next; the first failure's exit code is the whole's.
func readScripts(paths []string) (string, error) {
	if len(paths) == 0 {
		return tour, nil
	}
	var all strings.Builder
	all.WriteString("lab_rc=0\n")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "(\n%s\n)\nlab_one=$?; [ $lab_rc -ne 0 ] || lab_rc=$lab_one\n", text)
	}
	all.WriteString("exit $lab_rc\n")
	return all.String(), nil
}

func copyFile(to, from string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, body, 0o755)
}
