package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/ethnl"
)

// ownNetwork gives the test a network namespace of its own, with nothing but a loopback
// device.
func ownNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace of our own: %v", err)
	}
}

func TestWrites(t *testing.T) {
	dir := t.TempDir()
	w := listen(t, Config{Local: true})
	if !on(t, w, Writes, "CAP_SYS_ADMIN") {
		return
	}
	w.files.allow = below(dir)
	kept, other, third := filepath.Join(dir, "kept"), filepath.Join(dir, "other"), filepath.Join(dir, "a\x1bb")
	for _, path := range []string{kept, other, third} {
		write(t, path, "x")
	}
	must(t, w.Files().Set([]string{kept, third}))
	write(t, kept, "own") // by this process
	pid, _ := shell(t, fmt.Sprintf("echo not kept >>%q; cat %q %q >/dev/null; echo 1 >>%q", other, kept, other, kept))
	e, others := await(t, w, "write", Writes, anything)
	if e.What != "write" || e.Subject != kept || e.PID != pid || e.When.IsZero() || len(others) > 0 {
		t.Errorf("%+v, want a write by %d; before it: %v", e, pid, others)
	}
	// Whether the writer is still there when it is asked for is a matter of luck, unless it
	// waits for the event.
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	done := make(chan int)
	go func() {
		defer close(done)
		pid, _ := shell(t, fmt.Sprintf("echo 1 >>'%s'; read x <%q; : '\x1b' two", third, fifo))
		done <- pid
	}()
	e, _ = await(t, w, "named", Writes, anything)
	write(t, fifo, "go\n")
	if pid := <-done; e.PID != pid || e.Comm != "sh" || e.Subject != filepath.Join(dir, "a?b") || !strings.HasPrefix(e.Command, "/bin/sh -c echo 1 >>") || !strings.HasSuffix(e.Command, ": '?' two") {
		t.Errorf("%+v, want the writer %d with its name and command", e, pid)
	}
	// Another file at the path: the old one's mark is of no use.
	must(t, os.Remove(kept))
	write(t, kept, "new")
	must(t, w.Files().Set([]string{kept}))
	pid, _ = shell(t, fmt.Sprintf("echo 1 >>'%s'; echo 2 >>%q", third, kept))
	e, others = await(t, w, "write", Writes, anything)
	if e.Subject != kept || e.PID != pid || len(others) > 0 {
		t.Errorf("%+v, want %s by %d", e, kept, pid)
	}
	if st := status(w, Writes); st.Events != 3 || st.Lost != 0 {
		t.Errorf("%+v, want 3 events", st)
	}
}

// TestWriterInALoop holds that one who writes all the time is told of once while nobody
// reads, and the other all the same.
func TestWriterInALoop(t *testing.T) {
	dir := t.TempDir()
	w := listen(t, Config{Local: true})
	if !on(t, w, Writes, "CAP_SYS_ADMIN") {
		return
	}
	w.files.allow = below(dir)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "x")
	write(t, b, "x")
	must(t, w.Files().Set([]string{a, b}))
	loop, _ := shell(t, fmt.Sprintf("exec 3>>%q 4>>%q; i=0; while [ $i -lt 5000 ]; do echo 1 >&3; echo 2 >&4; i=$((i+1)); done", a, b))
	other, _ := shell(t, fmt.Sprintf("echo 3 >>%q", b))
	_, before := await(t, w, "the other's", Writes, func(e Event) bool { return e.PID == other })
	for _, e := range before {
		if e.PID != loop || e.What != "write" {
			t.Errorf("%+v", e)
		}
	}
	if len(before) > 100 { // of ten thousand: those that waited, and some while they were taken
		t.Errorf("%d events of the loop waited", len(before))
	}
}

// TestLostWrites holds that what the kernel had to drop is told.
func TestLostWrites(t *testing.T) {
	w := &Watcher{q: newQueue(), files: newFiles(true)}
	s := &writes{q: w.q, files: w.files}
	if !s.events(fanotifyEvent(unix.FAN_EVENT_METADATA_LEN, unix.FANOTIFY_METADATA_VERSION, unix.FAN_Q_OVERFLOW, -1, 0)) {
		t.Error("an overflow is not taken")
	}
	if e, ok := w.q.take(); !ok || e.What != "lost" || e.Source != Writes {
		t.Errorf("%+v", e)
	}
	if s.events([]byte{1}) {
		t.Error("half an event is taken")
	}
}

