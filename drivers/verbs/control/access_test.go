package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// strangerDir makes the test binary another user's process that tries this run directory.
const strangerDir = "CONTROL_TEST_STRANGER"

// strangerCrowds makes it fill the run directory instead, and strangerServes serve a
// socket of its own.
const (
	strangerCrowds = "CONTROL_TEST_CROWD"
	strangerServes = "CONTROL_TEST_SERVE"
)

const nobody = 65534

func TestMain(m *testing.M) {
	if dir := os.Getenv(strangerDir); dir != "" {
		act := stranger
		if os.Getenv(strangerCrowds) != "" {
			act = crowd
		}
		if os.Getenv(strangerServes) != "" {
			act = serveUntilTold
		}
		if err := act(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// stranger reads the process of its parent, must not order it, and then serves a
// socket in its parent's name until its standard input ends.
func stranger(runDir string) error {
	ctx := context.Background()
	parent := os.Getppid()
	start, err := startTime(parent)
	if err != nil {
		return err
	}
	ps, err := List(ctx, runDir)
	if err != nil || len(ps) != 1 || ps[0].PID != parent || ps[0].Err != "" {
		return fmt.Errorf("list: %+v, %w", ps, err)
	}
	_, err = send(ctx, runDir, &ps[0], Order{ID: "x", Generation: 9, Workload: "w"})
	if err == nil || !strings.Contains(err.Error(), "only root") {
		return fmt.Errorf("order of another user: %w", err)
	}
	d, err := openDir(runDir)
	if err != nil {
		return err
	}
	if err := d.remove(ps[0].socket); err == nil {
		return fmt.Errorf("removed another user's socket")
	}
	ln, err := net.Listen("unix", d.sock(fmt.Sprintf("%d-%d-2.sock", parent, start)))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	return ln.Close()
}

// openRunDir returns a run directory that every user can reach.
func openRunDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	runDir := openRunDir(t)
	f := &fake{p: Process{Workload: "w", Device: "soft0"}}
	serve(t, runDir, f)
	st, err := os.Stat(filepath.Join(runDir, socketsDir))
	if err != nil || st.Mode().Perm() != 0o777 || st.Mode()&os.ModeSticky == 0 {
		t.Fatalf("directory %v, %v", st.Mode(), err)
	}
	end := asNobody(t, strangerDir+"="+runDir)
	ps, err := List(t.Context(), runDir)
	if err != nil || len(ps) != 1 || ps[0].UID != 0 || ps[0].Workload != "w" {
		t.Errorf("with an impostor beside: %+v, %v", ps, err)
	}
	if f.p.Order != nil {
		t.Errorf("another user ordered %+v", f.p.Order)
	}
	end()
}

// asNobody runs the test binary as another user with env, until end is called, and
// returns when it is ready.
func asNobody(t *testing.T, env ...string) (end func()) {
	t.Helper()
	_, end = asProcess(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}, env...)
	return end
}

// asProcess runs the test binary as a process of its own, like asNobody.
func asProcess(t *testing.T, attr *syscall.SysProcAttr, env ...string) (p *os.Process, end func()) {
	t.Helper()
	// The path works for every user, wherever go test put the binary.
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 1000)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "ready\n" {
		t.Fatalf("another user's process: %s, %v", line[:n], err)
	}
	return cmd.Process, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestForeignEntries fills the directory with what does not belong there.
func TestForeignEntries(t *testing.T) {
	runDir := openRunDir(t)
	serve(t, runDir, &fake{p: Process{Workload: "w"}})
	dir := filepath.Join(runDir, socketsDir)
	self, start := os.Getpid(), mustStart(t)
	dead := fmt.Sprintf("%d-%d.sock", self, start+1) // same number, another incarnation
	ln, err := net.Listen("unix", filepath.Join(dir, dead))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for name, make := range map[string]func(path string) error{
		"README":                                 func(p string) error { return os.WriteFile(p, nil, 0o600) },
		fmt.Sprintf("%d-%d-7.sock", self, start): func(p string) error { return os.WriteFile(p, nil, 0o600) },
		fmt.Sprintf("%d-%d-8.sock", self, start): func(p string) error { return os.Symlink(fmt.Sprintf("%d-%d.sock", self, start), p) },
		fmt.Sprintf("%d-%d-9.sock", self, start): func(p string) error { return unix.Mkfifo(p, 0o600) },
		"0-1.sock":                               func(p string) error { return os.Mkdir(p, 0o700) },
		"99999999999-1.sock":                     func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		if err := make(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ps, err := List(t.Context(), runDir)
	if err != nil || len(ps) != 1 || ps[0].PID != self {
		t.Errorf("list: %+v, %v", ps, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, dead)); !os.IsNotExist(err) {
		t.Errorf("the socket of a dead process is still there: %v", err)
	}
}

func mustStart(t *testing.T) uint64 {
	t.Helper()
	start, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return start
}

func TestUnsafeDirectory(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"writable and not sticky": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o777); err != nil {
				t.Fatal(err)
			}
		},
		"a link": func(t *testing.T, path string) {
			if err := os.Symlink(t.TempDir(), path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			runDir := t.TempDir()
			spoil(t, filepath.Join(runDir, socketsDir))
			if _, err := List(t.Context(), runDir); err == nil {
				t.Error("listed")
			}
			if s, err := Serve(t.Context(), runDir, &fake{}); err == nil {
				s.Close()
				t.Error("served")
			}
		})
	}
	if ps, err := List(t.Context(), t.TempDir()); err != nil || len(ps) != 0 {
		t.Errorf("a run directory without sockets: %v, %v", ps, err)
	}
}

