package procs

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// tree is a captured tree with the process 10, whose second thread is 11.
func tree(t *testing.T, more ...txtar.File) Table {
	t.Helper()
	file := func(name, text string) txtar.File { return txtar.File{Name: name, Data: []byte(text)} }
	const tail = " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	status := "Name:\tw\nTgid:\t10\nUid:\t0\t0\t0\t0\nVmRSS:\t    4096 kB\nVmLck:\t      64 kB\nVmPin:\t       8 kB\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n"
	dir := fixture.Files(t, append([]txtar.File{
		file("proc/10/stat", "10 (w) S"+tail+" 77"+" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0\n"),
		file("proc/10/status", status),
		file("proc/10/limits", "Limit Soft Hard Units\nMax locked memory         8388608              unlimited            bytes\n"),
		file("proc/10/numa_maps", "7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n7f80 bind:1 file=/x huge N1=2 kernelpagesize_kB=2048\njunk N=3 Nx=1 N2=-1 N3=x\n"),
		file("proc/10/cgroup", "0::/job\n"),
		file("sys/fs/cgroup/job/cpuset.cpus.effective", "0-3\n"),
		file("proc/10/cmdline", "/bin/w\x00-x\x00\x00"),
		file("proc/10/maps", `00400000-00500000 r-xp 00000000 08:01 12 /bin/w
7f00-7f01 r--p 00000000 08:01 13 /usr/lib/libnccl.so.2.21.5
7f01-7f02 r-xp 00000000 08:01 13 /usr/lib/libnccl.so.2.21.5
7f02-7f03 r-xp 00000000 08:01 14 /opt/my lib/libucp.so.0 (deleted)
7f03-7f04 r-xp 00000000 00:00 0 [vdso]
7f04-7f05 rw-p 00000000 00:00 0
short
`),
		file("proc/10/task/10/stat", "10 (w) S"+tail+" 77"+" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0\n"),
		file("proc/10/task/10/status", status),
		file("proc/10/task/11/stat", "11 (w) S"+tail+" 78\n"),
		file("proc/10/task/11/status", "Cpus_allowed_list:\t2\n"),
		file("proc/10/ns/net@", "net:[4026531840]"),
	}, more...)...)
	fs, err := sysfs.OpenDir(dir, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(fs, nil)
}

func TestDetails(t *testing.T) {
	got, err := tree(t).Details(10)
	if err != nil {
		t.Fatal(err)
	}
	want := []Detail{
		{Thread{10, 77, "w", cpulist.New(0, 1, 2, 3)}, 5, "0-1"},
		{Thread{11, 78, "w", cpulist.New(2)}, -1, ""},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b cpulist.Set) bool { return a.Equals(b) })); diff != "" {
		t.Error(diff)
	}
	if _, err := tree(t).Details(12); err == nil {
		t.Error("details of no process")
	}
}

func TestMemory(t *testing.T) {
	got, err := tree(t).Memory(10)
	if err != nil {
		t.Fatal(err)
	}
	tree(t).Place(10, &got)
	want := Memory{
		Resident: new(int64(4 << 20)),
		Locked:   new(int64(64 << 10)), Pinned: new(int64(8 << 10)), LockLimit: new(int64(8 << 20)),
		Nodes: map[int]int64{0: 8 << 10, 1: 4<<10 + 4<<20}, HugePages: 4 << 20,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := tree(t).Memory(12); err == nil {
		t.Error("memory of no process")
	}
	huge := Memory{Resident: new(int64(65 << 30))}
	if tree(t).Place(10, &huge); huge.Nodes != nil || huge.Note == "" {
		t.Errorf("65 GiB are counted: %+v", huge)
	}
	for text, want := range map[string]*int64{
		"Max locked memory unlimited unlimited bytes": new(int64(-1)),
		"Max locked memory x":                         nil,
		"Max locked memory":                           nil,
		"":                                            nil,
	} {
		if diff := cmp.Diff(want, lockLimit(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestProcesses(t *testing.T) {
	got, err := tree(t).Processes([]int{10, 11, 11, 12, 0, -4})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]int{10: 10, 11: 10}, got); diff != "" {
		t.Error(diff)
	}
	live := New(sysfs.Host(), nil)
	got, err = live.Processes([]int{os.Getpid(), 1 << 22})
	if err != nil || got[os.Getpid()] != os.Getpid() {
		t.Errorf("this process: %v, %v", got, err)
	}
}

func TestMapped(t *testing.T) {
	got, err := tree(t).Mapped(10)
	if err != nil {
		t.Fatal(err)
	}
	want := []Mapping{
		{"/bin/w", false, "00400000-00500000"}, {"/opt/my lib/libucp.so.0", true, "7f02-7f03"}, {"/usr/lib/libnccl.so.2.21.5", false, "7f01-7f02"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPlaces(t *testing.T) {
	table := tree(t)
	if set, file, err := table.CPUSet(10); err != nil || cpulist.Format(set) != "0-3" || file != "/sys/fs/cgroup/job/cpuset.cpus.effective" {
		t.Errorf("CPUSet = %v, %q, %v", set, file, err)
	}
	if ns, err := table.Namespace(10, "net"); err != nil || ns != "net:[4026531840]" {
		t.Errorf("Namespace = %q, %v", ns, err)
	}
	if args, err := table.Args(10); err != nil || len(args) != 3 || args[1] != "-x" || args[2] != "" {
		t.Errorf("Args = %q, %v", args, err)
	}
}

// TestManyProcesses: threads of a captured tree are found in one pass, however many
// they are.
func TestManyProcesses(t *testing.T) {
	const n = 20_000
	m := sysfs.NewMem()
	var tids []int
	for i := range n {
		pid := 10 + 2*i
		m.File(fmt.Sprintf("/proc/%d/task/%d/stat", pid, pid+1), "")
		tids = append(tids, pid+1)
	}
	got, err := New(m.Open(t.TempDir(), nil), nil).Processes(tids)
	if err != nil || len(got) != n {
		t.Fatalf("%d of %d threads found: %v", len(got), n, err)
	}
	for tid, pid := range got {
		if pid != tid-1 {
			t.Fatalf("thread %d is said to be of process %d", tid, pid)
		}
	}
}
