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
%s
bench -device %s -addr %s -server-cpus 0-1 -cpus 2-3 -runs %d -only '%s' -who '%s' -label '%s' %s -results $OUT/results.json -doc /dev/null
`

// farAway makes a packet take as long from one end to the other as is said.
const farAway = "tc qdisc add dev lo root netem limit 100000 delay %s || exit"

// script is the lab's script, and programs are what it needs besides the usual ones.
func (o options) script() (script string, programs []string, err error) {
	if strings.ContainsAny(o.only+o.who+o.label, "'\n") {
		return "", nil, fmt.Errorf("-only %q, -who %q, -label %q", o.only, o.who, o.label)
	}
	prepare, device, addr, label := "", "rxe0", "10.77.0.1", o.label
	if o.soft {
		device, addr, label = "soft0", "127.0.0.1", label+"soft "
	}
	if o.delay > 0 {
		if !o.soft {
			return "", nil, errors.New("-delay is for -soft: a device of soft RoCE that is looped back sends no packet")
		}
		tc, err := exec.LookPath("tc")
		if err != nil {
			return "", nil, errors.New("tc is missing; run as root: apt-get install iproute2")
		}
		programs = append(programs, tc)
		prepare, label = fmt.Sprintf(farAway, o.delay), label+o.delay.String()+" "
	}
	quiet := ""
	if o.quiet != "" {
		programs = append(programs, o.quiet)
		quiet = "-quiet " + quietProgram
	}
	return fmt.Sprintf(labScript, prepare, device, addr, o.runs, o.only, o.who, label, quiet), programs, nil
}

// ucxModules is where Debian's UCX has what it loads at run time; programs of the
// machine bring their libraries along, so that is what they become.
const ucxModules = "/usr/lib/x86_64-linux-gnu/ucx/"

// runLab measures in the lab's virtual machine, with this program inside.
func runLab(ctx context.Context, o options) (Results, error) {
	var r Results
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
	if err := goBuild(ctx, self); err != nil {
		return r, err
	}
	if o.needsQuiet() {
		o.quiet = filepath.Join(tmp, quietProgram)
		if err := buildQuiet(ctx, o.quiet); err != nil {
			return r, err
		}
	}
	script, programs, err := o.script()
	if err != nil {
		return r, err
	}
	ucx, err := exec.LookPath("ucx_perftest")
	if err != nil {
		return r, errors.New("ucx_perftest is missing; run as root: apt-get install ucx-utils")
	}
	out := filepath.Join(tmp, "out")
	before := load1()
	res, err := vm.Run(ctx, vm.Config{
		Script:   script,
		Programs: append(programs, self, ucx, ucxModules+"libuct_ib.so.0"),
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
