package node

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// A Process is a process that a captured or simulated node is made to show.
type Process struct {
	PID      int
	Start    uint64 // clock ticks since boot, as in /proc/PID/stat
	Comm     string
	Cmdline  []string
	Workload string // RDMATUNE_WORKLOAD of its environment, "" for none
	UID      int
	Threads  []int // thread ids beside PID itself
}

// Adopt makes a captured or simulated node show ps in its /proc, and none that an
// earlier call gave. Their threads may run on all online CPUs, except for what
// SetAffinity set for a thread of the same id and start time before; a thread for
// which nothing was set has what its main thread has, as if it had been born of it.
func (n *Node) Adopt(ps ...Process) error {
	if n.kind == Local {
		return fmt.Errorf("node %s: shows its own processes only", n.ref)
	}
	all, err := (&survey{fs: n.FS()}).onlineCPUs()
	if err != nil && len(ps) > 0 {
		return fmt.Errorf("node %s: online CPUs: %w", n.ref, err)
	}
	online := cpulist.Format(all)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pid := range n.pids {
		n.adopted.Remove("/proc/" + strconv.Itoa(pid))
	}
	n.pids = nil
	table := procs.New(n.fs, nil)
	for _, p := range ps {
		show(n.adopted, p, online)
		n.pids = append(n.pids, p.PID)
		threads, err := table.Threads(p.PID)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.ref, err)
		}
		for _, th := range threads {
			if th.TID == p.PID {
				show(n.adopted, p, cpulist.Format(th.CPUs))
			}
		}
	}
	return nil
}

// show writes the files of p that a process table is read from.
func show(m *sysfs.Mem, p Process, online string) {
	dir := "/proc/" + strconv.Itoa(p.PID)
	// The name comes from the process itself: it must not add lines to a file.
	p.Comm = printable.Line(p.Comm)
	env := ""
	if p.Workload != "" {
		env = "RDMATUNE_WORKLOAD=" + p.Workload + "\x00"
	}
	cmdline := ""
	for _, arg := range p.Cmdline {
		cmdline += arg + "\x00"
	}
	m.File(dir+"/environ", env)
	m.File(dir+"/cmdline", cmdline)
	m.File(dir+"/cgroup", "0::/\n")
	if len(p.Cmdline) > 0 && strings.HasPrefix(p.Cmdline[0], "/") {
		m.Link(dir+"/exe", p.Cmdline[0])
	}
	threads := append([]int{p.PID}, p.Threads...)
	slices.Sort(threads)
	for _, tid := range slices.Compact(threads) {
		sub := dir + "/task/" + strconv.Itoa(tid)
		showThread(m, sub, tid, p, online)
		if tid == p.PID {
			showThread(m, dir, tid, p, online)
		}
	}
}

func showThread(m *sysfs.Mem, dir string, tid int, p Process, online string) {
	m.File(dir+"/comm", p.Comm+"\n")
	// Fields 4 to 21 (proc(5)) are of no interest here; 22 is the start time.
	m.File(dir+"/stat", fmt.Sprintf("%d (%s) S%s %d 0\n", tid, p.Comm, strings.Repeat(" 0", 18), p.Start))
	m.File(dir+"/status", fmt.Sprintf("Name:\t%s\nTgid:\t%d\nPid:\t%d\nUid:\t%[4]d\t%[4]d\t%[4]d\t%[4]d\nCpus_allowed_list:\t%[5]s\n",
		p.Comm, p.PID, tid, p.UID, online))
}

// Affinity returns the CPUs that thread tid may run on.
func (n *Node) Affinity(tid int) (cpulist.Set, error) {
	if n.kind == Local {
		mask := unix.NewCPUSet(cpulist.MaxCPUs)
		if err := unix.SchedGetaffinityDynamic(tid, mask); err != nil {
			return cpulist.New(), fmt.Errorf("thread %d: get affinity: %w", tid, threadError(err))
		}
		var cpus []int
		for cpu := range cpulist.MaxCPUs {
			if mask.IsSet(cpu) {
				cpus = append(cpus, cpu)
			}
		}
		return cpulist.New(cpus...), nil
	}
	table := n.Procs()
	pid, err := table.ProcessOf(tid)
	if err != nil {
		return cpulist.New(), err
	}
	threads, err := table.Threads(pid)
	if err != nil {
		return cpulist.New(), err
	}
	for _, th := range threads {
		if th.TID == tid {
			return th.CPUs, nil
		}
	}
	return cpulist.New(), fmt.Errorf("thread %d: %w", tid, procs.ErrGone)
}

// SetAffinity lets thread tid run on the CPUs of set. The kernel takes those of
// them that are online and in the thread's cpuset, and refuses (EINVAL) a set that
// has none: read back what became of it.
func (n *Node) SetAffinity(tid int, set cpulist.Set) error {
	if err := n.check("/affinity/" + strconv.Itoa(tid)); err != nil {
		return fmt.Errorf("thread %d: set affinity: %w", tid, err)
	}
	if n.kind == Local {
		mask := unix.NewCPUSet(cpulist.MaxCPUs)
		for _, cpu := range set.UnsortedList() {
			mask.Set(cpu)
		}
		if err := unix.SchedSetaffinityDynamic(tid, mask); err != nil {
			return fmt.Errorf("thread %d: set affinity: %w", tid, threadError(err))
		}
		return nil
	}
	pid, err := n.Procs().ProcessOf(tid)
	if err != nil {
		return err
	}
	status := fmt.Sprintf("/proc/%d/task/%d/status", pid, tid)
	if err := n.fs.WriteFile(status, cpulist.Format(set)); err != nil {
		return fmt.Errorf("thread %d: set affinity: %w", tid, threadError(err))
	}
	return nil
}

// threadError adds procs.ErrGone to the errno that says so.
func threadError(err error) error {
	if os.IsNotExist(err) || err == unix.ESRCH {
		return fmt.Errorf("%w: %w", procs.ErrGone, err)
	}
	return err
}
