package control

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// maxCmdline bounds what is kept of a process's arguments, which it chose, in bytes.
const maxCmdline = 4096

// startTime returns the start of process pid in clock ticks after boot: field 22
// of /proc/PID/stat (proc_pid_stat(5)).
func startTime(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return parseStart(path, b)
}

// parseStart finds the field from behind: the command in field 2 may hold blanks
// and parentheses.
func parseStart(path string, stat []byte) (uint64, error) {
	i := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[i+1:])
	if i < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	n, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: start time: %w", path, err)
	}
	return n, nil
}

// stopped reports whether process pid is stopped by a signal (state T of field 3): it
// accepts connections, as the kernel does that for it, and answers none.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	return len(fields) > 0 && string(fields[0]) == "T"
}

// describe fills in what the kernel says of p.PID, which started at p.Start.
func (p *Process) describe() error {
	dir := fmt.Sprintf("/proc/%d/", p.PID)
	comm, err := os.ReadFile(dir + "comm")
	if err != nil {
		return err
	}
	p.Comm = printable.Line(strings.TrimSuffix(string(comm), "\n"))
	cmdline, err := os.ReadFile(dir + "cmdline")
	if err != nil {
		return err
	}
	p.Cmdline = printable.Clip(strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " "), maxCmdline)
	entries, err := os.ReadDir(dir + "task")
	if err != nil {
		return err
	}
	p.Threads = make([]int, 0, len(entries))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			p.Threads = append(p.Threads, tid)
		}
	}
	slices.Sort(p.Threads)
	// The process may have gone in between and its number be another's.
	start, err := startTime(p.PID)
	if err == nil && start != p.Start {
		err = fmt.Errorf("process %d: %w", p.PID, os.ErrNotExist)
	}
	return err
}

// alive reports whether pid is a process that started at start.
func alive(pid int, start uint64) (bool, error) {
	got, err := startTime(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errNoProcess) {
		return false, nil
	}
	return err == nil && got == start, err
}
