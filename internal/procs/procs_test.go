package procs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

const (
	fields4to8   = "1 1 1 0 -1 "
	fields10to21 = "0 0 0 0 0 0 0 0 20 0 1 0 "
)

func statLine(comm, state, flags, start string) string {
	return "77 (" + comm + ") " + state + " " + fields4to8 + flags + " " + fields10to21 + start + " 0 0\n"
}

func TestParseStat(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		want stat
	}{
		"plain":        {statLine("bash", "S", "4194304", "1234"), stat{comm: "bash", state: 'S', start: 1234}},
		"parentheses":  {statLine("a) R (b", "R", "0", "5"), stat{comm: "a) R (b", state: 'R', start: 5}},
		"empty":        {statLine("", "R", "0", "5"), stat{state: 'R', start: 5}},
		"kthread":      {statLine("kworker/0:1", "I", "69238880", "3"), stat{comm: "kworker/0:1", state: 'I', kernel: true, start: 3}},
		"large ticks":  {statLine("x", "S", "0", "18446744073709551615"), stat{comm: "x", state: 'S', start: 1<<64 - 1}},
		"line in comm": {statLine("a\nb", "S", "0", "9"), stat{comm: "a\nb", state: 'S', start: 9}},
	} {
		got, err := parseStat(tc.line)
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "77", "77 (x", "77 x) S", ")(", "77 (x) S 1 2", statLine("x", "SS", "0", "1"), statLine("x", "S", "0", "-1"), statLine("x", "S", "f", "1")} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %+v", bad, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add(statLine("a) R (b", "R", "0", "5"))
	f.Add("77 (x) S")
	f.Fuzz(func(t *testing.T, line string) {
		s, err := parseStat(line)
		if err != nil {
			return
		}
		if start, err := ParseStart(line); err != nil || start != s.start {
			t.Errorf("ParseStart(%q) = %d, %v", line, start, err)
		}
	})
}

// table returns a process table with one process of each kind.
func table(t *testing.T) Table {
	t.Helper()
	m := sysfs.NewMem()
	process := func(pid, comm, state, flags, cmdline, environ, uid string) {
		dir := "/proc/" + pid
		m.File(dir+"/stat", statLine(comm, state, flags, "100"))
		m.File(dir+"/cmdline", cmdline)
		m.File(dir+"/environ", environ)
		m.File(dir+"/cgroup", "1:cpuset:/old\n0::/job_"+pid+"\n")
		m.File(dir+"/status", "Name:\tx\nUid:\t0\t"+uid+"\t0\t0\nCpus_allowed_list:\t0-3\n")
		m.File(dir+"/task/"+pid+"/stat", statLine(comm, state, flags, "100"))
		m.File(dir+"/task/"+pid+"/status", "Cpus_allowed_list:\t0-3\n")
	}
	process("10", "trainer", "S", "0", "/opt/bin/trainer\x00--rank=0\x00", "LOCAL_RANK=0\x00EMPTY=\x00LOCAL_RANK=9\x00", "1000")
	process("11", "trainer", "S", "0", "/opt/bin/trainer\x00--rank=1\x00", "LOCAL_RANK=1\x00", "1000")
	process("12", "trainer", "Z", "0", "", "", "1000")
	process("13", "kworker", "I", "69238880", "", "", "0")
	m.Link("/proc/10/exe", "/opt/bin/trainer (deleted)")
	m.Link("/proc/11/exe", "/opt/bin/trainer")
	m.File("/proc/10/task/15/stat", statLine("nccl io", "S", "0", "170"))
	m.File("/proc/10/task/15/status", "Cpus_allowed_list:\t2\n")
	m.Dir("/proc/10/task/16") // has just ended
	m.File("/proc/uptime", "1 1")
	m.Dir("/proc/irq/10")
	m.File("/etc/passwd", "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n")
	return New(m.Open(t.TempDir(), nil), nil)
}

