package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNotify listens where systemd would: the daemon says when it is ready, that it reloads
// and since when, that it is ready again, also with a spec that became invalid, and that
// it stops.
func TestNotify(t *testing.T) {
	dir := t.TempDir()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	// next is what the daemon says next, but for its signs of life.
	next := func() string {
		t.Helper()
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			if said := string(b[:n]); said != "WATCHDOG=1" {
				return said
			}
		}
	}
	expect := func(want string) {
		t.Helper()
		if said := next(); said != want {
			t.Fatalf("said %q, want %q", said, want)
		}
	}
	file := filepath.Join(dir, "n.hcl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("workload \"w\" {\n  device = \"mlx5_0\"\n  irq_affinity {\n    cpus = \"0\"\n  }\n}\n")
	cmd := exec.CommandContext(t.Context(), "rdmatune", "reconcile", "--node", "sim:small", "--state-dir", filepath.Join(dir, "state"), file)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, "notify"), "RDMATUNE_RUN_DIR="+filepath.Join(dir, "run"))
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	expect("READY=1")
	for _, text := range []string{"", "workload \"w\" {"} {
		if text != "" {
			write(text)
		}
		before := monotonic(t)
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		first, usec, _ := strings.Cut(next(), "\n")
		since, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(usec, "MONOTONIC_USEC="), "\n"), 10, 64)
		if first != "RELOADING=1" || err != nil || since < before || since > monotonic(t) {
			t.Fatalf("said %q and %q, %v; want RELOADING=1 and a time from %d on", first, usec, err, before)
		}
		expect("READY=1")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// monotonic is CLOCK_MONOTONIC in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}
