package soak

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/reconcile/serve"
)

const socketPath = "/run/rdmatune/reconcile.sock"

// clockTick is the unit of CPU times in /proc, USER_HZ of all Linux on amd64 and arm64.
const clockTick = 10 * time.Millisecond

// A daemon is one incarnation of rdmatune reconcile.
type daemon struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait, after ended

	began   int           // event at which it was started
	seen    bool          // it was seen to be well
	cpu     time.Duration // last seen
	samples []sample      // at quiet points
}

// A sample is what a daemon costs at a quiet point.
type sample struct {
	event, threads, goroutines int
	fds                        int // without those of settings, which depend on the spec
	rss, anon                  int // KiB; anon is the part that is in no file
	cpu                        time.Duration
	files, kept                []string // what is open; kept are settings
}

// start runs the daemon; its log goes to the file.
func startDaemon(log, stateDir, spec string, event int) (*daemon, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &daemon{cmd: exec.Command("rdmatune", "reconcile", "--state-dir", stateDir, spec), ended: make(chan struct{}), began: event}
	d.cmd.Stdout, d.cmd.Stderr = f, f
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) alive() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// signal sends a signal and, for one that ends the daemon, waits for that.
func (d *daemon) signal(s syscall.Signal) error { return d.cmd.Process.Signal(s) }

func (d *daemon) wait(limit time.Duration) error {
	select {
	case <-d.ended:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("the daemon still runs %v after a signal", limit)
	}
}

// look samples what the daemon costs, but for its goroutines.
func (d *daemon) look(event int) (sample, error) {
	dir := "/proc/" + strconv.Itoa(d.pid())
	s := sample{event: event}
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(b)) {
		for name, to := range map[string]*int{"VmRSS:": &s.rss, "RssAnon:": &s.anon} {
			if v, ok := strings.CutPrefix(line, name); ok {
				if _, err := fmt.Sscan(v, to); err != nil {
					return s, fmt.Errorf("%s %q: %w", name, v, err)
				}
			}
		}
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return s, err
	}
	for _, fd := range fds {
		switch target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name())); {
		case err != nil: // closed since
		case strings.HasPrefix(target, "/sys/"), strings.HasPrefix(target, "/proc/irq/"):
			s.kept = append(s.kept, target)
		default:
			s.files = append(s.files, target)
		}
	}
	s.fds = len(s.files)
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return s, err
	}
	s.threads = len(tasks)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return s, err
	}
	// Fields 14 and 15 (proc(5)) are utime and stime; the name before may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return s, err
		}
		s.cpu += time.Duration(n) * clockTick
	}
	d.cpu = s.cpu
	return s, nil
}

// metric reads one value of /metrics.
func metric(ctx context.Context, name string) (float64, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socketPath)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for s := bufio.NewScanner(io.LimitReader(res.Body, 1<<20)); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

func status(ctx context.Context) (*reconcile.Status, error) { return serve.Ask(ctx, socketPath) }
