package dmalatency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// daemon returns a holder over a file that stands for the device, and a run directory.
func daemon(t *testing.T) (h *Holder, runDir string) {
	t.Helper()
	device := filepath.Join(t.TempDir(), "cpu_dma_latency")
	if err := os.WriteFile(device, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	runDir = filepath.Join(t.TempDir(), "run")
	h, err := NewHolder(device, runDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h, runDir
}

func table() procs.Table { return procs.New(sysfs.Host(), nil) }

// cli returns the driver of a command on a node that has the device.
func cli(t *testing.T, runDir string, table procs.Table) *Driver {
	t.Helper()
	m := sysfs.NewMem()
	m.File(Device, "")
	return New(m.Open(t.TempDir(), nil), table, runDir, nil)
}

// only returns the one setting of a driver's one target.
func only(t *testing.T, d *Driver) (param.Target, param.Setting) {
	t.Helper()
	targets, err := d.Discover(t.Context(), param.Scope{})
	if err != nil || len(targets) != 1 {
		t.Fatalf("targets %v, %v", targets, err)
	}
	settings, err := d.Read(t.Context(), targets[0])
	if err != nil || len(settings) != 1 {
		t.Fatalf("settings %v, %v", settings, err)
	}
	return targets[0], settings[0]
}

func hold(target param.Target, value string) []param.Change {
	return []param.Change{{Target: target, ID: param.DMAMaxLatency, New: param.Text(value)}}
}

func TestHeldByADaemon(t *testing.T) {
	h, runDir := daemon(t)
	d := New(sysfs.Host(), table(), runDir, h)
	target, s := only(t, d)
	if s.Value != param.Text(NoLimit) || s.Deferred != "" || h.Alive() {
		t.Errorf("before: %+v", s)
	}
	for _, value := range []string{"2us", "0us", "2147483647us"} {
		got, err := d.Apply(t.Context(), target, hold(target, value), param.Order{})
		if err != nil || len(got) != 1 || got[0].Value != param.Text(value) || got[0].Note != "" {
			t.Errorf("%s: %+v, %v", value, got, err)
		}
		// A command on the same node reads the daemon's value, under the daemon's name, and
		// can do nothing about it.
		c := cli(t, runDir, table())
		seen, s := only(t, c)
		if seen.Incarnation != target.Incarnation || s.Value != param.Text(value) || !strings.Contains(s.Deferred, target.Incarnation) {
			t.Errorf("%s: a command sees %+v of %+v", value, s, seen)
		}
		if _, err := c.Apply(t.Context(), seen, hold(seen, value), param.Order{}); err != nil {
			t.Errorf("%s: a command that asks for what is held: %v", value, err)
		}
		if _, err := c.Apply(t.Context(), seen, hold(seen, NoLimit), param.Order{}); !errors.Is(err, drivers.ErrDeferred) || !h.Alive() {
			t.Errorf("%s: a command takes it back: %v", value, err)
		}
	}
	for _, value := range []param.Value{param.Text("2"), param.Text("-1us"), param.Text("2147483648us"), param.Text("1h"), param.Int(2), param.Absent()} {
		cs := []param.Change{{Target: target, ID: param.DMAMaxLatency, New: value}}
		if got, err := d.Apply(t.Context(), target, cs, param.Order{}); err == nil || got[0].Value != param.Text("2147483647us") {
			t.Errorf("%s: %+v, %v", value, got, err)
		}
	}
	if got, err := d.Apply(t.Context(), target, hold(target, NoLimit), param.Order{}); err != nil || got[0].Value != param.Text(NoLimit) {
		t.Errorf("release: %+v, %v", got, err)
	}
	if entries, err := os.ReadDir(runDir); err != nil || len(entries) > 0 {
		t.Errorf("left in the run directory: %v, %v", entries, err)
	}
	h.Release()
}

func TestWithoutADaemon(t *testing.T) {
	d := cli(t, t.TempDir(), table())
	target, s := only(t, d)
	if s.Value != param.Text(NoLimit) || !strings.Contains(s.Deferred, "only rdmatune reconcile can hold it") || target.Incarnation != "" {
		t.Errorf("%+v of %+v", s, target)
	}
	got, err := d.Apply(t.Context(), target, hold(target, "2us"), param.Order{})
	if !errors.Is(err, drivers.ErrDeferred) || len(got) != 1 || got[0].Value != param.Text(NoLimit) {
		t.Errorf("Apply: %+v, %v", got, err)
	}
	none := New(sysfs.NewMem().Open(t.TempDir(), nil), procs.Table{}, t.TempDir(), nil)
	if _, err := none.Discover(t.Context(), param.Scope{}); !errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("a node without the device: %v", err)
	}
}

// The death of the descriptor is drift: it reads as no limit, and is healed by a hold.
func TestDeath(t *testing.T) {
	h, runDir := daemon(t)
	d := New(sysfs.Host(), table(), runDir, h)
	target, _ := only(t, d)
	for name, die := range map[string]func(t *testing.T){
		"closed": func(t *testing.T) {
			if err := unix.Close(h.fd); err != nil {
				t.Fatal(err)
			}
		},
		"closed, and the number given to another file": func(t *testing.T) {
			other, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			fd := h.fd
			if err := unix.Dup3(other, fd, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(unix.Close(other), unix.Close(fd)); err != nil {
					t.Errorf("the holder closed another's descriptor: %v", err)
				}
			})
		},
		"a bound that is not in effect": func(t *testing.T) {
			if _, err := unix.Pwrite(h.fd, []byte{0, 0, 0, 0x7f}, 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := d.Apply(t.Context(), target, hold(target, "2us"), param.Order{}); err != nil {
				t.Fatal(err)
			}
			die(t)
			if _, s := only(t, d); h.Alive() || s.Value != param.Text(NoLimit) {
				t.Errorf("after its death: %+v", s)
			}
			got, err := d.Apply(t.Context(), target, hold(target, "2us"), param.Order{})
			if err != nil || got[0].Value != param.Text("2us") || !h.Alive() {
				t.Errorf("healing: %+v, %v", got, err)
			}
		})
	}
}

