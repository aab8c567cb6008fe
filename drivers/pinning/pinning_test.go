package pinning_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

var trainer = node.Process{PID: 4711, Start: 1000, Comm: "trainer", Cmdline: []string{"/opt/trainer"}, Workload: "w", UID: 1000, Threads: []int{4712, 4713}}

func names(targets []param.Target) []string {
	s := []string{}
	for _, t := range targets {
		s = append(s, t.Name+" "+t.Label)
	}
	return s
}

func show(settings []param.Setting) string {
	var s []string
	for _, set := range settings {
		s = append(s, set.Index+"="+set.Value.String())
	}
	return strings.Join(s, " ")
}

// pin is the change of one thread's set.
func pin(index, from, to string) param.Change {
	return param.Change{ID: param.PinCPUs, Index: index, Old: param.Text(from), New: param.Text(to)}
}

func TestDiscover(t *testing.T) {
	n := drivertest.Simulated(t, "small")
	named := trainer
	named.PID, named.Workload, named.Comm = 99, "", "named"
	other := trainer
	other.PID, other.Workload, other.Comm = 10000, "v", "other"
	if err := n.Adopt(trainer, named, other); err != nil {
		t.Fatal(err)
	}
	d := pinning.New(n, func(_ context.Context, workload string) ([]int, error) {
		if workload == "w" {
			return []int{99, 12345}, nil // the second has ended
		}
		return nil, nil
	})
	for name, tc := range map[string]struct {
		scope param.Scope
		want  []string
	}{
		"by name":  {param.Scope{Workload: "w"}, []string{"99 named", "4711 trainer"}},
		"by match": {param.Scope{Workload: "v", Match: param.Match{Comm: "t*"}}, []string{"4711 trainer"}},
		// What a process tells its transport counts beside what the match sees of it.
		"by match and name": {param.Scope{Workload: "w", Match: param.Match{Env: map[string]string{"RDMATUNE_WORKLOAD": "w"}}}, []string{"99 named", "4711 trainer"}},
		"nobody":            {param.Scope{Workload: "nobody"}, []string{}},
		"no name":           {param.Scope{}, []string{}},
		"order":             {param.Scope{Match: param.Match{Comm: "*"}}, []string{"99 named", "4711 trainer", "10000 other"}},
	} {
		got, err := d.Discover(t.Context(), tc.scope)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, names(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	broken := pinning.New(n, func(context.Context, string) ([]int, error) { return nil, errors.New("no directory") })
	if _, err := broken.Discover(t.Context(), param.Scope{Workload: "w"}); err == nil {
		t.Error("an error of the named processes is lost")
	}
}

// births makes a process start threads while it is pinned.
type births struct {
	*node.Node
	born []int // ids of the threads that the next calls of SetAffinity are followed by
	as   node.Process
}

func (b *births) SetAffinity(tid int, set cpulist.Set) error {
	if err := b.Node.SetAffinity(tid, set); err != nil || len(b.born) == 0 {
		return err
	}
	b.as.Threads = append(b.as.Threads, b.born[0])
	b.born = b.born[1:]
	return b.Adopt(b.as)
}

func TestNewbornThreads(t *testing.T) {
	b := &births{Node: drivertest.Simulated(t, "small"), born: []int{4720, 4721}, as: trainer}
	if err := b.Adopt(trainer); err != nil {
		t.Fatal(err)
	}
	d := pinning.New(b, nil)
	targets, err := d.Discover(t.Context(), param.Scope{Workload: "w"})
	if err != nil || len(targets) != 1 {
		t.Fatalf("%v, %v", targets, err)
	}
	got, err := d.Apply(t.Context(), targets[0], []param.Change{pin("4711@1000", "0-7", "2-3"), pin("4712@1000", "0-7", "2-3"), pin("4713@1000", "0-7", "2-3")}, param.Order{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "4711@1000=2-3 4712@1000=2-3 4713@1000=2-3 4720@1000=2-3 4721@1000=2-3"
	if show(got) != want {
		t.Errorf("in force %s, want %s", show(got), want)
	}
	// Threads that go back to different sets say nothing of a thread that is not named.
	got, err = d.Apply(t.Context(), targets[0], []param.Change{pin("4711@1000", "2-3", "0"), pin("4712@1000", "2-3", "1")}, param.Order{})
	if want := "4711@1000=0 4712@1000=1 4713@1000=2-3 4720@1000=2-3 4721@1000=2-3"; err != nil || show(got) != want {
		t.Errorf("in force %s, %v; want %s", show(got), err, want)
	}
}

func TestApplyErrors(t *testing.T) {
	n := drivertest.Simulated(t, "small")
	if err := n.Adopt(trainer); err != nil {
		t.Fatal(err)
	}
	d := pinning.New(n, nil)
	target := param.Target{Kind: param.Pinning, Name: "4711", Incarnation: "1000"}
	for name, tc := range map[string]struct {
		change param.Change
		says   string
		errno  error
	}{
		"offline":     {pin("4711@1000", "0-7", "100"), "none of the CPUs 100 is online", syscall.EINVAL},
		"cut":         {pin("4711@1000", "0-7", "7,100"), "asked for CPUs 7,100, the kernel gave 7", nil},
		"empty":       {pin("4711@1000", "0-7", ""), "cannot have", nil},
		"junk":        {pin("4711@1000", "0-7", "x"), "cannot have", nil},
		"another ID":  {param.Change{ID: param.MinKHz, Index: "4711@1000", New: param.Int(1)}, "cannot have", nil},
		"not a value": {param.Change{ID: param.PinCPUs, Index: "4711@1000", New: param.Absent()}, "cannot have", nil},
	} {
		got, err := d.Apply(t.Context(), target, []param.Change{tc.change}, param.Order{})
		if err == nil || !strings.Contains(err.Error(), tc.says) || tc.errno != nil && !errors.Is(err, tc.errno) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if len(got) != 3 {
			t.Errorf("%s: Apply does not tell what is in force: %s", name, show(got))
		}
	}
	// A thread that has ended, or whose id is another's by now, is passed over.
	got, err := d.Apply(t.Context(), target, []param.Change{pin("4712@999", "5", "1"), pin("5000@1000", "5", "1")}, param.Order{})
	if want := "4711@1000=7 4712@1000=0-7 4713@1000=0-7"; err != nil || show(got) != want {
		t.Errorf("in force %s, %v; want %s", show(got), err, want)
	}
	n.InjectFaults(new(sysfs.Faults).FailWrite("/affinity/4712", 1, syscall.EPERM))
	if _, err := d.Apply(t.Context(), target, []param.Change{pin("4712@1000", "0-7", "1")}, param.Order{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a refused write: %v", err)
	}
	for _, name := range []string{"x", "0", "-1", "99"} {
		if _, err := d.Read(t.Context(), param.Target{Name: name, Incarnation: "1000"}); err == nil {
			t.Errorf("Read of process %s took it", name)
		}
	}
}

// offline takes CPU 7 of eight off line, and cuts affinities like the kernel.
type offline struct{ *node.Node }

func (offline) CPUs() (online, present cpulist.Set, err error) {
	return cpulist.New(0, 1, 2, 3, 4, 5, 6), cpulist.New(0, 1, 2, 3, 4, 5, 6, 7), nil
}

func (o offline) SetAffinity(tid int, set cpulist.Set) error {
	online, _, _ := o.CPUs()
	return o.Node.SetAffinity(tid, set.Intersection(online))
}

// TestOffline restores every thread as far as that goes; what is asked for anew must be
// had in full.
func TestOffline(t *testing.T) {
	n := offline{drivertest.Simulated(t, "small")}
	if err := n.Adopt(trainer); err != nil {
		t.Fatal(err)
	}
	d := pinning.New(n, nil)
	target := param.Target{Kind: param.Pinning, Name: "4711", Incarnation: "1000"}
	restore := func(index, to string) param.Change {
		c := pin(index, "1", to)
		c.Action = param.Restore
		return c
	}
	var pins []param.Change
	for _, index := range []string{"4711@1000", "4712@1000", "4713@1000"} {
		pins = append(pins, pin(index, "0-7", "1"))
	}
	if _, err := d.Apply(t.Context(), target, pins, param.Order{}); err != nil {
		t.Fatal(err)
	}
	got, err := d.Apply(t.Context(), target, []param.Change{restore("4711@1000", "0-7"), restore("4712@1000", "6-7"), restore("4713@1000", "0-3")}, param.Order{})
	if want := "4711@1000=0-6 4712@1000=6 4713@1000=0-3"; !errors.Is(err, drivers.ErrPartly) || show(got) != want {
		t.Errorf("in force %s, %v; want %s in part", show(got), err, want)
	}
	// What the machine does not have is not missed.
	got, err = d.Apply(t.Context(), target, []param.Change{restore("4711@1000", "0-1,8-200")}, param.Order{})
	if want := "4711@1000=0-1 4712@1000=6 4713@1000=0-3"; err != nil || show(got) != want {
		t.Errorf("in force %s, %v; want %s", show(got), err, want)
	}
	if _, err := d.Apply(t.Context(), target, []param.Change{pin("4711@1000", "0-1", "0-7")}, param.Order{}); err == nil || errors.Is(err, drivers.ErrPartly) {
		t.Errorf("pinned to an offline CPU: %v", err)
	}
}

// TestLive pins a child of this test on the machine itself and lets it go again.
func TestLive(t *testing.T) {
	n, err := node.Open("local", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	workload := "pinning-test-" + strconv.Itoa(os.Getpid())
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), "RDMATUNE_WORKLOAD="+workload)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // reports the kill
		}
	}
	t.Cleanup(stop)
	d := pinning.New(n, nil)
	targets, err := d.Discover(t.Context(), param.Scope{Workload: workload})
	// Where this test runs there may be processes that it may not examine.
	if err != nil && !errors.Is(err, drivers.ErrIncomplete) || len(targets) != 1 || targets[0].Name != strconv.Itoa(cmd.Process.Pid) || targets[0].Label != "sleep" {
		t.Fatalf("Discover = %v, %v", targets, err)
	}
	for _, self := range []param.Match{{Comm: "pinning.test"}, {User: strconv.Itoa(os.Geteuid()), Cmdline: "*" + strings.Join(os.Args, " ")}} {
		ok, err := n.Procs().Matches(os.Getpid(), self)
		if err != nil || !ok {
			t.Errorf("this process does not match %+v: %v", self, err)
		}
		found, err := d.Discover(t.Context(), param.Scope{Match: self})
		if err != nil && !errors.Is(err, drivers.ErrIncomplete) || len(found) != 0 {
			t.Errorf("Discover finds rdmatune's own process: %v, %v", found, err)
		}
	}
	before, err := d.Read(t.Context(), targets[0])
	if err != nil || len(before) != 1 {
		t.Fatalf("Read = %v, %v", before, err)
	}
	was, _ := before[0].Value.AsText()
	set, err := cpulist.ParseKernel(was)
	if err != nil {
		t.Fatal(err)
	}
	one := strconv.Itoa(set.List()[set.Size()-1])
	for _, c := range []param.Change{pin(before[0].Index, was, one), pin(before[0].Index, one, was)} {
		got, err := d.Apply(t.Context(), targets[0], []param.Change{c}, param.Order{})
		if err != nil || len(got) != 1 || got[0].Value != c.New {
			t.Errorf("Apply = %v, %v; want %s", got, err, c.New)
		}
	}
	stop()
	if _, err := d.Read(t.Context(), targets[0]); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("Read after the end: %v, want ErrGone", err)
	}
	if _, err := d.Apply(t.Context(), targets[0], []param.Change{pin(before[0].Index, was, one)}, param.Order{}); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("Apply after the end: %v, want ErrGone", err)
	}
}
