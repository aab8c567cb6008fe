package irqbalance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A daemon speaks the protocol as irqbalance's sock_handle does: one command a
// connection, read once into a buffer of a fixed size, at most one answer.
type daemon struct {
	t        *testing.T
	buffer   int
	rejects  bool // refuses a command that fills the buffer, as 1.9.5 does
	listener *net.UnixListener
	proc     string

	mu       sync.Mutex
	banned   []int         // guarded by mu
	commands []string      // guarded by mu; NULs kept
	deaf     bool          // guarded by mu: takes no new list
	hold     chan struct{} // guarded by mu: answers wait for it
	broken   bool          // guarded by mu: an answer found nobody
	answer   string        // guarded by mu: instead of the true one
}

// start runs a daemon of a version in dir, the run directory; args are its command line.
func start(t *testing.T, dir, version string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, buffer: 500, proc: t.TempDir()}
	if v, _ := parseVersion(version); v.AtLeast(longCommand) {
		d.buffer, d.rejects = 16384, true
	}
	d.banned = bannedByArgs(append([]string{"irqbalance"}, args...))
	self := filepath.Join(d.proc, strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(self, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"exe":     "\x7fELF...irqbalance version %s\n\x00\x00irqbalance version " + version + "\n\x00...",
		"cmdline": strings.Join(append([]string{"/usr/sbin/irqbalance"}, args...), "\x00") + "\x00",
		"stat":    strconv.Itoa(os.Getpid()) + " (irqbalance) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1",
	} {
		if err := os.WriteFile(filepath.Join(self, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d.listen(dir)
	return d
}

func (d *daemon) listen(dir string) {
	d.t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "irqbalance"), 0o755); err != nil {
		d.t.Fatal(err)
	}
	var err error
	d.listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "irqbalance", "irqbalance17.sock")})
	if err != nil {
		d.t.Fatal(err)
	}
	raw, err := d.listener.SyscallConn()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }); err != nil {
		d.t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := d.listener.AcceptUnix()
			if err != nil {
				return
			}
			d.serve(conn)
		}
	})
	d.t.Cleanup(func() {
		_ = d.listener.Close() // a test may have closed it
		served.Wait()
	})
}

func (d *daemon) serve(conn *net.UnixConn) {
	defer conn.Close()
	buf, oob := make([]byte, d.buffer), make([]byte, 64)
	n, m, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil || n == 0 {
		d.t.Errorf("a connection without a command (%v): it would crash an old daemon", err)
		return
	}
	if d.rejects && n == len(buf) {
		return
	}
	messages, err := unix.ParseSocketControlMessage(oob[:m])
	if err != nil || len(messages) != 1 {
		d.t.Errorf("control messages %v, %v", messages, err)
		return
	}
	if who, err := unix.ParseUnixCredentials(&messages[0]); err != nil || int(who.Uid) != os.Geteuid() {
		d.t.Errorf("credentials %v, %v", who, err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	command := string(buf[:n])
	d.commands = append(d.commands, command)
	if list, ok := strings.CutPrefix(command, banCommand); ok && !d.deaf {
		d.banned = scanIRQs(list)
	}
	if strings.HasPrefix(command, "setup") {
		if d.hold != nil {
			<-d.hold
		}
		if _, err := conn.Write([]byte(d.setup())); errors.Is(err, unix.EPIPE) {
			d.broken = true
		}
	}
}

// setup is the daemon's answer; the caller holds mu.
func (d *daemon) setup() string {
	if d.answer != "" {
		return d.answer
	}
	var b strings.Builder
	b.WriteString("SLEEP 10 ")
	for _, irq := range d.banned {
		fmt.Fprintf(&b, "IRQ %d LOAD 0 DIFF 0 CLASS 0 ", irq)
	}
	return b.String() + "BANNED 00000000,0000000f"
}

// scanIRQs reads numbers as the daemon does with strtoul: to the first 0 that is not the
// first, or to what is no number.
func scanIRQs(list string) []int {
	list, _, _ = strings.Cut(list, "\x00")
	if strings.HasPrefix(list, "NONE") {
		return nil
	}
	var irqs []int
	for i, word := range strings.Fields(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n == 0 && i > 0 {
			break
		}
		irqs = append(irqs, n)
	}
	return unique(irqs)
}

func (d *daemon) list() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.banned)
}

// ban is somebody else's list.
func (d *daemon) ban(irqs ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.banned = irqs
}

// lists returns the lists that were sent, the last one last.
func (d *daemon) lists() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, c := range d.commands {
		if list, ok := strings.CutPrefix(c, banCommand); ok {
			out = append(out, list)
		}
	}
	return out
}

func (d *daemon) place(dir string) place {
	return place{dirs: []string{filepath.Join(dir, "irqbalance"), dir}, abstract: filepath.Join(dir, "none"), proc: d.proc, pending: new(pending),
		trusted: func(uid uint32) bool { return int(uid) == os.Geteuid() }}
}

func (d *daemon) find(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := d.place(dir).find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}
