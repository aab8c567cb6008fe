package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

func ptr(n int64) *int64 { return &n }

// full is a status that has everything.
func full() reconcile.Status {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return reconcile.Status{
		FormatVersion: reconcile.FormatVersion, Version: "0.1.0", PID: 812, BootID: "5f0c2a10", Started: began,
		Spec:     reconcile.SpecStatus{Root: "/etc/rdmatune", Digest: "sha256:1f2e", Commit: "9f1c", Loaded: began.Add(1500 * time.Millisecond), Invalid: "node.hcl:3,1: no closing brace"},
		Problems: []string{"the spec's files are invalid", "1 setting is\ncontested"},
		Sources: []watch.Status{
			{Source: watch.Writes, On: true, Events: 812, Lost: 1}, {Source: watch.Kernel, On: true, Events: 3},
			{Source: watch.Processes, Reason: "no capability"}, {Source: "sideband", On: true}, {Source: "another", On: true},
		},
		Workloads: []reconcile.Workload{
			{Address: `allreduce["0"]`, Hint: ptr(16384), Wanted: ptr(8192), Generation: 3, Settings: 70, Processes: 1, Connections: 7},
			{Address: "storage", Generation: 1, Settings: 4, Processes: 2},
		},
		Contested:  []reconcile.Held{{Address: `workload.allreduce["0"].irq_affinity["0000:18:00.0/3"]`, Setting: "cpus", Rewrites: 9}},
		Waiting:    []reconcile.Held{{Address: `workload.storage.frequency_lock["policy3"]`}, {Address: `workload.storage.sideband["x"]`}},
		RolledBack: []reconcile.Held{{Address: "workload.storage.hint"}, {Address: `workload.storage.irq_affinity["x"]`}},
		Left:       []reconcile.Held{{Address: `workload.storage.coalescing["eth0"]`}},
		Guards:     []reconcile.Debt{{Guard: `workload.storage.guard["tail"]`, Reason: "nobody answers"}},
		Irqbalance: "irqbalance 1.9.2 (pid 40) leaves 64 of our interrupts alone", IrqbalanceAgreed: true,
		Others: []string{"tuned (pid 50)"}, Passes: 7, Sweeps: 4, Drifts: 3, Heals: 2,
	}
}

var passes = []reconcile.Pass{
	{Trigger: reconcile.AtStart, Took: 120 * time.Millisecond, Planned: 80 * time.Millisecond, Changed: 64, Failures: []string{"policy0: busy"}},
	{Trigger: reconcile.OnEvent, Took: 8 * time.Millisecond, Planned: 6 * time.Millisecond, Events: 2, Changed: 1,
		Drifts: []reconcile.Drift{
			{Address: `workload.allreduce["0"].irq_affinity["0000:18:00.0/3"]`, Ruling: "heal"},
			{Address: `workload.allreduce["0"].irq_affinity["0000:18:00.0/4"]`, Ruling: "contested"},
			{Address: `workload.w["a.hint["].cpu_pinning["4711"]`, Ruling: "of another version"},
		},
		Heals: []reconcile.Drift{
			{Address: `workload.allreduce["0"].irq_affinity["0000:18:00.0/3"]`, Ruling: "heal", Healed: 40 * time.Millisecond},
			{Address: `workload.w["a.hint["].cpu_pinning["4711"]`, Ruling: "wait", Healed: 400 * time.Millisecond},
		},
		Switches: []experiment.Switch{
			{Outcome: "switched", Pause: 700 * time.Microsecond}, {Outcome: "refused", Pause: time.Hour}, {Outcome: "what a process says"},
		}},
	{Trigger: "of another version", Took: time.Second, Err: "state directory: no space left on device"},
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestMetrics(t *testing.T) {
	s := New(full)
	for _, p := range passes {
		s.Observe(p)
	}
	code, text := get(t, s, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	// The process's own are other in each run.
	var ours []string
	own := map[string]bool{}
	for line := range strings.Lines(text) {
		if name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "); strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "go_") {
			own[strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '{' })[0]] = true
			continue
		}
		ours = append(ours, line)
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total", "go_goroutines"} {
		if !own[name] {
			t.Errorf("%s is missing", name)
		}
	}
	golden.Check(t, "metrics.txt", strings.Join(ours, ""))
}

// Whatever a status says, /metrics answers: workloads may be many, alike, and of any bytes.
func TestMetricsOfNonsense(t *testing.T) {
	st := full()
	st.Version, st.Spec.Digest = "\xff", strings.Repeat("d", 1000)
	for i := range 1500 {
		st.Workloads = append(st.Workloads, reconcile.Workload{Address: fmt.Sprintf("w%d\xff\n", i)})
	}
	st.Workloads[0].Address = st.Workloads[1].Address
	st.Workloads[2].Address, st.Workloads[3].Address = strings.Repeat("a", 300)+"1", strings.Repeat("a", 300)+"2"
	code, text := get(t, New(func() reconcile.Status { return st }), "/metrics")
	if code != http.StatusOK || strings.Contains(text, "w1400") || !strings.Contains(text, `workload="w900`) {
		t.Errorf("%d, %d bytes: %.300s", code, len(text), text)
	}
	if code, text := get(t, New(func() reconcile.Status { return reconcile.Status{} }), "/metrics"); code != http.StatusOK {
		t.Errorf("of nothing: %d: %s", code, text)
	}
}

