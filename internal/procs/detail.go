package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
)

// A Detail is a thread with what is only of interest to somebody who looks at it.
type Detail struct {
	Thread
	LastCPU int    // that it ran on last, -1 when unknown
	Mems    string // NUMA nodes that it may take memory from, a kernel list; "" when unknown
}

// Details is Threads with each thread's last CPU and memory nodes. What of a thread
// cannot be told is left unknown.
func (t Table) Details(pid int) ([]Detail, error) {
	threads, err := t.Threads(pid)
	if err != nil {
		return nil, err
	}
	out := make([]Detail, len(threads))
	for i, th := range threads {
		dir := procFile(pid, "task/"+strconv.Itoa(th.TID))
		out[i] = Detail{Thread: th, LastCPU: -1}
		if b, err := t.fs.ReadFile(dir + "/stat"); err == nil {
			out[i].LastCPU = lastCPU(string(b))
		}
		if mems, err := t.status(dir+"/status", "Mems_allowed_list"); err == nil && len(mems) < 256 {
			out[i].Mems = mems
		}
	}
	return out, nil
}

// lastCPU is field 39 of a stat file, -1 when it has none.
func lastCPU(line string) int {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 37 {
		return -1
	}
	n, err := strconv.ParseUint(fields[36], 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// A Memory is what a process has of memory, in bytes. Nil is not told.
type Memory struct {
	Resident  *int64        `json:"resident_bytes"`
	Locked    *int64        `json:"locked_bytes"`         // by mlock(2)
	Pinned    *int64        `json:"pinned_bytes"`         // by drivers, such as registered memory
	LockLimit *int64        `json:"lock_limit_bytes"`     // RLIMIT_MEMLOCK, -1 for unlimited
	Nodes     map[int]int64 `json:"numa_bytes,omitempty"` // pages by NUMA node
	HugePages int64         `json:"huge_page_bytes"`      // of those, in pages larger than the base page
	Note      string        `json:"numa_note,omitempty"`  // why Nodes is missing or not whole
}

// maxMaps bounds the part of numa_maps that is read into account: some hundred
// thousand mappings.
const maxMaps = 32 << 20

// maxPlaced bounds the memory of a process whose placement is asked for: the kernel
// walks its page tables with the address space locked against changes.
const maxPlaced = 64 << 30

// Memory returns what process pid has of memory, without where it is. Only a process
// that is gone is an error.
func (t Table) Memory(pid int) (Memory, error) {
	var m Memory
	if _, err := t.Start(pid); err != nil {
		return m, err
	}
	m.Resident, m.Locked, m.Pinned = t.kib(pid, "VmRSS"), t.kib(pid, "VmLck"), t.kib(pid, "VmPin")
	if b, err := t.fs.ReadFile(procFile(pid, "limits")); err == nil {
		m.LockLimit = lockLimit(string(b))
	}
	return m, nil
}

// Place adds to m, the memory of process pid, which NUMA nodes it is on. It is not asked
// for more than 64 GiB, since the asking holds the process up.
func (t Table) Place(pid int, m *Memory) {
	if m.Resident != nil && *m.Resident > maxPlaced {
		m.Note = "not counted: finding it out holds up a process of more than 64 GiB"
		return
	}
	b, err := t.fs.ReadFile(procFile(pid, "numa_maps"))
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		m.Note = "numa_maps: " + err.Error()
		return
	}
	if len(b) > maxMaps {
		m.Note = fmt.Sprintf("only the first %d MiB of numa_maps were counted", maxMaps>>20)
		b = b[:maxMaps]
	}
	m.count(string(b))
}

func (t Table) kib(pid int, field string) *int64 {
	text, err := t.status(procFile(pid, "status"), field)
	if err != nil {
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 40)
	if err != nil || n < 0 {
		return nil
	}
	return new(n << 10)
}

// lockLimit reads the soft limit of locked memory from a limits file (proc(5)).
func lockLimit(text string) *int64 {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		if words[0] == "unlimited" {
			return new(int64(-1))
		}
		if n, err := strconv.ParseInt(words[0], 10, 64); err == nil && n >= 0 {
			return &n
		}
	}
	return nil
}

// count adds up a numa_maps file (numa(7)): a line for each mapping, with N0=PAGES
// for each node that has pages of it, and the size of these pages.
func (m *Memory) count(text string) {
	m.Nodes = map[int]int64{}
	for line := range strings.Lines(text) {
		kib := int64(4)
		pages := map[int]int64{}
		for word := range strings.FieldsSeq(line) {
			name, value, ok := strings.Cut(word, "=")
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(value, 10, 40)
			if err != nil || n < 0 {
				continue
			}
			if name == "kernelpagesize_kB" {
				kib = min(n, 1<<24)
			} else if id, ok := strings.CutPrefix(name, "N"); ok {
				if node, err := strconv.ParseUint(id, 10, 16); err == nil {
					pages[int(node)] += n
				}
			}
		}
		for node, n := range pages {
			m.Nodes[node] += n * kib << 10
			if kib > 64 { // the largest base page of any architecture
				m.HugePages += n * kib << 10
			}
		}
	}
}

