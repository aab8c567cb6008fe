package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rdmatune/rdmatune/test/lab/vm"
)

// labMachine is what the lab's results are called.
const labMachine = "soft RoCE (rdma_rxe of Linux 6.1) looped back on one device, in a QEMU machine of four CPUs under software emulation (TCG) on two host CPUs"

// labScript runs the measurements in the lab on one device: what goes round in it
// never touches the emulated network card, whose delays would hide everything else.
// Each side has the two CPUs of one NUMA node.
const labScript = `export UCX_MODULE_DIR=/usr/bin
bench -device rxe0 -addr 10.77.0.1 -server-cpus 0-1 -cpus 2-3 -runs %d -only '%s' -who '%s' -results $OUT/results.json -doc /dev/null
`

// ucxModules is where Debian's UCX has what it loads at run time; programs of the
// machine bring their libraries along, so that is what they become.
const ucxModules = "/usr/lib/x86_64-linux-gnu/ucx/"

// runLab measures in the lab's virtual machine, with this program inside.
func runLab(ctx context.Context, o options) (Results, error) {
	var r Results
	if strings.ContainsAny(o.only+o.who, "'\n") {
		return r, fmt.Errorf("-only %q, -who %q", o.only, o.who)
	}
	log := vm.Prefix(os.Stderr, "lab: ")
	if err := vm.EnsurePackages(ctx, log, true); err != nil {
		return r, err
	}
	tmp, err := os.MkdirTemp("", "rdmatune-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(tmp)
	self := filepath.Join(tmp, "bench")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", self, "github.com/rdmatune/rdmatune/test/bench")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return r, fmt.Errorf("go build: %w: %s", err, tail(out))
	}
	ucx, err := exec.LookPath("ucx_perftest")
	if err != nil {
		return r, errors.New("ucx_perftest is missing; run as root: apt-get install ucx-utils")
	}
	out := filepath.Join(tmp, "out")
	before := load1()
	res, err := vm.Run(ctx, vm.Config{
		Script:   fmt.Sprintf(labScript, o.runs, o.only, o.who),
		Programs: []string{self, ucx, ucxModules + "libuct_ib.so.0"},
		Out:      out, Console: vm.Prefix(os.Stderr, "| "), Log: log, Install: true,
	})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d in the machine; its console says why", res.ExitCode)
	}
	// Also of a machine that did not come to its end.
	r, rerr := load(filepath.Join(out, "results.json"))
	r.Machine, r.Load = labMachine, before // the host's, not the machine's
	return r, errors.Join(err, rerr)
}

// load1 is the load average of the last minute, as the kernel writes it.
func load1() string {
	b, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// machine describes where a run outside the lab was made.
func machine(o options) string {
	model := "unknown CPU"
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %s", o.device, model)
}