func TestKindOf(t *testing.T) {
	for address, want := range map[string]string{
		`workload.w.irq_affinity["0000:18:00.0/3"]`: "irq_affinity", `workload.w.hint`: "hint", `workload.w["a"].hint["12"]`: "hint",
		`workload.w["]\".hint[\""].cpu_pinning["4711"]`: "cpu_pinning", `workload.w["a.hint["].cpu_pinning["1"]`: "cpu_pinning",
		"": other, "workload": other, "workload.": other, "workload.w": other, `workload.w["a`: other, `workload.w["a"x.hint`: other,
		"hint.w.hint": other, `workload.w.hint2["x"]`: other,
	} {
		if got := kindOf(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func FuzzKindOf(f *testing.F) {
	f.Add(`workload.w["a"].hint["12"]`)
	f.Add(`workload.w.irq_affinity["0000:18:00.0/3"]`)
	f.Fuzz(func(t *testing.T, address string) {
		if k := kindOf(address); k != other && !strings.Contains(address, k) {
			t.Errorf("%q has kind %q", address, k)
		}
	})
}

func TestHealth(t *testing.T) {
	st := full()
	s := New(func() reconcile.Status { return st })
	if code, text := get(t, s, "/healthz"); code != http.StatusServiceUnavailable || text != "the spec's files are invalid\n1 setting is contested\n" {
		t.Errorf("%d %q", code, text)
	}
	st.Problems = nil
	if code, text := get(t, s, "/healthz"); code != http.StatusServiceUnavailable || text != "not healthy\n" {
		t.Errorf("%d %q", code, text)
	}
	st.Healthy = true
	if code, text := get(t, s, "/healthz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("%d %q", code, text)
	}
}

// start listens on a socket below a deep directory and shuts down when t ends.
func start(t *testing.T, status func() reconcile.Status) (s *Server, path string) {
	t.Helper()
	s = New(status)
	path = filepath.Join(t.TempDir(), strings.Repeat("deep/", 30), "reconcile.sock")
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, s) })
	return s, path
}

func shutdown(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestAsk(t *testing.T) {
	s, path := start(t, full)
	got, err := Ask(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), *got, cmpopts.IgnoreUnexported(reconcile.Drift{})); diff != "" {
		t.Errorf("-told +asked\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside the socket: %v, %v", entries, err)
	}
	if err := New(full).Listen(path); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a daemon answers there already (pid %d)", os.Getpid())) {
		t.Errorf("a second daemon: %v", err)
	}
	shutdown(t, s)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	if _, err := Ask(t.Context(), path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := Ask(t.Context(), "/no/such/directory/s"); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("of no directory: %v", err)
	}
}

func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "reconcile.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Ask(t.Context(), path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("of a stale socket: %v", err)
	}
	s := New(full)
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Ask(t.Context(), path); err != nil {
		t.Error(err)
	}
	// A later daemon's socket outlives the end of an earlier one.
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("a file"), 0o644)); err != nil {
		t.Fatal(err)
	}
	shutdown(t, s)
	if err := New(full).Listen(path); err == nil || !strings.Contains(err.Error(), "something else is there") {
		t.Errorf("over a file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "a file" {
		t.Errorf("the file is %q, %v", b, err)
	}
	link := filepath.Join(dir, "link.sock")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := New(full).Listen(link); err == nil {
		t.Error("a link was replaced")
	}
	if os.Geteuid() == 0 {
		stranger, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "stranger.sock")})
		if err != nil {
			t.Fatal(err)
		}
		stranger.SetUnlinkOnClose(false)
		name := stranger.Addr().String()
		if err := errors.Join(stranger.Close(), os.Chown(name, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if err := New(full).Listen(name); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("over a stranger's: %v", err)
		}
	}
}

// answering is a daemon that says what it likes.
func answering(t *testing.T, answer string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096)) // the request; what matters is the answer
		_, _ = io.WriteString(conn, answer)  // to a client that may have heard enough
		_ = conn.Close()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

func TestAskStrangeDaemon(t *testing.T) {
	body := func(b string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
	}
	for name, c := range map[string]struct{ answer, want string }{
		"of a later version": {body(`{"format_version":"2.0","pid":"x"}`), "of different versions"},
		"not JSON":           {body("hello"), "invalid character"},
		"another type":       {body(`{"format_version":"1.0","pid":"x"}`), "cannot unmarshal"},
		"an error":           {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", "answered 500"},
		"not HTTP":           {"220 mail.example.org ESMTP\r\n", "malformed"},
		"nothing":            {"", "EOF"},
		"too much":           {body(strings.Repeat(" ", maxStatus+1)), "more than"},
		"endless header":     {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), "header"},
	} {
		if s, err := Ask(t.Context(), answering(t, c.answer)); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoDaemon) {
			t.Errorf("%s: %+v, %v; want %q", name, s, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format_version":"1.0","pid":1}`))
	f.Add([]byte(`{"format_version":"1.9","last_pass":{"drifts":[{}]},"until":"x"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parse(b); err == nil && !strings.HasPrefix(s.FormatVersion, "1.") && s.FormatVersion != "1" {
			t.Errorf("version %q was read", s.FormatVersion)
		}
	})
}
