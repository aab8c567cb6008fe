// Package procs reads the process table of a node. Processes come and go while it
// reads: one that vanishes, or is a zombie, simply is not there. What may not be
// read is said, never taken for empty.
package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// ErrGone says that a process or a thread is not there (any more).
var ErrGone = errors.New("process is gone")

// A Table is the process table below one /proc. The zero Table is empty.
type Table struct {
	fs     sysfs.FS
	lookup func(name string) (uid int, err error)
}

// New returns the process table of fs. lookup turns a user's name into a number;
// nil reads /etc/passwd of fs.
func New(fs sysfs.FS, lookup func(name string) (int, error)) Table {
	return Table{fs: fs, lookup: lookup}
}

// A Thread is one thread of a process.
type Thread struct {
	TID   int
	Start uint64 // in clock ticks since boot; tells a reused TID
	Comm  string
	CPUs  cpulist.Set // that it may run on
}

// Key is the thread's identity within one boot: "4711@123456".
func (t Thread) Key() string { return ThreadKey(t.TID, t.Start) }

// ThreadKey joins a thread's id and start time.
func ThreadKey(tid int, start uint64) string {
	return strconv.Itoa(tid) + "@" + strconv.FormatUint(start, 10)
}

// ParseThreadKey splits what ThreadKey joined.
func ParseThreadKey(key string) (tid int, start uint64, err error) {
	a, b, ok := strings.Cut(key, "@")
	tid, errA := strconv.Atoi(a)
	start, errB := strconv.ParseUint(b, 10, 64)
	if !ok || errA != nil || errB != nil || tid <= 0 {
		return 0, 0, fmt.Errorf("thread %.60q is not THREAD@START", key)
	}
	return tid, start, nil
}

// PIDs returns the ids of all processes, ascending.
func (t Table) PIDs() ([]int, error) { return t.numbers("/proc") }

func (t Table) numbers(dir string) ([]int, error) {
	ids, err := t.fs.Numbered(dir, "")
	return ids, gone(err)
}

// gone turns the errors that a vanished process causes into ErrGone. A captured tree
// may hold anything by a process's name, such as a link to itself or a plain file: there
// is no process behind it either.
func gone(err error) error {
	for _, absent := range []error{fs.ErrNotExist, syscall.ESRCH, syscall.ELOOP, syscall.ENOTDIR} {
		if errors.Is(err, absent) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	return err
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// Start returns when process pid started, in clock ticks since boot. Together with
// the pid it is the process's identity within one boot. A zombie is gone.
func (t Table) Start(pid int) (uint64, error) {
	s, err := t.stat(procFile(pid, "stat"))
	return s.start, err
}

// ThreadStart is Start of thread tid of process pid.
func (t Table) ThreadStart(pid, tid int) (uint64, error) {
	s, err := t.stat(procFile(pid, "task/"+strconv.Itoa(tid)+"/stat"))
	return s.start, err
}

// ProcessOf returns the process that thread tid belongs to.
func (t Table) ProcessOf(tid int) (int, error) {
	pids, err := t.PIDs()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if t.fs.Exists(procFile(pid, "task/"+strconv.Itoa(tid))) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("thread %d: %w", tid, ErrGone)
}

// Comm returns the name of process pid, at most 15 bytes.
func (t Table) Comm(pid int) (string, error) {
	s, err := t.stat(procFile(pid, "stat"))
	return s.comm, err
}

// stat is what rdmatune takes from a stat file.
type stat struct {
	comm   string
	state  byte
	kernel bool // a kernel thread
	start  uint64
}

// kernelThread is PF_KTHREAD of the kernel's sched.h.
const kernelThread = 0x00200000

func (t Table) stat(name string) (stat, error) {
	b, err := t.fs.ReadFile(name)
	if err != nil {
		return stat{}, gone(err)
	}
	s, err := parseStat(string(b))
	if err != nil {
		return stat{}, fmt.Errorf("%s: %w", name, err)
	}
	if s.state == 'Z' || s.state == 'X' || s.state == 'x' {
		return stat{}, fmt.Errorf("%s: %w", name, ErrGone)
	}
	return s, nil
}

// parseStat reads a stat line (proc(5)): the command stands in parentheses and may
// hold blanks and parentheses itself, so the last one ends it. The state is field
// 3, the flags are field 9, the start time is field 22.
func parseStat(line string) (stat, error) {
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return stat{}, errors.New("no command in parentheses")
	}
	fields := strings.Fields(line[to+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, errors.New("too few fields")
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, errors.New("the start time is not a number")
	}
	flags, err := strconv.ParseUint(fields[6], 10, 32)
	if err != nil {
		return stat{}, errors.New("the flags are not a number")
	}
	return stat{comm: line[from+1 : to], state: fields[0][0], kernel: flags&kernelThread != 0, start: start}, nil
}

// ParseStart returns the start time that a stat file tells.
func ParseStart(line string) (uint64, error) {
	s, err := parseStat(line)
	return s.start, err
}

// Environ returns the environment that process pid was started with. Of a name
// given twice the first counts, as for getenv(3).
func (t Table) Environ(pid int) (map[string]string, error) {
	b, err := t.fs.ReadFile(procFile(pid, "environ"))
	if err != nil {
		return nil, gone(err)
	}
	env := map[string]string{}
	for entry := range strings.SplitSeq(string(b), "\x00") {
		name, value, ok := strings.Cut(entry, "=")
		if _, dup := env[name]; ok && !dup {
			env[name] = value
		}
	}
	return env, nil
}

// Threads returns the threads of process pid, by id. Threads that vanish meanwhile
// are left out; a process without any is gone.
func (t Table) Threads(pid int) ([]Thread, error) {
	dir := procFile(pid, "task")
	tids, err := t.numbers(dir)
	if err != nil {
		return nil, err
	}
	threads := make([]Thread, 0, len(tids))
	for _, tid := range tids {
		th, err := t.thread(dir+"/"+strconv.Itoa(tid), tid)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		threads = append(threads, th)
	}
	if len(threads) == 0 {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return threads, nil
}

func (t Table) thread(dir string, tid int) (Thread, error) {
	s, err := t.stat(dir + "/stat")
	if err != nil {
		return Thread{}, err
	}
	text, err := t.status(dir+"/status", "Cpus_allowed_list")
	if err != nil {
		return Thread{}, err
	}
	cpus, err := cpulist.ParseKernel(text)
	if err != nil {
		return Thread{}, fmt.Errorf("%s/status: %w", dir, err)
	}
	return Thread{TID: tid, Start: s.start, Comm: s.comm, CPUs: cpus}, nil
}

// status returns one field of a status file.
func (t Table) status(name, field string) (string, error) {
	b, err := t.fs.ReadFile(name)
	if err != nil {
		return "", gone(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s: no line %s", name, field)
}
