// Package rivals knows the daemons that tune a machine by themselves and may write what
// rdmatune manages. It only looks: none of them is stopped or reconfigured.
package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/procs"
)

// A Daemon is a running one.
type Daemon struct {
	PID  int
	Name string // as its project calls it
	// Rewrites is what of a node's tuning it may write.
	Rewrites string
}

// String says it to a person: "tuned (pid 812), which may rewrite ...".
func (d Daemon) String() string {
	return fmt.Sprintf("%s (pid %d), which may rewrite %s", d.Name, d.PID, d.Rewrites)
}

// A row says how a daemon is known.
type row struct {
	name     string // of the program, and of the script where an interpreter runs it
	script   bool   // an interpreter may run it
	rewrites string
}

// table is written from what each daemon's own documentation and source say that it
// writes. tlp and cpupower set things once, at boot or when the power supply changes, and
// are processes for a moment only.
var table = []row{
	{"irqbalance", false, "the CPUs of interrupts"},
	{"tuned", true, "CPU frequencies and governors, idle states (/dev/cpu_dma_latency), interrupt affinities and network devices' coalescing, by its profile"},
	{"power-profiles-daemon", false, "energy preferences, governors and turbo"},
	{"thermald", false, "the frequency limits and turbo of intel_pstate, when it is hot"},
	{"numad", false, "the CPUs of processes"},
	{"auto-cpufreq", true, "governors, frequency limits, energy preferences and turbo"},
	{"cpupower", false, "governors and frequency limits, once each time it is run"},
	{"tlp", true, "governors, frequency limits, energy preferences and turbo, when the power supply changes"},
}

// Find returns the daemons of a process table, ordered by name and process id. Processes
// that may not be looked into, or end meanwhile, are passed over.
func Find(t procs.Table) ([]Daemon, error) {
	pids, err := t.PIDs()
	if errors.Is(err, procs.ErrGone) {
		return nil, nil // a captured tree without processes
	}
	if err != nil {
		return nil, err
	}
	var found []Daemon
	for _, pid := range pids {
		comm, err := t.Comm(pid)
		if err != nil {
			continue
		}
		for _, r := range table {
			if r.is(t, pid, comm) {
				found = append(found, Daemon{PID: pid, Name: r.name, Rewrites: r.rewrites})
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b Daemon) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID)) })
	return found, nil
}

// maxComm is how much of a command's name the kernel keeps (TASK_COMM_LEN less its NUL).
const maxComm = 15

// is reports whether a process is the daemon: by the name of its command, and where that
// is an interpreter's by the script that it runs.
func (r row) is(t procs.Table, pid int, comm string) bool {
	if comm == r.name[:min(len(r.name), maxComm)] {
		return true
	}
	if !r.script || !strings.HasPrefix(comm, "python") && comm != "sh" && comm != "bash" {
		return false
	}
	args, err := t.Args(pid)
	if err != nil {
		return false
	}
	for _, a := range args[min(1, len(args)):] {
		if !strings.HasPrefix(a, "-") {
			return path.Base(a) == r.name
		}
	}
	return false
}
