package watch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lab skips a test that changes the machine's settings.
func lab(t *testing.T) {
	t.Helper()
	if !inLab {
		t.Skip("changes the machine's settings; TestWatch of test/lab runs it in a virtual machine")
	}
}

// writerFile makes the test binary a process that writes the file of that name.
const writerFile = "WATCH_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerFile); path != "" {
		if err := writeOnRequest(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// writeOnRequest writes each line that it is given to the file, as a shell does, and
// answers with the time just before.
func writeOnRequest(path string) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		before := time.Now()
		_, err = fmt.Fprintln(f, lines.Text())
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Println(before.UnixNano())
	}
	return nil
}

// A writer is such a process.
type writer struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
}

func startWriter(t *testing.T, path string) *writer {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "--writer", filepath.Base(path)) // it ends with its input
	cmd.Env = append(os.Environ(), writerFile+"="+path)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("writer of %s: %v", path, err)
		}
	})
	return &writer{cmd.Process.Pid, in, bufio.NewReader(out)}
}

// write lets the writer write, and returns when it did.
func (w *writer) write(t *testing.T, value string) time.Time {
	t.Helper()
	_, err := fmt.Fprintln(w.in, value)
	must(t, err)
	line, err := w.out.ReadString('\n')
	must(t, err)
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	must(t, err)
	return time.Unix(0, ns)
}

// read returns a file's text without its line end.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(bytes.TrimSpace(b))
}

// interrupts returns the affinity files of a netdev's interrupts.
func interrupts(t *testing.T, netdev string) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir("/sys/class/net/" + netdev + "/device/msi_irqs")
	must(t, err)
	for _, e := range entries {
		paths = append(paths, "/proc/irq/"+e.Name()+"/smp_affinity_list")
	}
	return paths
}

const cpus = "/sys/devices/system/cpu/"

// TestLabEverySource holds that on a node where the process may do everything every
// source is heard.
func TestLabEverySource(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true, Spec: []string{t.TempDir()}, RunDir: t.TempDir()})
	for _, st := range w.Statuses() {
		if !st.On || st.Reason != "" {
			t.Errorf("%+v", st)
		}
	}
}

// TestLabWriters holds that who writes to a setting is told, and how soon.
func TestLabWriters(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true})
	affinity := interrupts(t, "eth0")[0]
	frequency := cpus + "cpu1/cpufreq/scaling_max_freq"
	latency := cpus + "cpu1/power/pm_qos_resume_latency_us"
	must(t, w.Files().Set([]string{affinity, frequency, latency}))
	must(t, w.Files().Accept())
	for _, c := range []struct {
		path   string
		values [2]string
	}{
		{affinity, [2]string{"2", "3"}},
		{frequency, [2]string{"2200000", "1800000"}},
		{latency, [2]string{"20", "30"}},
	} {
		before := read(t, c.path)
		wr := startWriter(t, c.path)
		var late []time.Duration
		for i := range 40 {
			at := wr.write(t, c.values[i%2])
			e, others := await(t, w, c.path, Writes, is("write", c.path))
			if e.PID != wr.pid || e.Comm != "watch.test" || !strings.HasSuffix(e.Command, "--writer "+filepath.Base(c.path)) || len(others) > 0 {
				t.Errorf("%+v, want the writer %d; before it: %v", e, wr.pid, others)
			}
			late = append(late, e.When.Sub(at))
		}
		slices.Sort(late)
		t.Logf("%s: its writer heard after %v in the middle, %v at most", c.path, late[len(late)/2], late[len(late)-1])
		if p := late[len(late)/2]; p > 100*time.Millisecond {
			t.Errorf("half of the writes to %s were heard only after %v", c.path, p)
		}
		if got := changed(t, w.Files()); got != fmt.Sprintf("[%s]", filepath.Base(c.path)) {
			t.Errorf("changed: %s, want %s alone", got, c.path)
		}
		wr.write(t, before)
		await(t, w, c.path, Writes, is("write", c.path))
		must(t, w.Files().Accept())
	}
}

