package control

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/param"
)

// answerWith serves a socket of this process that answers every request with body, and
// returns its name.
func answerWith(t *testing.T, runDir, body string) string {
	t.Helper()
	d, err := makeDir(runDir)
	if err != nil {
		t.Fatal(err)
	}
	name := d.sock(fmt.Sprintf("%d-%d.sock", os.Getpid(), mustStart(t)))
	ln, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln) // returns when closed
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
		d.f.Close()
	})
	return name
}

// TestLongReason: what is said of a process is one short line, whatever it says.
func TestLongReason(t *testing.T) {
	runDir := t.TempDir()
	answerWith(t, runDir, `{"version":1,"conns":"`+strings.Repeat(`\n\u202e`, 10_000)+`"}`)
	ps, err := List(t.Context(), runDir)
	if err != nil || len(ps) != 1 || ps[0].Err == "" || len(ps[0].Err) > maxError+3 || ps[0].Err != printable.Line(ps[0].Err) {
		t.Errorf("%+v, %v", ps, err)
	}
}

// TestHalfSilent: a process of which one transport does not answer is said, and no
// target that could not be read.
func TestHalfSilent(t *testing.T) {
	runDir := t.TempDir()
	answerWith(t, runDir, "nonsense")
	serve(t, runDir, &fake{p: Process{Workload: "w"}})
	ts, err := NewDriver(runDir, nil).Discover(t.Context(), param.Scope{Workload: "w"})
	if !errors.Is(err, drivers.ErrIncomplete) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) || len(ts) != 1 || ts[0].Name != "published/w" {
		t.Errorf("%+v, %v", ts, err)
	}
}

// TestHostileLists: a list costs no more than its limit, whatever its length, and one
// reason is given.
func TestHostileLists(t *testing.T) {
	many := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	ids := make([]string, 10_000)
	for i := range ids {
		ids[i] = fmt.Sprintf(`{"id":%d,"peer":"\u009b"}`, i)
	}
	for name, c := range map[string]struct{ body, says string }{
		"connections":     {`{"version":1,"conns":` + many("{}", 300_000) + `}`, "more than 16384 connections"},
		"threads":         {`{"version":1,"threads":` + many("1", 1_000_000) + `}`, "more than 65536 threads"},
		"lanes":           {`{"version":1,"conns":[{"lanes":` + many("{}", 300_000) + `}]}`, "more than 16 lanes"},
		"bins":            {`{"version":1,"conns":[{"sent":{"sizes":` + many("{}", 300_000) + `}}]}`, "more than 256 bins"},
		"notices":         {`{"version":1,"hint":{"notices":` + many(`""`, 300_000) + `}}`, "more than 64 texts"},
		"bytes":           {`{"version":1,"workload":"` + strings.Repeat("x", maxReply) + `"}`, "more than 16 MiB"},
		"no list":         {`{"version":1,"conns":{}}`, "not a list"},
		"many wrong ones": {`{"version":1,"conns":[` + strings.Join(ids, ",") + `]}`, "connection 0: peer: unprintable character U+009B"},
	} {
		t.Run(name, func(t *testing.T) {
			name := answerWith(t, t.TempDir(), c.body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			conn, err := net.Dial("unix", name)
			if err != nil {
				t.Fatal(err)
			}
			var p Process
			err = call(t.Context(), conn, http.MethodGet, "/v1/process", nil, &p)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, c.says)
			}
			if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > 160 {
				t.Errorf("it took %d MiB", spent)
			}
		})
	}
}

