package rivals

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

func TestFind(t *testing.T) {
	m := sysfs.NewMem()
	add := func(pid int, comm, cmdline string) {
		m.File(fmt.Sprintf("/proc/%d/stat", pid), fmt.Sprintf("%d (%s) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1", pid, comm))
		m.File(fmt.Sprintf("/proc/%d/cmdline", pid), cmdline)
	}
	add(1, "systemd", "/sbin/init\x00")
	add(40, "irqbalance", "/usr/sbin/irqbalance\x00--foreground\x00")
	add(30, "irqbalance", "/usr/sbin/irqbalance\x00")
	add(41, "tuned", "/usr/bin/python3\x00-Es\x00/usr/sbin/tuned\x00-l\x00-P\x00")
	add(42, "python3", "/usr/bin/python3\x00-I\x00/usr/local/bin/auto-cpufreq\x00--daemon\x00")
	add(43, "power-profiles-", "/usr/libexec/power-profiles-daemon\x00")
	add(44, "python3", "/usr/bin/python3\x00train.py\x00tuned\x00")
	add(45, "tuned-gui", "tuned-gui\x00")
	add(46, "bash", "bash\x00/usr/sbin/tlp\x00auto\x00")
	add(47, "python3", "")
	add(48, "vi", "vi\x00/usr/sbin/tuned\x00")
	m.File("/proc/49/stat", "no stat line")
	got, err := Find(procs.New(m.Open(t.TempDir(), nil), nil))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range got {
		if d.Rewrites == "" {
			t.Errorf("%s: nothing is said of what it rewrites", d.Name)
		}
		lines = append(lines, fmt.Sprint(d.Name, " ", d.PID))
	}
	want := []string{"auto-cpufreq 42", "irqbalance 30", "irqbalance 40", "power-profiles-daemon 43", "tlp 46", "tuned 41"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if s, want := got[1].String(), "irqbalance (pid 30), which may rewrite the CPUs of interrupts"; s != want {
		t.Errorf("said %q, want %q", s, want)
	}
}

func TestNoProcesses(t *testing.T) {
	got, err := Find(procs.New(sysfs.NewMem().Open(t.TempDir(), nil), nil))
	if err != nil || len(got) > 0 {
		t.Errorf("found %v, %v", got, err)
	}
}