// TestLabInodesInUse holds that a file that nobody else uses is heard when the kernel has
// thrown away all inodes that it can.
func TestLabInodesInUse(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true})
	path := interrupts(t, "eth0")[0]
	must(t, w.Files().Set([]string{path}))
	must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o644))
	pid, _ := shell(t, "echo 1 >"+path)
	if e, _ := await(t, w, path, Writes, anything); e.PID != pid || e.Subject != path {
		t.Errorf("%+v, want %s by %d", e, path, pid)
	}
}

// TestLabReload takes a network card's driver away and gives it back: its interrupts are
// other ones then, be it with the same numbers.
func TestLabReload(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true})
	device, err := filepath.EvalSymlinks("/sys/class/net/eth1/device")
	must(t, err)
	address := filepath.Base(device)
	reload := func() {
		t.Helper()
		const driver = "/sys/bus/pci/drivers/e1000e/"
		must(t, os.WriteFile(driver+"unbind", []byte(address), 0o200))
		await(t, w, "unbind", Kernel, is("unbind", strings.TrimPrefix(device, "/sys")))
		must(t, os.WriteFile(driver+"bind", []byte(address), 0o200))
		await(t, w, "bind", Kernel, is("bind", strings.TrimPrefix(device, "/sys")))
		shell(t, "ip link set eth1 up") // until then the interrupts take no affinity
	}
	check := func(how, path string) {
		t.Helper()
		pid, _ := shell(t, "echo 0-1 >"+path)
		if e, _ := await(t, w, how, Writes, anything); e.PID != pid || e.Subject != path {
			t.Errorf("%s: %+v, want %s by %d", how, e, path, pid)
		}
	}
	paths := interrupts(t, "eth1")
	t.Logf("interrupts of %s: %v", address, paths)
	must(t, w.Files().Set(paths))
	must(t, w.Files().Accept())
	check("before", paths[0])
	must(t, w.Files().Accept())

	reload()
	now := interrupts(t, "eth1")
	t.Logf("after the first reload: %v", now)
	must(t, w.Files().Set(now))
	must(t, w.Files().Accept())
	check("set again", now[0])

	// Without that, the sweep mends it, if the numbers are the same.
	reload()
	again := interrupts(t, "eth1")
	t.Logf("after the second: %v", again)
	if slices.Equal(again, now) {
		if _, err := w.Files().Changed(); err != nil {
			t.Error(err)
		}
		check("swept", again[0])
	} else {
		t.Errorf("other numbers: %v, were %v", again, now)
	}
}

func TestLabCPU(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true})
	frequency := cpus + "cpu3/cpufreq/scaling_max_freq"
	must(t, w.Files().Set([]string{frequency}))
	must(t, w.Files().Accept())
	must(t, os.WriteFile(cpus+"cpu3/online", []byte("0"), 0o644))
	await(t, w, "offline", Kernel, is("offline", "/devices/system/cpu/cpu3"))
	if got := changed(t, w.Files()); got != "[scaling_max_freq]" {
		t.Errorf("%s, want the file that is busy with its CPU offline", got)
	}
	must(t, w.Files().Accept())
	must(t, os.WriteFile(cpus+"cpu3/online", []byte("1"), 0o644))
	await(t, w, "online", Kernel, is("online", "/devices/system/cpu/cpu3"))
	if got := changed(t, w.Files()); got != "[scaling_max_freq]" {
		t.Errorf("%s, want the file that can be read again", got)
	}
	pid, _ := shell(t, "echo 2200000 >"+frequency)
	if e, _ := await(t, w, frequency, Writes, func(e Event) bool { return e.PID == pid }); e.Subject != frequency {
		t.Errorf("%+v", e)
	}
}

func TestLabModule(t *testing.T) {
	lab(t)
	const name = "cpufreq_conservative"
	var file string
	for line := range strings.Lines(read(t, "/lab/modules")) {
		if line = strings.TrimSpace(line); strings.TrimSuffix(filepath.Base(line), ".ko") == name {
			file = line
		}
	}
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	w := listen(t, Config{Local: true})
	must(t, unix.DeleteModule(name, 0))
	await(t, w, "unloaded", Kernel, is("remove", "/module/"+name))
	must(t, unix.FinitModule(int(f.Fd()), "", 0))
	await(t, w, "loaded", Kernel, is("add", "/module/"+name))
}