// TestHostileAnswer checks that a process that answers nonsense is listed, with an
// error, and shows nothing of what it said.
func TestHostileAnswer(t *testing.T) {
	for name, p := range map[string]Process{
		"escape sequence":  {Workload: "\x1b[2J"},
		"huge hint":        {Hint: EffectiveHint{Size: func() *int64 { n := int64(1) << 40; return &n }()}},
		"connection twice": {Conns: []Conn{{ID: 1}, {ID: 1}}},
		"long text":        {Device: strings.Repeat("x", 1000)},
		"bad order":        {Order: &Order{ID: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			runDir := t.TempDir()
			serve(t, runDir, &fake{p: p})
			ps, err := List(t.Context(), runDir)
			if err != nil || len(ps) != 1 || ps[0].Err == "" || ps[0].PID != os.Getpid() {
				t.Fatalf("%+v, %v", ps, err)
			}
			if ps[0].Err != printable.Line(ps[0].Err) || len(ps[0].Conns) != 0 || ps[0].Workload != "" || ps[0].Device != "" {
				t.Errorf("kept what was said: %+v", ps[0])
			}
		})
	}
}

func TestPublishedByStrangers(t *testing.T) {
	runDir := t.TempDir()
	size := int64(5)
	for name, spoil := range map[string]func(path string) error{
		"group may write": func(p string) error { return os.Chmod(p, 0o664) },
		"a link": func(p string) error {
			if err := os.Rename(p, p+"x"); err != nil {
				return err
			}
			return os.Symlink(p+"x", p)
		},
		"a fifo": func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return unix.Mkfifo(p, 0o644)
		},
		"not JSON":         func(p string) error { return os.WriteFile(p, []byte("{"), 0o644) },
		"another workload": func(p string) error { return writeHint(p, published{Version, "v", Settings{}}) },
		"negative":         func(p string) error { n := int64(-1); return writeHint(p, published{Version, "w", Settings{Size: &n}}) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := Publish(runDir, "w", Settings{Size: &size}); err != nil {
				t.Fatal(err)
			}
			path := hintPath(runDir, "w")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if s, _, err := ReadPublished(runDir, "w"); err == nil {
				t.Errorf("read %+v", s)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func writeHint(path string, p published) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
