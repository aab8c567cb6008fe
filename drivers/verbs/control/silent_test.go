package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/param"
)

// mute makes a socket of this process whose transport takes every connection and says
// nothing, and counts them.
func mute(t *testing.T, d *dir, number int) *atomic.Int64 {
	t.Helper()
	ln, err := net.Listen("unix", d.sock(fmt.Sprintf("%d-%d-%d.sock", os.Getpid(), mustStart(t), number)))
	if err != nil {
		t.Fatal(err)
	}
	asked := &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			asked.Add(1)
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return asked
}

// TestManySilent: every one of many silent sockets is asked within one wait, and one time
// in a look, whatever the look reads; they cost another user's process nothing.
func TestManySilent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root can become another user: run the tests as root")
	}
	runDir := openRunDir(t)
	d, err := makeDir(runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.f.Close()
	var asked []*atomic.Int64
	for i := range 300 {
		asked = append(asked, mute(t, d, 10+i))
	}
	p, end := asProcess(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}, strangerDir+"="+runDir, strangerServes+"=yes")
	defer end()
	set := drivers.NewSet(NewDriver(runDir, nil))
	ctx := drivers.Look(t.Context())
	for range 3 {
		o := set.Observe(ctx, param.Hint, param.Scope{Workload: "w"})
		if o.Err != nil || len(o.Found) != 2 || o.Found[0].Target.Name != strconv.Itoa(p.Pid) ||
			!strings.Contains(o.Incomplete, strconv.Itoa(os.Getpid())) || !strings.Contains(o.Incomplete, "no answer within") {
			t.Fatalf("%+v", o)
		}
		self := param.Target{Kind: param.Hint, Name: strconv.Itoa(os.Getpid()), Incarnation: strconv.FormatUint(mustStart(t), 10)}
		if _, there, err := set.Reread(ctx, self); !errors.Is(err, drivers.ErrIncomplete) || there {
			t.Fatalf("a silent one that is remembered: %v, there %v", err, there)
		}
	}
	for i, n := range asked {
		if n.Load() != 1 {
			t.Errorf("socket %d was asked %d times", i, n.Load())
		}
	}
}

// TestFallsSilent: a process that answers when it is discovered and not when it is read
// is named, and the rest is observed. In a look it is asked one time.
func TestFallsSilent(t *testing.T) {
	runDir := t.TempDir()
	d, err := makeDir(runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.f.Close()
	ln, err := net.Listen("unix", d.sock(fmt.Sprintf("%d-%d.sock", os.Getpid(), mustStart(t))))
	if err != nil {
		t.Fatal(err)
	}
	var answers atomic.Int64
	ended := make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(1) > 1 {
			<-ended
			return
		}
		fmt.Fprint(w, `{"version":1,"workload":"w"}`)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln) // returns when closed
	}()
	defer func() {
		close(ended)
		srv.Close()
		<-done
	}()
	set := drivers.NewSet(NewDriver(runDir, nil))
	o := set.Observe(drivers.Look(t.Context()), param.Hint, param.Scope{Workload: "w"})
	if o.Err != nil || o.Incomplete != "" || len(o.Found) != 2 || answers.Load() != 1 {
		t.Errorf("in a look: %+v; asked %d times", o, answers.Load())
	}
	answers.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	o = set.Observe(ctx, param.Hint, param.Scope{Workload: "w"})
	if o.Err != nil || len(o.Found) != 1 || o.Found[0].Target.Name != "published/w" ||
		!strings.Contains(o.Incomplete, "a process has fallen silent") || !strings.Contains(o.Incomplete, strconv.Itoa(os.Getpid())+" (") {
		t.Errorf("without one: %+v", o)
	}
}

// serveUntilTold serves a transport of workload w until its standard input ends.
func serveUntilTold(runDir string) error {
	s, err := Serve(context.Background(), runDir, &fake{p: Process{Workload: "w"}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	return s.Close()
}

// TestStopped: a process that a signal has stopped is not waited for.
func TestStopped(t *testing.T) {
	runDir := t.TempDir()
	p, end := asProcess(t, nil, strangerDir+"="+runDir, strangerServes+"=yes")
	defer end()
	signal := func(s syscall.Signal, becomes bool) {
		t.Helper()
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
		for stopped(p.Pid) != becomes {
			time.Sleep(time.Millisecond) // the kernel tells nobody but a parent that waits for it
		}
	}
	signal(syscall.SIGSTOP, true)
	ps, err := List(t.Context(), runDir)
	if err != nil || len(ps) != 1 || ps[0].PID != p.Pid || ps[0].Err != errStopped.Error() {
		t.Errorf("stopped: %+v, %v", ps, err)
	}
	ts, err := NewDriver(runDir, nil).Discover(t.Context(), param.Scope{Workload: "w"})
	if !errors.Is(err, drivers.ErrIncomplete) || !strings.Contains(err.Error(), fmt.Sprintf("%d (%s): %v", p.Pid, ps[0].Comm, errStopped)) ||
		slices.ContainsFunc(ts, func(t param.Target) bool { return t.Name == strconv.Itoa(p.Pid) }) {
		t.Errorf("stopped: %+v, %v", ts, err)
	}
	signal(syscall.SIGCONT, false)
	if ps, err := List(t.Context(), runDir); err != nil || len(ps) != 1 || ps[0].Err != "" || ps[0].Workload != "w" {
		t.Errorf("continued: %+v, %v", ps, err)
	}
}