func TestNetworkNamespace(t *testing.T) {
	ownNetwork(t)
	w := listen(t, Config{Local: true})
	for _, s := range []Source{Kernel, Links, Ethtool} {
		if st := status(w, s); !st.On {
			t.Fatalf("%+v", st)
		}
	}
	if st := status(w, Processes); st.On || !strings.Contains(st.Reason, "initial network namespace") {
		t.Errorf("%+v; want it off: the kernel serves it only in the first namespace", st)
	}
	a := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "watch0", NumTxQueues: 2, NumRxQueues: 2}, PeerName: "watch1"}
	must(t, netlink.LinkAdd(a))
	b, err := netlink.LinkByName("watch1")
	must(t, err)
	// heard waits for events of one source, in any order.
	heard := func(s Source, wants ...func(Event) bool) {
		t.Helper()
		for len(wants) > 0 {
			e, _ := await(t, w, string(s), s, func(e Event) bool {
				return slices.ContainsFunc(wants, func(want func(Event) bool) bool { return want(e) })
			})
			wants = slices.DeleteFunc(wants, func(want func(Event) bool) bool { return want(e) })
		}
	}
	must(t, netlink.LinkSetUp(a))
	must(t, netlink.LinkSetUp(b))
	heard(Links, is("add", "watch0"), is("add", "watch1"), is("up", "watch0"), is("up", "watch1"))
	must(t, netlink.LinkSetDown(b))
	heard(Links, is("down", "watch0"), is("down", "watch1"))
	must(t, netlink.LinkSetName(b, "watch2"))
	heard(Links, is("change", "watch2"))
	must(t, netlink.LinkDel(a))
	heard(Links, is("remove", "watch0"), is("remove", "watch2"))
}

func TestUevents(t *testing.T) {
	ownNetwork(t)
	w := listen(t, Config{Local: true})
	a := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "watch0", NumTxQueues: 2, NumRxQueues: 2}, PeerName: "watch1"}
	must(t, netlink.LinkAdd(a))
	must(t, netlink.LinkSetName(a, "watch2"))
	must(t, netlink.LinkDel(a))
	const sys = "/devices/virtual/net/"
	for _, want := range []struct{ what, device string }{ // in this order
		{"add", "watch0"}, {"add", "watch0/queues/rx-0"}, {"add", "watch0/queues/rx-1"}, {"add", "watch0/queues/tx-0"},
		{"move", "watch2"}, {"remove", "watch2/queues/rx-0"}, {"remove", "watch2"},
	} {
		await(t, w, want.what+" "+want.device, Kernel, is(want.what, sys+want.device))
	}
}

// TestOverrun holds that a socket that the kernel could not put everything into says so,
// and works on.
func TestOverrun(t *testing.T) {
	ownNetwork(t)
	w := &Watcher{q: newQueue()}
	s, err := w.listen(Links, unix.NETLINK_ROUTE, linkGroup, 1)
	must(t, err)
	defer s.close()
	a := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "watch0"}, PeerName: "watch1"}
	must(t, netlink.LinkAdd(a))
	must(t, netlink.LinkSetUp(a))
	for range 20 {
		must(t, netlink.LinkSetDown(a))
		must(t, netlink.LinkSetUp(a))
	}
	overruns, datagrams := 0, 0
	s.overrun = func() { overruns++ }
	s.handle = func([]byte) { datagrams++ }
	fd := int(s.f.Fd()) // it stays non-blocking for drain, which asks for that each time
	if some, err := s.drain(fd); !some || err != nil {
		t.Errorf("%v, %v", some, err)
	}
	if st := w.q.statuses()[2]; overruns != 1 || st.Lost != 1 || datagrams == 0 {
		t.Errorf("%d overruns, %d datagrams, %+v", overruns, datagrams, st)
	}
	must(t, netlink.LinkDel(a))
	before := datagrams
	if some, err := s.drain(fd); !some || err != nil || datagrams == before {
		t.Errorf("after the overrun: %v, %v, %d datagrams", some, err, datagrams-before)
	}
}

// TestEthtool sets coalescing, which a TAP device has.
func TestEthtool(t *testing.T) {
	ownNetwork(t)
	w := listen(t, Config{Local: true})
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "watch0"}, Mode: netlink.TUNTAP_MODE_TAP}
	must(t, netlink.LinkAdd(tap))
	c, err := ethnl.Dial()
	must(t, err)
	defer c.Close()
	must(t, c.Set("watch0", ethnl.Coalesce{RXFrames: new(uint32(5))}))
	await(t, w, "coalescing", Ethtool, is("change", "watch0"))
}

func TestProcesses(t *testing.T) {
	w := listen(t, Config{Local: true})
	if !on(t, w, Processes, "process connector") {
		return
	}
	pid, _ := shell(t, "exec sleep 0")
	e, _ := await(t, w, "exec", Processes, func(e Event) bool { return e.PID == pid })
	if e.Source != Processes || e.What != "exec" || e.Subject != e.Comm {
		t.Errorf("%+v", e)
	}
	// A process that lasts is named.
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	done := make(chan int)
	go func() {
		defer close(done)
		pid, _ := shell(t, fmt.Sprintf("exec cat %q", fifo))
		done <- pid
	}()
	e, _ = await(t, w, "named", Processes, func(e Event) bool { return e.Comm == "cat" })
	write(t, fifo, "")
	if pid := <-done; e.PID != pid || e.What != "exec" || e.Subject != "cat" {
		t.Errorf("%+v, want an exec of %d", e, pid)
	}
}