func TestLabLink(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true})
	shell(t, "ip link set eth0 down")
	await(t, w, "down", Links, is("down", "eth0"))
	shell(t, "ip link set eth0 up")
	await(t, w, "up", Links, is("up", "eth0"))
	shell(t, "ethtool -C eth0 rx-usecs 100")
	await(t, w, "coalescing", Ethtool, is("change", "eth0"))
}

// TestLabManyProcesses starts more processes than anyone will, and holds that each is
// heard while somebody reads, and that the loss is told when nobody does. The program
// "nothing" comes with the test.
func TestLabManyProcesses(t *testing.T) {
	lab(t)
	const starts = 2000
	w := listen(t, Config{Local: true})
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		shell(t, fmt.Sprintf("i=0; while [ $i -lt %d ]; do nothing; i=$((i+1)); done", starts))
	}()
	pids := map[int]bool{}
	await(t, w, "the last", Processes, func(e Event) bool {
		if e.What == "lost" {
			t.Error("lost while somebody read")
		}
		pids[e.PID] = true
		return len(pids) >= starts+1
	})
	<-done
	t.Logf("%d starts in %v, none lost", starts, time.Since(began).Round(time.Millisecond))

	unread := maxWaiting + 200
	shell(t, fmt.Sprintf("i=0; while [ $i -lt %d ]; do nothing; i=$((i+1)); done", unread))
	await(t, w, "the loss", Processes, is("lost", ""))
	pid, _ := shell(t, ":")
	await(t, w, "one after it", Processes, func(e Event) bool { return e.PID == pid })
	if st := status(w, Processes); st.Lost == 0 || st.Events < uint64(starts+unread) {
		t.Errorf("%+v", st)
	}
}

// TestLabDeaf holds that new processes are heard as long as somebody wants to know of them.
func TestLabDeaf(t *testing.T) {
	lab(t)
	w := listen(t, Config{Local: true})
	must(t, w.HearProcesses(false))
	unheard, _ := shell(t, ":")
	must(t, w.HearProcesses(true))
	heard, _ := shell(t, ":")
	await(t, w, "the one after", Processes, func(e Event) bool {
		if e.PID == unheard {
			t.Errorf("%+v, when nobody wanted to know", e)
		}
		return e.PID == heard
	})
}

// TestLabOverflow holds that the loss is told when the kernel's own queues of files are
// full, which the test makes short.
func TestLabOverflow(t *testing.T) {
	lab(t)
	for _, limit := range []string{"/proc/sys/fs/fanotify/max_queued_events", "/proc/sys/fs/inotify/max_queued_events"} {
		before := read(t, limit)
		must(t, os.WriteFile(limit, []byte("2"), 0o644))
		t.Cleanup(func() { must(t, os.WriteFile(limit, []byte(before), 0o644)) })
	}
	dir := t.TempDir()
	w := listen(t, Config{Local: true, Spec: []string{dir}})
	w.files.allow = below(dir)
	var paths []string
	for i := range 20 {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		write(t, paths[i], "x")
	}
	must(t, w.Files().Set(paths))
	stop, done := filepath.Join(t.TempDir(), "stop"), make(chan struct{})
	go func() {
		defer close(done)
		shell(t, fmt.Sprintf("cd %q; while [ ! -e %q ]; do for f in *; do echo x >>$f; done; done", dir, stop))
	}()
	await(t, w, "the spec's loss", Spec, is("lost", ""))
	await(t, w, "the writes' loss", Writes, is("lost", ""))
	write(t, stop, "")
	<-done
	pid, _ := shell(t, fmt.Sprintf("echo x >>%q", paths[0]))
	await(t, w, "a write after it", Writes, func(e Event) bool { return e.PID == pid })
}
