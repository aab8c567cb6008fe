package sysfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeTree puts files and links (" -> target") below a new directory.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, " -> "); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// memTree is writeTree in memory.
func memTree(files map[string]string) *Mem {
	m := NewMem()
	for name, content := range files {
		if target, ok := strings.CutPrefix(content, " -> "); ok {
			m.Link(name, target)
		} else {
			m.File(name, content)
		}
	}
	return m
}

var files = map[string]string{
	"sys/devices/a/value":     "1\n",
	"sys/devices/a/loop":      " -> loop",
	"sys/class/x/relative":    " -> ../../devices/a",
	"sys/class/x/absolute":    " -> /sys/devices/a",
	"sys/class/x/escape":      " -> ../../../../../../../../etc",
	"sys/class/x/escape2":     " -> /etc",
	"sys/class/x/passwd":      " -> /etc/passwd",
	"sys/class/x/dangling":    " -> nowhere",
	"sys/class/x/through":     " -> relative/value",
	"proc/stat":               "x",
	"etc/hostname":            "captured\n",
	"sys/devices/a/deep/up":   " -> ../../../..",
	"sys/devices/pad":         "7\n\x00\x00\x00",
	"sys/devices/notanumber":  "7x\n",
	"sys/devices/a/sub/b/c/d": "",
}

// each runs test on the same tree of every kind that is at rest.
func each(t *testing.T, test func(t *testing.T, f FS, layerDir string)) {
	t.Run("directory", func(t *testing.T) {
		layer := filepath.Join(t.TempDir(), "layer")
		f, err := OpenDir(writeTree(t, files), layer, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		test(t, f, layer)
	})
	t.Run("memory", func(t *testing.T) {
		layer := filepath.Join(t.TempDir(), "layer")
		test(t, memTree(files).Open(layer, nil), layer)
	})
}

func TestResolve(t *testing.T) {
	each(t, func(t *testing.T, f FS, _ string) {
		for name, want := range map[string]string{
			"/sys/devices/a/value":                    "1\n",
			"/sys/class/x/relative/value":             "1\n",
			"/sys/class/x/absolute/value":             "1\n",
			"/sys/class/x/through":                    "1\n",
			"/sys/class/x/escape/hostname":            "captured\n",
			"/sys/class/x/escape2/hostname":           "captured\n",
			"/../../../etc/hostname":                  "captured\n",
			"/sys/devices/a/deep/up/proc/stat":        "x",
			"/sys/class/x/absolute/deep/up/proc/stat": "x",
		} {
			if got, err := f.ReadFile(name); err != nil || string(got) != want {
				t.Errorf("ReadFile(%s) = %q, %v; want %q", name, got, err, want)
			}
		}
		for name, want := range map[string]error{
			"/sys/class/x/passwd":          fs.ErrNotExist, // the capture has none, whatever this machine has
			"/sys/class/x/escape/passwd":   fs.ErrNotExist,
			"/sys/class/x/dangling":        fs.ErrNotExist,
			"/sys/devices/a/loop":          syscall.ELOOP,
			"/sys/devices/a/value/further": syscall.ENOTDIR,
			"/sys/devices/a":               syscall.EISDIR,
			"/nothing":                     fs.ErrNotExist,
		} {
			if got, err := f.ReadFile(name); !errors.Is(err, want) {
				t.Errorf("ReadFile(%s) = %q, %v; want %v", name, got, err, want)
			}
		}
		if real, err := f.Realpath("/sys/class/x/through"); err != nil || real != "/sys/devices/a/value" {
			t.Errorf("Realpath = %s, %v", real, err)
		}
		if target, err := f.Readlink("/sys/class/x/absolute"); err != nil || target != "/sys/devices/a" {
			t.Errorf("Readlink = %s, %v", target, err)
		}
		if _, err := f.Readlink("/sys/devices/a/value"); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("Readlink of a file: %v", err)
		}
		if names, err := f.ReadDir("/sys/class/x/absolute"); err != nil || !slices.Equal(names, []string{"deep", "loop", "sub", "value"}) {
			t.Errorf("ReadDir = %v, %v", names, err)
		}
		if _, err := f.ReadDir("/sys/devices/a/value"); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("ReadDir of a file: %v", err)
		}
		if n, err := f.ReadInt("/sys/devices/pad"); err != nil || n != 7 {
			t.Errorf("ReadInt of a padded file = %d, %v", n, err)
		}
		if n, err := f.ReadInt("/sys/devices/notanumber"); err == nil {
			t.Errorf("ReadInt of junk = %d", n)
		}
		if !f.IsDir("/sys/class/x/relative") || f.IsDir("/sys/class/x/through") || f.Exists("/sys/class/x/dangling") || f.Ident("/sys") != 0 {
			t.Error("Stat does not follow links as it should")
		}
	})
}

func TestLayer(t *testing.T) {
	each(t, func(t *testing.T, f FS, layer string) {
		if _, err := os.Stat(layer); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("opening has made the layer: %v", err)
		}
		if err := f.WriteFile("/sys/class/x/relative/value", "2\n"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"/sys/devices/a/value", "/sys/class/x/absolute/value", "/sys/class/x/through"} {
			if got, err := f.ReadFile(name); err != nil || string(got) != "2\n" {
				t.Errorf("%s = %q, %v after the write", name, got, err)
			}
		}
		for name, want := range map[string]error{
			"/sys/devices/a/new":  fs.ErrNotExist, // a kernel file is never made by writing
			"/sys/devices/a":      syscall.EISDIR,
			"/sys/class/x/passwd": fs.ErrNotExist,
		} {
			if err := f.WriteFile(name, "x"); !errors.Is(err, want) {
				t.Errorf("WriteFile(%s): %v, want %v", name, err, want)
			}
		}
		entries, err := os.ReadDir(layer)
		if err != nil || len(entries) != 1 || entries[0].Name() != "sys" {
			t.Errorf("the layer holds %v, %v; want sys alone", entries, err)
		}
	})
}

