package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/param"
)

// Matches reports whether all conditions of m hold for process pid; an empty m
// matches nothing. A process that is gone does not match, nor does a kernel thread. What cannot be read,
// because it is another user's, is an error: it is not known whether it matches.
func (t Table) Matches(pid int, m param.Match) (bool, error) {
	if m.IsEmpty() {
		return false, nil
	}
	ok, err := t.matches(pid, m)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	return ok, nil
}

// Belongs reports whether process pid is a workload's: it matches m, or, where m is empty,
// its environment names the workload. Errors are those of Matches.
func (t Table) Belongs(pid int, workload string, m param.Match) (bool, error) {
	if !m.IsEmpty() {
		return t.Matches(pid, m)
	}
	env, err := t.Environ(pid)
	if errors.Is(err, fs.ErrPermission) {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	if err != nil {
		return false, nil // it has gone
	}
	return workload != "" && env[workloadVariable] == workload, nil
}

// workloadVariable is the environment variable by which a process names its workload.
const workloadVariable = "RDMATUNE_WORKLOAD"

// matches looks at what is cheap and open to all users first, so that a process
// that does not match for that reason needs no permission.
func (t Table) matches(pid int, m param.Match) (bool, error) {
	if s, err := t.stat(procFile(pid, "stat")); err != nil || s.kernel {
		return false, err
	}
	for _, c := range []struct {
		pattern string
		read    func(int) (string, error)
	}{
		{m.Comm, t.Comm},
		{m.Cmdline, t.Cmdline},
		{m.Cgroup, t.Cgroup},
	} {
		if ok, err := t.holds(pid, c.pattern, c.read); !ok || err != nil {
			return false, err
		}
	}
	if m.User != "" {
		if ok, err := t.ownedBy(pid, m.User); !ok || err != nil {
			return false, err
		}
	}
	if ok, err := t.holds(pid, m.Exe, t.Exe); !ok || err != nil || len(m.Env) == 0 {
		return ok, err
	}
	env, err := t.Environ(pid)
	if err != nil {
		return false, err
	}
	for name, pattern := range m.Env {
		value, set := env[name]
		ok, err := glob(pattern, value)
		if err != nil || !set || !ok {
			return false, err
		}
	}
	return true, nil
}

// holds matches what read gives with pattern; an empty pattern holds unread.
func (t Table) holds(pid int, pattern string, read func(int) (string, error)) (bool, error) {
	if pattern == "" {
		return true, nil
	}
	text, err := read(pid)
	if err != nil {
		return false, err
	}
	return glob(pattern, text)
}

// glob is path.Match without its special treatment of '/': a command line is not a path.
func glob(pattern, text string) (bool, error) {
	const stand = "\x01"
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", stand), strings.ReplaceAll(text, "/", stand))
	if err != nil {
		return false, fmt.Errorf("pattern %.80q: %w", pattern, err)
	}
	return ok, nil
}

// Cmdline returns the arguments of process pid joined by one blank; "" for a kernel
// thread.
func (t Table) Cmdline(pid int) (string, error) {
	b, err := t.fs.ReadFile(procFile(pid, "cmdline"))
	if err != nil {
		return "", gone(err)
	}
	return strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " "), nil
}

// Exe returns the path of the program that process pid runs, also when its file has
// been replaced since. A kernel thread has none and is gone in this sense.
func (t Table) Exe(pid int) (string, error) {
	target, err := t.fs.Readlink(procFile(pid, "exe"))
	if err != nil {
		return "", gone(err)
	}
	return strings.TrimSuffix(target, " (deleted)"), nil
}

// Cgroup returns the path of process pid in the unified hierarchy, or in the cpuset
// hierarchy of cgroup v1 when it is not in the former.
func (t Table) Cgroup(pid int) (string, error) {
	b, err := t.fs.ReadFile(procFile(pid, "cgroup"))
	if err != nil {
		return "", gone(err)
	}
	unified, legacy := ParseCgroup(string(b))
	if unified != "" && unified != "/" || legacy == "" {
		return unified, nil
	}
	return legacy, nil
}

// ParseCgroup reads a cgroup file (cgroups(7)): lines ID:CONTROLLERS:PATH. It
// returns the path in the unified hierarchy (v2) and in that of cpuset (v1), "" for
// a hierarchy that has no line.
func ParseCgroup(text string) (unified, cpuset string) {
	for line := range strings.SplitSeq(text, "\n") {
		id, rest, ok := strings.Cut(line, ":")
		controllers, at, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			continue
		}
		if id == "0" && controllers == "" {
			unified = at
		}
		for c := range strings.SplitSeq(controllers, ",") {
			if c == "cpuset" {
				cpuset = at
			}
		}
	}
	return unified, cpuset
}

// UID returns the effective user of process pid.
func (t Table) UID(pid int) (int, error) {
	name := procFile(pid, "status")
	text, err := t.status(name, "Uid")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(text) // real, effective, saved, file system
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s: too few user ids", name)
	}
	uid, err := strconv.ParseUint(fields[1], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: the user id is not a number", name)
	}
	return int(uid), nil
}

// ownedBy reports whether user, a number or a name, runs process pid.
func (t Table) ownedBy(pid int, user string) (bool, error) {
	want, err := strconv.Atoi(user)
	if err != nil {
		lookup := t.lookup
		if lookup == nil {
			lookup = t.passwd
		}
		if want, err = lookup(user); err != nil {
			return false, fmt.Errorf("user %.60q: %w", user, err)
		}
	}
	uid, err := t.UID(pid)
	return err == nil && uid == want, err
}

// passwd finds a user in the node's own /etc/passwd, never in this machine's.
func (t Table) passwd(user string) (int, error) {
	b, err := t.fs.ReadFile("/etc/passwd")
	if err != nil {
		return 0, errors.New("the node's user names are not known here; give the number")
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		fields := strings.Split(line, ":")
		if len(fields) >= 3 && fields[0] == user {
			return strconv.Atoi(fields[2])
		}
	}
	return 0, errors.New("no such user on the node")
}