func TestMatches(t *testing.T) {
	tab := table(t)
	pids, err := tab.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		match param.Match
		want  []int
	}{
		"nothing asked": {param.Match{}, nil},
		"comm":          {param.Match{Comm: "train*"}, []int{10, 11}},
		"all":           {param.Match{Comm: "*"}, []int{10, 11}},
		"cmdline":       {param.Match{Cmdline: "*trainer --rank=?"}, []int{10, 11}},
		"one rank":      {param.Match{Cmdline: "*--rank=1"}, []int{11}},
		"exe":           {param.Match{Exe: "/opt/*/trainer"}, []int{10, 11}},
		"exe crosses":   {param.Match{Exe: "/*trainer"}, []int{10, 11}},
		"cgroup":        {param.Match{Cgroup: "/job_10"}, []int{10}},
		"user":          {param.Match{User: "1000"}, []int{10, 11}},
		"user name":     {param.Match{User: "alice"}, []int{10, 11}},
		"root":          {param.Match{User: "root"}, nil},
		"env":           {param.Match{Env: map[string]string{"LOCAL_RANK": "0"}}, []int{10}},
		"env empty":     {param.Match{Env: map[string]string{"EMPTY": ""}}, []int{10}},
		"env unset":     {param.Match{Env: map[string]string{"NONE": "*"}}, nil},
		"all must hold": {param.Match{Comm: "trainer", Env: map[string]string{"LOCAL_RANK": "[0-9]"}, User: "1000", Cgroup: "*11"}, []int{11}},
	} {
		var got []int
		for _, pid := range pids {
			ok, err := tab.Matches(pid, tc.match)
			if err != nil {
				t.Errorf("%s: process %d: %v", name, pid, err)
			}
			if ok {
				got = append(got, pid)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if ok, err := tab.Matches(99, param.Match{Comm: "*"}); ok || err != nil {
		t.Errorf("a process that is not there: %v, %v", ok, err)
	}
	if _, err := tab.Matches(10, param.Match{Comm: "[a"}); err == nil {
		t.Error("a broken pattern is taken")
	}
	if _, err := tab.Matches(10, param.Match{User: "nobody-here"}); err == nil {
		t.Error("a user that is not there is taken")
	}
}

func TestThreads(t *testing.T) {
	tab := table(t)
	threads, err := tab.Threads(10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, th := range threads {
		got = append(got, th.Key()+" "+th.Comm+" "+th.CPUs.String())
	}
	if diff := cmp.Diff([]string{"10@100 trainer 0-3", "15@170 nccl io 2"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, pid := range []int{12, 99} {
		if _, err := tab.Threads(pid); !errors.Is(err, ErrGone) {
			t.Errorf("threads of %d: %v, want ErrGone", pid, err)
		}
	}
	if pid, err := tab.ProcessOf(15); err != nil || pid != 10 {
		t.Errorf("ProcessOf(15) = %d, %v", pid, err)
	}
	if _, err := tab.ProcessOf(99); !errors.Is(err, ErrGone) {
		t.Errorf("ProcessOf(99): %v", err)
	}
}

func TestThreadKey(t *testing.T) {
	tid, start, err := ParseThreadKey(ThreadKey(4711, 1<<63))
	if err != nil || tid != 4711 || start != 1<<63 {
		t.Errorf("%d, %d, %v", tid, start, err)
	}
	for _, bad := range []string{"", "1", "@", "0@1", "-1@1", "1@-1", "a@b"} {
		if _, _, err := ParseThreadKey(bad); err == nil {
			t.Errorf("ParseThreadKey(%q) took it", bad)
		}
	}
}

// TestLive reads a real process: a child of this test.
func TestLive(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), "RDMATUNE_WORKLOAD=live")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tab := New(sysfs.Host(), nil)
	pid := cmd.Process.Pid
	// Start returns when exec has closed its descriptors, a moment before the kernel has
	// put the new program's arguments in place.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if text, err := tab.Cmdline(pid); err != nil || text == "sleep 60" {
			break
		}
	}
	ok, err := tab.Matches(pid, param.Match{Cmdline: "*sleep 60", Env: map[string]string{"RDMATUNE_WORKLOAD": "live"}})
	if err != nil || !ok {
		t.Errorf("Matches = %v, %v", ok, err)
	}
	if threads, err := tab.Threads(pid); err != nil || len(threads) != 1 || threads[0].TID != pid || threads[0].CPUs.IsEmpty() {
		t.Errorf("Threads = %+v, %v", threads, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Killed and not waited for, it is a zombie or about to be one; waited for, it is gone.
	_ = cmd.Wait()
	if _, err := tab.Start(pid); !errors.Is(err, ErrGone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Start after the end: %v, want ErrGone", err)
	}
}

// TestBelongs: a workload without a match has the processes whose environment names it.
func TestBelongs(t *testing.T) {
	m := sysfs.NewMem()
	for pid, environ := range map[string]string{"10": "RDMATUNE_WORKLOAD=train\x00", "11": "RDMATUNE_WORKLOAD=other\x00", "12": "A=train\x00"} {
		m.File("/proc/"+pid+"/stat", statLine("t", "S", "0", "100"))
		m.File("/proc/"+pid+"/environ", environ)
	}
	tab := New(m.Open(t.TempDir(), nil), nil)
	for _, c := range []struct {
		pid      int
		workload string
		match    param.Match
		want     bool
	}{
		{10, "train", param.Match{}, true},
		{11, "train", param.Match{}, false},
		{12, "train", param.Match{}, false},
		{12, "", param.Match{}, false},
		{99, "train", param.Match{}, false},
		{11, "train", param.Match{Env: map[string]string{"RDMATUNE_WORKLOAD": "o*"}}, true},
		{10, "train", param.Match{Env: map[string]string{"NONE": "*"}}, false},
	} {
		if got, err := tab.Belongs(c.pid, c.workload, c.match); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

func TestParseCgroup(t *testing.T) {
	for _, tc := range []struct{ text, unified, cpuset string }{
		{"0::/user.slice\n", "/user.slice", ""},
		{"12:cpuset:/job\n3:cpu,cpuacct:/x\n0::/\n", "/", "/job"},
		{"4:cpu,cpuset:/a:b\n", "", "/a:b"},
		{"junk\n\n::\n", "", ""},
	} {
		if u, c := ParseCgroup(tc.text); u != tc.unified || c != tc.cpuset {
			t.Errorf("ParseCgroup(%q) = %q, %q", tc.text, u, c)
		}
	}
}

// TestNoProcess: what a captured tree has by a process's name need not be one.
func TestNoProcess(t *testing.T) {
	m := sysfs.NewMem()
	m.Link("/proc/104", "104")
	m.File("/proc/105", "a file\n")
	m.Link("/proc/106", "nowhere")
	m.File("/proc/107/stat", statLine("x", "S", "0", "5"))
	table := New(m.Open(t.TempDir(), nil), nil)
	for _, pid := range []int{104, 105, 106} {
		for what, ask := range map[string]func() error{
			"start":   func() error { _, err := table.Start(pid); return err },
			"comm":    func() error { _, err := table.Comm(pid); return err },
			"environ": func() error { _, err := table.Environ(pid); return err },
			"threads": func() error { _, err := table.Threads(pid); return err },
			"mapped":  func() error { _, err := table.Mapped(pid); return err },
		} {
			if err := ask(); !errors.Is(err, ErrGone) {
				t.Errorf("%s of %d: %v", what, pid, err)
			}
		}
		if ok, err := table.Matches(pid, param.Match{Comm: "*"}); ok || err != nil {
			t.Errorf("match of %d: %v, %v", pid, ok, err)
		}
	}
	if ok, err := table.Matches(107, param.Match{Comm: "x"}); !ok || err != nil {
		t.Errorf("match of a process beside them: %v, %v", ok, err)
	}
}