// TestBaseUntouched writes over a directory and compares it with what it was.
func TestBaseUntouched(t *testing.T) {
	root := writeTree(t, files)
	layer := t.TempDir()
	f, err := OpenDir(root, layer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteFile("/sys/devices/a/value", "9"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "sys/devices/a/value")); err != nil || string(got) != "1\n" {
		t.Errorf("the capture now has %q, %v", got, err)
	}
	again, err := OpenDir(root, layer, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got, err := again.ReadFile("/sys/devices/a/value"); err != nil || string(got) != "9" {
		t.Errorf("the write is %q, %v after opening again", got, err)
	}
}

func TestReadOnly(t *testing.T) {
	m := NewMem()
	m.FileMode("/sys/fixed", 0o444, "1")
	m.FileMode("/proc/irq/1/smp_affinity_list", 0o444, "1")
	f := m.Open(t.TempDir(), nil)
	if err := f.WriteFile("/sys/fixed", "2"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("write to a read-only attribute: %v", err)
	}
	if err := f.WriteFile("/proc/irq/1/smp_affinity_list", "2"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("write to a managed interrupt: %v", err)
	}
}

func TestUnion(t *testing.T) {
	over := NewMem()
	over.File("/proc/7/comm", "seven\n")
	over.File("/sys/devices/a/value", "over\n")
	dir, err := OpenDir(writeTree(t, files), t.TempDir(), over)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if names, err := dir.ReadDir("/proc"); err != nil || !slices.Equal(names, []string{"7", "stat"}) {
		t.Errorf("ReadDir = %v, %v", names, err)
	}
	if names, err := dir.ReadDir("/proc/7"); err != nil || !slices.Equal(names, []string{"comm"}) {
		t.Errorf("ReadDir = %v, %v", names, err)
	}
	if s, err := dir.ReadString("/sys/class/x/absolute/value"); err != nil || s != "over" {
		t.Errorf("the file above is %q, %v", s, err)
	}
	over.Remove("/proc/7")
	if dir.Exists("/proc/7/comm") || dir.Exists("/proc/7") {
		t.Error("a removed directory is still there")
	}
	if !dir.Exists("/proc/stat") {
		t.Error("removing above has removed below")
	}
}

func TestOpenDirFindsTheRoot(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		says  string
	}{
		"itself":     {map[string]string{"proc/x": "1"}, ""},
		"one inside": {map[string]string{"host/sys/x": "1", "README": "hi"}, ""},
		"nothing":    {map[string]string{"a/b": "1"}, "holds neither"},
		"two":        {map[string]string{"a/sys/x": "1", "b/proc/x": "1"}, "several"},
		"a link":     {map[string]string{"sys": " -> /sys", "proc": " -> /proc"}, "holds neither"},
	} {
		f, err := OpenDir(writeTree(t, tc.files), t.TempDir(), nil)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestSpecialFile: a FIFO in a capture must not make the reader wait for a writer.
func TestSpecialFile(t *testing.T) {
	root := writeTree(t, files)
	if err := syscall.Mkfifo(filepath.Join(root, "proc/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := OpenDir(root, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadFile("/proc/fifo"); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("ReadFile of a FIFO: %v", err)
	}
}

func TestFaults(t *testing.T) {
	fl := new(Faults).FailWrite("/sys/devices/a", 2, syscall.EBUSY)
	f := memTree(files).Open(t.TempDir(), nil).WithFaults(fl)
	var got []error
	for range 3 {
		got = append(got, f.WriteFile("/sys/devices/a/value", "3"))
		if err := f.WriteFile("/sys/devices/pad", "3"); err != nil {
			t.Errorf("a write elsewhere fails: %v", err)
		}
	}
	if got[0] != nil || !errors.Is(got[1], syscall.EBUSY) || got[2] != nil {
		t.Errorf("writes gave %v; want the second alone to fail", got)
	}
}

func TestZeroFS(t *testing.T) {
	var f FS
	if _, err := f.ReadFile("/sys"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := f.ReadDir("/sys"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := errors.Join(f.WriteFile("/sys/x", "1"), f.Close()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if f.Exists("/sys") {
		t.Error("the zero FS has files")
	}
}

// TestHost reads this machine's own process directory and writes nothing.
func TestHost(t *testing.T) {
	f := Host()
	stat, err := f.ReadFile("/proc/self/stat")
	if err != nil || len(stat) == 0 {
		t.Fatalf("/proc/self/stat: %q, %v", stat, err)
	}
	if real, err := f.Realpath("/proc/self"); err != nil || !strings.HasPrefix(real, "/proc/") {
		t.Errorf("Realpath = %s, %v", real, err)
	}
	online, err := f.ReadString("/sys/devices/system/cpu/online")
	if err != nil || online == "" {
		t.Errorf("online CPUs: %q, %v", online, err)
	}
	if a, b := f.Ident("/sys/devices/system/cpu"), f.Ident("/sys/devices/system"); a == 0 || a == b {
		t.Errorf("identities %d and %d do not tell directories apart", a, b)
	}
	victim := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(victim, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteFile(victim, "new"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a write outside /sys and /proc: %v, want EPERM", err)
	}
	if err := f.WriteFile("/sys/../"+victim, "new"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a write outside by a detour: %v, want EPERM", err)
	}
	if got, err := os.ReadFile(victim); err != nil || cmp.Diff("old", string(got)) != "" {
		t.Errorf("the file now has %q, %v", got, err)
	}
	if err := f.WriteFile("/proc/no/such/file", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a write to no file: %v", err)
	}
}