// Another process's tighter bound is in effect, and ours held all the same.
func TestTighterBoundOfAnother(t *testing.T) {
	h, runDir := daemon(t)
	d := New(sysfs.Host(), table(), runDir, h)
	target, _ := only(t, d)
	if _, err := d.Apply(t.Context(), target, hold(target, "20us"), param.Order{}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(h.fd, []byte{0, 0, 0, 0}, 0); err != nil {
		t.Fatal(err)
	}
	if _, s := only(t, d); s.Value != param.Text("20us") || s.Note != "another process holds 0us, which is in effect" {
		t.Errorf("%+v", s)
	}
}

// A run directory that cannot be written does not keep the bound from being held.
func TestUntold(t *testing.T) {
	h, runDir := daemon(t)
	if err := os.WriteFile(runDir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d := New(sysfs.Host(), table(), runDir, h)
	target, _ := only(t, d)
	got, err := d.Apply(t.Context(), target, hold(target, "2us"), param.Order{})
	if err != nil || got[0].Value != param.Text("2us") || !strings.Contains(got[0].Note, "other processes cannot know") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNoDevice(t *testing.T) {
	h, err := NewHolder(filepath.Join(t.TempDir(), "none"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Hold(2); !errors.Is(err, unix.ENOENT) || h.Alive() {
		t.Errorf("Hold: %v", err)
	}
	if err := h.Hold(-1); err == nil {
		t.Error("less than none was held")
	}
	d := New(sysfs.Host(), table(), t.TempDir(), h)
	if _, err := d.Discover(t.Context(), param.Scope{}); !errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("Discover: %v", err)
	}
}

// What is in the run directory is believed of a living process, and of root or ourselves.
func TestAnnouncements(t *testing.T) {
	m := sysfs.NewMem()
	m.File("/proc/812/stat", "812 (rdmatune) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1")
	living := procs.New(m.Open(t.TempDir(), nil), nil)
	good := `{"pid":812,"start":4242,"us":2}`
	for name, c := range map[string]struct {
		text       string
		mode       os.FileMode
		held, lies bool
	}{
		"living":            {text: good, mode: 0o644, held: true},
		"another start":     {text: `{"pid":812,"start":4243,"us":2}`, mode: 0o644},
		"dead":              {text: `{"pid":813,"start":4242,"us":2}`, mode: 0o644},
		"others may write":  {text: good, mode: 0o666, lies: true},
		"empty":             {mode: 0o644, lies: true},
		"no process":        {text: `{"us":2}`, mode: 0o644, lies: true},
		"negative":          {text: `{"pid":812,"start":4242,"us":-2}`, mode: 0o644, lies: true},
		"more than an s32":  {text: `{"pid":812,"start":4242,"us":4294967296}`, mode: 0o644, lies: true},
		"longer than needs": {text: strings.Repeat(" ", 5000) + good, mode: 0o644, lies: true},
	} {
		runDir := t.TempDir()
		path := filepath.Join(runDir, fileName)
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o644), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		a, held, err := heard(runDir, living)
		if held != c.held || (err != nil) != c.lies || held && (a.key() != "812@4242" || a.US != 2) {
			t.Errorf("%s: %+v, %t, %v", name, a, held, err)
		}
	}

	runDir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(elsewhere, []byte(good), 0o644), os.Symlink(elsewhere, filepath.Join(runDir, fileName))); err != nil {
		t.Fatal(err)
	}
	if _, held, err := heard(runDir, living); held || err == nil {
		t.Errorf("a link: %t, %v", held, err)
	}
	if os.Geteuid() == 0 {
		stranger := t.TempDir()
		path := filepath.Join(stranger, fileName)
		if err := errors.Join(os.WriteFile(path, []byte(good), 0o644), os.Chown(path, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if _, held, err := heard(stranger, living); held || err == nil {
			t.Errorf("a stranger's: %t, %v", held, err)
		}
	}
	// A command says so instead of planning with it.
	if _, err := cli(t, runDir, living).Discover(t.Context(), param.Scope{}); err == nil {
		t.Error("a command passes over what it cannot believe")
	}
}

func FuzzHeard(f *testing.F) {
	f.Add([]byte(`{"pid":1,"start":1,"us":2}`))
	f.Add([]byte(`{"pid":` + strconv.Itoa(os.Getpid()) + `,"start":0,"us":0}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), content, 0o644); err != nil {
			t.Fatal(err)
		}
		if a, held, err := heard(dir, table()); held && (err != nil || a.PID <= 0 || a.US < 0) {
			t.Error(fmt.Sprint(a, err))
		}
	})
}
