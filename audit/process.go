package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/node"
)

// Options say what an audit is held against.
type Options struct {
	Workload string
	Hint     *int64 // what the spec wants, bytes; nil for nothing
	// Own tells, by process, the hint that rdmatune's transport has in force there.
	Own map[int]*Own
}

// Processes audits running processes of n. One that ends meanwhile is left out; one
// that may not be examined is listed with the reason.
func Processes(ctx context.Context, n *node.Node, pids []int, o Options) (*Report, error) {
	r := newReport()
	r.Workload, r.Hint = o.Workload, o.Hint
	r.Host, _ = n.FS().ReadString("/proc/sys/kernel/hostname")
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := process(n, r, pid, o)
		if errors.Is(err, procs.ErrGone) {
			continue
		}
		if err != nil {
			p.Err = err.Error()
		}
		r.Processes = append(r.Processes, p)
	}
	if len(r.Processes) > 0 {
		r.Notes = append(r.Notes, "environments are those at the processes' start: what a program has set since is in its own memory and not observable")
	}
	r.disagree(o.Own)
	return r, nil
}

func process(n *node.Node, r *Report, pid int, o Options) (Process, error) {
	table := n.Procs()
	p := Process{PID: pid}
	var err error
	if p.Comm, err = table.Comm(pid); err != nil {
		return p, err
	}
	cmdline, _ := table.Cmdline(pid)
	p.Comm, p.Cmdline = printable.Line(p.Comm), printable.Line(cmdline)
	env, err := table.Environ(pid)
	if err = notHeld(n, err); err != nil {
		return p, fmt.Errorf("environment: %w", err)
	}
	if p.Workload = o.Workload; p.Workload == "" {
		p.Workload = printable.Clip(env["RDMATUNE_WORKLOAD"], maxWorkload)
		if own := o.Own[pid]; own != nil {
			p.Workload = cmp.Or(own.Workload, p.Workload)
		}
	}
	s := &subject{
		pid: pid, comm: p.Comm, env: map[string]setting{}, report: r, hint: o.Hint, own: o.Own[pid],
		readFile: func(name string) ([]byte, error) { return n.ReadFor(pid, name) },
		place:    place{env: env, home: home(n, pid)},
	}
	s.place.cwd, _ = table.Cwd(pid)
	for name, value := range env {
		s.env[name] = setting{value, "environment"}
	}
	maps, err := table.Mapped(pid)
	if err == nil && len(maps) > 0 {
		s.known = true
		s.modules = modules(n, pid, maps)
		for _, m := range maps {
			s.mapped = append(s.mapped, m.Path)
		}
	} else {
		why := "it shows none"
		if err = notHeld(n, err); err != nil {
			why = err.Error()
		}
		r.Notes = append(r.Notes, fmt.Sprintf("process %d: which libraries it has mapped is not observable (%s)", pid, why))
	}
	r.Modules = append(r.Modules, s.modules...)
	s.audit()
	return p, nil
}

// notHeld makes an error of a file that a process has not what it means on another node
// than this machine: nothing ends there, but not every file of it is kept.
func notHeld(n *node.Node, err error) error {
	if n.Kind() != node.Local && errors.Is(err, procs.ErrGone) {
		return fmt.Errorf("the %s node does not hold it", n.Kind())
	}
	return err
}

// home returns the home directory that the password file names for the user of a
// process, "" when it names none.
func home(n *node.Node, pid int) string {
	uid, err := n.Procs().UID(pid)
	if err != nil {
		return ""
	}
	b, err := n.ReadFor(pid, "/etc/passwd")
	if err != nil {
		return ""
	}
	return homeOf(string(b), uid)
}

func homeOf(passwd string, uid int) string {
	for line := range strings.Lines(passwd) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) >= 7 && fields[2] == strconv.Itoa(uid) && path.IsAbs(fields[5]) {
			return fields[5]
		}
	}
	return ""
}

// maxWorkload bounds the name of a workload that a process gives itself, in bytes.
const maxWorkload = 512

// disagree finds variables that processes of one workload read differently. Processes
// of none have nothing to agree on, and a process that neither uses rdmatune's
// transport nor sets its hint, such as a shell that started another one, reads nothing
// of it.
func (r *Report) disagree(own map[int]*Own) {
	type first struct {
		value Value
		said  bool
	}
	workloads := map[int]string{}
	for _, p := range r.Processes {
		workloads[p.PID] = p.Workload
	}
	seen := map[[2]string]*first{}
	for _, v := range r.Variables {
		workload := workloads[v.Process]
		if workload == "" || v.Library == "rdmatune" && v.Origin == "default" && own[v.Process] == nil {
			continue
		}
		key := [2]string{workload, v.Name}
		f, ok := seen[key]
		if !ok {
			seen[key] = &first{value: v}
			continue
		}
		if f.value.Process == v.Process || f.said || f.value.Parsed.equal(v.Parsed) {
			continue
		}
		f.said = true
		r.Findings = append(r.Findings, Finding{
			Severity: Contradiction, Library: v.Library, Variable: v.Name, Do: "give all processes of the job the same value",
			Message: printable.Line(fmt.Sprintf("processes disagree: %s in process %d (%s), %s in process %d (%s)",
				f.value.Parsed, f.value.Process, f.value.Origin, v.Parsed, v.Process, v.Origin)),
		})
	}
}

// versionOf is the release that the file name of a library carries behind ".so.", ""
// when it says nothing of it: a number alone is that of the interface.
func versionOf(l *Library, file string) string {
	_, version, _ := strings.Cut(path.Base(file), ".so.")
	if l == nil || !l.Release || !strings.Contains(version, ".") {
		return ""
	}
	return printable.Line(version)
}
