package transport_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/param"
)

// childRunDir makes the test binary an echo server with this run directory.
const childRunDir = "TRANSPORT_TEST_ECHO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childRunDir); dir != "" {
		if err := echo(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runIn(m))
}

// runIn runs the tests with a run directory of their own.
func runIn(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rdmatune-run-")
	if err == nil {
		err = os.Setenv("RDMATUNE_RUN_DIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.Run()
}

func device() string { return cmp.Or(os.Getenv("RDMATUNE_DEVICE"), "soft0") }

// echo sends every message back until its standard input ends.
func echo(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tr, err := transport.Open(ctx, transport.Options{Device: device(), RunDir: dir, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := tr.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return tr.Close()
		}
		go func() {
			buf := make([]byte, 1<<20)
			for {
				n, err := c.Recv(ctx, buf)
				if err == nil {
					err = c.Send(ctx, buf[:n])
				}
				if err != nil {
					c.Close()
					return
				}
			}
		}()
	}
}

// startEcho starts an echo server of workload "w" and returns it with its address.
func startEcho(t *testing.T, runDir string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childRunDir+"="+runDir, "RDMATUNE_WORKLOAD=w", "RDMA_LOW_LATENCY_HINT=")
	cmd.Stderr = os.Stderr
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
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Wait() // killed by the test, or ended with its standard input
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(addr)
}

// change is a plan's change of one connection's hint.
func change(ts param.Target, conn string, size int64) []param.Change {
	return []param.Change{
		{Workload: "w", Target: ts, ID: param.HintSize, New: param.Int(size)},
		{Workload: "w", Target: ts, ID: param.DrainTimeout, New: param.Int(300)},
		{Workload: "w", Target: ts, ID: param.HintSize, Index: conn, New: param.Int(size), Action: param.Replace},
	}
}

func TestTwoProcesses(t *testing.T) {
	t.Setenv("RDMATUNE_WORKLOAD", "")
	t.Setenv("RDMA_LOW_LATENCY_HINT", "")
	runDir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	child, addr := startEcho(t, runDir)
	tr, err := transport.Open(t.Context(), transport.Options{Device: device(), RunDir: runDir, Workload: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	c, err := tr.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	turn := func(size int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		msg, buf := bytes.Repeat([]byte{byte(size)}, size), make([]byte, size)
		sent := make(chan error, 1)
		go func() { sent <- c.Send(ctx, msg) }()
		n, err := c.Recv(ctx, buf)
		if err = errors.Join(err, <-sent); err == nil && !bytes.Equal(buf[:n], msg) {
			err = fmt.Errorf("echo of %d bytes differs", size)
		}
		return err
	}
	if err := turn(100_000); err != nil {
		t.Fatal(err)
	}

	d := control.NewDriver(runDir, nil)
	ts, err := d.Discover(t.Context(), param.Scope{Workload: "w"})
	if err != nil || len(ts) != 2 || ts[0].Name != strconv.Itoa(child.Process.Pid) || ts[1].Name != "published/w" {
		t.Fatalf("targets %v, %v", ts, err)
	}
	target := ts[0]
	o := param.Order{ID: "run1", Workload: "w", Generation: 1}
	now, err := d.Apply(t.Context(), target, change(target, "1", 16384), o)
	if err != nil {
		t.Fatalf("%v, in force %v", err, now)
	}
	if s, ok := drivers.Lookup(now, param.HintSize, "1"); !ok || s.Value != param.Int(16384) {
		t.Errorf("in force: %+v", now)
	}
	if err := turn(100_000); err != nil {
		t.Fatal(err)
	}

	// A stalled peer aborts the switch that this end opens; afterwards all is well.
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("stop the child: %v, %v", status, err)
	}
	size, drain := int64(8192), int64(300)
	res, err := tr.Order(t.Context(), control.Order{ID: "run2", Generation: 1, Workload: "mine", Open: true,
		Settings: &control.Settings{Size: &size, DrainTimeoutMS: &drain}})
	if err != nil || res.Outcomes[0].Outcome != control.Aborted {
		t.Errorf("switch with a stalled peer: %+v, %v", res.Outcomes, err)
	}
	ps, err := control.List(t.Context(), runDir)
	if err != nil || len(ps) != 2 {
		t.Fatalf("list with a stalled process: %+v, %v", ps, err)
	}
	for _, p := range ps {
		if stalled := p.PID == child.Process.Pid; stalled != (p.Err != "") {
			t.Errorf("process %d: error %q", p.PID, p.Err)
		}
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := turn(5000); err != nil {
		t.Fatal(err)
	}

	// A dead peer ends the connection, and its socket goes with it.
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := turn(100); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("after the peer was killed: %v", err)
	}
	child.Wait()
	if _, err := d.Read(t.Context(), target); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("read of a dead process: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(runDir, "transports", target.Name+"-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("its socket is still there: %v, %v", left, err)
	}
}