// Namespace returns the namespace of a kind ("net", "pid", "mnt") that process pid is
// in, as the kernel names it: "net:[4026531840]". pid 0 is rdmatune itself.
func (t Table) Namespace(pid int, kind string) (string, error) {
	name := "/proc/self/ns/" + kind
	if pid != 0 {
		name = procFile(pid, "ns/"+kind)
	}
	target, err := t.fs.Readlink(name)
	return target, gone(err)
}

// Processes returns the process that each of the threads belongs to; those that are
// gone are missing. The kernel shows /proc/TID for threads that are no processes as
// well; a captured tree need not, and is searched once for all.
func (t Table) Processes(tids []int) (map[int]int, error) {
	out := make(map[int]int, len(tids))
	missing := map[string]int{}
	for _, tid := range tids {
		if _, done := out[tid]; done || tid <= 0 {
			continue
		}
		text, err := t.status(procFile(tid, "status"), "Tgid")
		pid, convErr := strconv.Atoi(text)
		if err != nil || convErr != nil || pid <= 0 {
			missing[strconv.Itoa(tid)] = tid
			continue
		}
		out[tid] = pid
	}
	if len(missing) == 0 || t.live() {
		return out, nil
	}
	pids, err := t.PIDs()
	if err != nil {
		return out, err
	}
	for _, pid := range pids {
		names, err := t.fs.ReadDir(procFile(pid, "task"))
		if err != nil {
			continue // it ended meanwhile
		}
		for _, name := range names {
			if tid, ok := missing[name]; ok {
				out[tid] = pid
			}
		}
	}
	return out, nil
}

// live reports whether the tree is a running kernel's, in which /proc/self is a link
// to the reader.
func (t Table) live() bool {
	_, err := t.fs.Readlink("/proc/self")
	return err == nil
}

// CPUSet returns the CPUs that the cpuset of process pid leaves it, and the file that
// says so; an empty file name when no cpuset does.
func (t Table) CPUSet(pid int) (cpulist.Set, string, error) {
	b, err := t.fs.ReadFile(procFile(pid, "cgroup"))
	if err != nil {
		return cpulist.New(), "", gone(err)
	}
	unified, legacy := ParseCgroup(string(b))
	var files []string
	if unified != "" {
		files = append(files, "/sys/fs/cgroup"+unified+"/cpuset.cpus.effective", "/sys/fs/cgroup/unified"+unified+"/cpuset.cpus.effective")
	}
	if legacy != "" {
		files = append(files, "/sys/fs/cgroup/cpuset"+legacy+"/cpuset.effective_cpus", "/sys/fs/cgroup/cpuset"+legacy+"/cpuset.cpus")
	}
	for _, file := range files {
		if strings.Contains(file, "..") {
			continue // a path that the reader's namespace does not show
		}
		text, err := t.fs.ReadString(file)
		if err != nil || text == "" {
			continue
		}
		set, err := cpulist.ParseKernel(text)
		if err != nil {
			return cpulist.New(), file, fmt.Errorf("%s: %w", file, err)
		}
		return set, file, nil
	}
	return cpulist.New(), "", nil
}

// A Mapping is a file that a process has mapped.
type Mapping struct {
	Path    string
	Deleted bool   // its name is gone: replaced since, such as by an upgrade
	Range   string // "7f00-7f10" of its first mapping, its name in map_files
}

// maxMappings bounds the files of one process.
const maxMappings = 4096

// Mapped returns the files that process pid has mapped executable, each once, by path.
func (t Table) Mapped(pid int) ([]Mapping, error) {
	b, err := t.fs.ReadFile(procFile(pid, "maps"))
	if err != nil {
		return nil, gone(err)
	}
	seen := map[string]bool{}
	var out []Mapping
	for line := range strings.Lines(string(b)) {
		// 7f1c9d2a8000-7f1c9d2d0000 r-xp 00028000 08:01 1311  /usr/lib/libc.so.6
		fields := strings.Fields(line)
		at := strings.IndexByte(line, '/')
		if len(fields) < 6 || at < 0 || len(fields[1]) != 4 || fields[1][2] != 'x' {
			continue
		}
		path, deleted := strings.CutSuffix(strings.TrimSuffix(line[at:], "\n"), " (deleted)")
		if seen[path] || strings.ContainsRune(path, 0) {
			continue
		}
		seen[path] = true
		if out = append(out, Mapping{path, deleted, fields[0]}); len(out) == maxMappings {
			break
		}
	}
	slices.SortFunc(out, func(a, b Mapping) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Args returns the arguments of process pid; none for a kernel thread.
func (t Table) Args(pid int) ([]string, error) {
	b, err := t.fs.ReadFile(procFile(pid, "cmdline"))
	if err != nil {
		return nil, gone(err)
	}
	text := strings.TrimSuffix(string(b), "\x00")
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, "\x00"), nil
}

// Cwd returns the working directory of process pid.
func (t Table) Cwd(pid int) (string, error) {
	target, err := t.fs.Readlink(procFile(pid, "cwd"))
	return target, gone(err)
}