func TestCheckNumbers(t *testing.T) {
	good := Conn{
		Sent:  Traffic{Sizes: Bins{{0, 1}, {1, 2}, {2, 1 << 62}}},
		Lanes: Lanes{{SendWR: 1}}, Bands: Bands{{From: 0, To: 8, Tier: "inline"}}, Switches: Switches{{Held: 1}},
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for says, c := range map[string]Conn{
		"sizes: a bin from -8":        {Received: Traffic{Sizes: Bins{{-8, 1}}}},
		"sizes: a bin from 1 after":   {Sent: Traffic{Sizes: Bins{{1, 1}, {1, 1}}}},
		"sizes: a bin of 92233720368": {Sent: Traffic{Sizes: Bins{{0, 1}, {1, 1<<63 - 1}}}},
		"times: a bin from -1":        {Sent: Traffic{Tiers: Tiers{{Times: Bins{{-1, 1}}}}}},
		"size: -1 is below 0":         {Eager: -1},
		"band: -1 is below 0":         {Bands: Bands{{From: -1}}},
		"lane: -5 is below 0":         {Lanes: Lanes{{MaxInline: -5}}},
		"switch: -2 is below 0":       {Switches: Switches{{Pause: -2}}},
	} {
		if err := c.check(); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	lanes := "triple"
	p := Process{Version: Version, Settings: &Settings{Lanes: &lanes}}
	if err := p.check(); err == nil {
		t.Error("settings in force that are none were taken")
	}
}

// crowd fills a run directory, as another user: with files that have the name of a
// socket, with others, and with more sockets than are asked, behind which nobody listens.
func crowd(runDir string) error {
	dir := filepath.Join(runDir, socketsDir)
	self := os.Getpid()
	start, err := startTime(self)
	if err != nil {
		return err
	}
	for i := range 5000 {
		name := fmt.Sprintf("%d-%d-%d.sock", self, start, 10_000+i)
		if i%10 == 0 {
			name = fmt.Sprintf("junk%d", i)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			return err
		}
	}
	bind := func(name string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, name)})
	}
	for i := range userCount + 10 {
		if err := bind(fmt.Sprintf("%d-%d-%d.sock", self, start, i)); err != nil {
			return err
		}
	}
	// A socket in the name of another user's process says nothing of that one.
	parent := os.Getppid()
	if start, err = startTime(parent); err != nil {
		return err
	}
	if err := bind(fmt.Sprintf("%d-%d-77.sock", parent, start)); err != nil {
		return err
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	return nil
}

func TestCrowdedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	runDir := openRunDir(t)
	serve(t, runDir, &fake{p: Process{Workload: "w"}})
	end := asNobody(t, strangerDir+"="+runDir, strangerCrowds+"=yes")
	ps, err := List(t.Context(), runDir)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, p := range ps {
		if p.PID == os.Getpid() {
			if p.Err != "" || p.Workload != "w" {
				t.Errorf("this process: %+v", p)
			}
			continue
		}
		if p.UID != nobody {
			t.Errorf("of another user: %+v", p)
		}
		said = append(said, p.Err)
	}
	if len(ps) != 3 || len(said) != 2 || !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "connection refused") }) ||
		!slices.Contains(said, "user 65534 has 266 sockets; only the first 256 were asked") {
		t.Errorf("%d entries, of the other user %q", len(ps), said)
	}
	names, err := os.ReadDir(filepath.Join(runDir, socketsDir))
	if err != nil {
		t.Fatal(err)
	}
	// What is left: other names, the sockets of the living, and this process's.
	if want := 500 + userCount + 10 + 1; len(names) != want {
		t.Errorf("%d names are left, want %d", len(names), want)
	}
	if ps, err := list(t.Context(), runDir, os.Getpid()); err != nil || len(ps) != 1 || ps[0].Err != "" {
		t.Errorf("one process: %+v, %v", ps, err)
	}
	end()
	if ps, err := List(t.Context(), runDir); err != nil || len(ps) != 1 {
		t.Errorf("after its end: %d entries, %v", len(ps), err)
	}
}

func TestTooManyNames(t *testing.T) {
	runDir := t.TempDir()
	serve(t, runDir, &fake{})
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(runDir, socketsDir, fmt.Sprint("x", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int]bool{10: false, 1000: true} {
		d, err := openDir(runDir)
		if err != nil {
			t.Fatal(err)
		}
		sockets, whole, err := d.scan(t.Context(), 0, most)
		if err != nil || whole != want || want && len(sockets) != 1 {
			t.Errorf("of at most %d names: %v, whole %v, %v", most, sockets, whole, err)
		}
		d.f.Close()
	}
}

func FuzzUIDs(f *testing.F) {
	f.Add([]byte("Name:\tx\nUid:\t1000\t1001\t0\t1000\nGid:\t1\n"))
	f.Add([]byte("Uid:\t-1\t99999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := parseUIDs(b); len(got) > len(b) {
			t.Fatalf("%d users from %d bytes", len(got), len(b))
		}
	})
}
