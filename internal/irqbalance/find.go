package irqbalance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/peercred"
	"github.com/rdmatune/rdmatune/internal/procs"
)

// ErrNone: no irqbalance answers on this machine. One may run that was built without a
// socket, or in a network namespace of its own with an abstract one.
var ErrNone = errors.New("no irqbalance with a socket runs")

// A Client speaks to one irqbalance daemon.
type Client struct {
	address string // of its socket; an abstract one begins with @
	pid     int    // 0: in another PID namespace
	start   uint64 // when it started, in clock ticks since boot; 0 when not known
	version Version
	args    []string // its command line
	proc    string   // /proc
	trusted func(uid uint32) bool
	pending *pending // answers that did not come in time
}

// A place is where daemons are looked for.
type place struct {
	dirs     []string // with irqbalancePID.sock
	abstract string   // the kernel's list of Unix sockets
	proc     string
	trusted  func(uid uint32) bool
	pending  *pending
}

// Find returns a client of the daemon that runs here, or ErrNone. runDir is the
// machine's directory of run-time files, /run. What a socket is called says nothing: its
// other end must be root's.
func Find(ctx context.Context, runDir string) (*Client, error) {
	return machine(runDir).find(ctx)
}

// machine is the place where this machine's daemon is looked for.
func machine(runDir string) place {
	return place{
		dirs: []string{filepath.Join(runDir, "irqbalance"), runDir}, abstract: "/proc/net/unix", proc: "/proc",
		trusted: func(uid uint32) bool { return uid == 0 }, pending: new(pending),
	}
}

func (p place) find(ctx context.Context) (*Client, error) {
	c, err := p.first(ctx, p.files())
	if errors.Is(err, ErrNone) { // only then is the kernel's whole list worth reading
		c, err = p.first(ctx, p.abstracts())
	}
	return c, err
}

// first returns a client of the first address at which a daemon answers.
func (p place) first(ctx context.Context, addresses []string) (*Client, error) {
	var failed []error
	for _, address := range addresses {
		c := &Client{address: address, proc: p.proc, trusted: p.trusted, pending: p.pending}
		err := c.greet(ctx)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT): // left by one that was killed
		case errors.Is(err, errStranger): // anybody may take an abstract name
		default:
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	return nil, ErrNone
}

// errStranger is a socket that is not root's.
var errStranger = errors.New("it is not root's")

// socketName is the name of the daemon's socket; the number is its process id in its own
// PID namespace.
var socketName = regexp.MustCompile(`^irqbalance[0-9]{1,10}\.sock$`)

// fallback is the abstract name of a daemon that could not make its file: it binds an
// address that is all zeros.
var fallback = "@" + strings.Repeat("\x00", 107)

// maxSockets bounds the sockets that are tried; the directories are root's.
const maxSockets = 16

// files returns the sockets in the file system that may be a daemon's.
func (p place) files() []string {
	var out []string
	for _, dir := range p.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // no daemon has made it
		}
		for _, e := range entries {
			if e.Type() == os.ModeSocket && socketName.MatchString(e.Name()) {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
	}
	return out[:min(len(out), maxSockets)]
}

// abstracts returns the sockets in the abstract namespace that may be a daemon's.
func (p place) abstracts() []string {
	f, err := os.Open(p.abstract)
	if err != nil {
		return nil
	}
	defer f.Close()
	out := abstractNames(f)
	return out[:min(len(out), maxSockets)]
}

// abstractNames returns the daemons' abstract sockets out of the kernel's list
// (/proc/net/unix), whose last column writes NUL as @.
func abstractNames(r io.Reader) []string {
	var out []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		name := line[strings.LastIndexByte(line, ' ')+1:]
		switch bare, ok := strings.CutPrefix(name, "@"); {
		case !ok:
		case socketName.MatchString(bare):
			out = append(out, name)
		case name == strings.Repeat("@", 108):
			out = append(out, fallback)
		}
	}
	return slices.Compact(out)
}

// greet finds out who is at the other end. The command means nothing to the daemon; a
// connection without one would harm an old version.
func (c *Client) greet(ctx context.Context) error {
	conn, pid, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // no answer is on its way
	c.pid = pid
	if pid != 0 {
		c.version = programVersion(c.file("exe"))
		c.args = strings.Split(strings.TrimRight(readSome(c.file("cmdline")), "\x00"), "\x00")
		c.start = c.started()
	}
	return c.send(conn, "hello")
}

// file is a file of the daemon's below /proc.
func (c *Client) file(name string) string {
	return filepath.Join(c.proc, strconv.Itoa(c.pid), name)
}

// started is when the daemon started, 0 when it is gone.
func (c *Client) started() uint64 {
	start, _ := procs.ParseStart(readSome(c.file("stat"))) // of one that is gone there is nothing to parse
	return start
}

// still reports whether the daemon is known to be the one that was found.
func (c *Client) still() bool { return c.start != 0 && c.started() == c.start }

// readSome returns the first MiB of a file, "" when there is none.
func readSome(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return ""
	}
	return string(b)
}

// busyWait is the pause before another try where the daemon's queue of connections is
// full: it holds two.
const busyWait = 50 * time.Millisecond

// dial connects and checks the other end. The caller sends a command before it closes.
func (c *Client) dial(ctx context.Context) (conn *net.UnixConn, pid int, err error) {
	for {
		any, err := new(net.Dialer).DialContext(ctx, "unix", c.address)
		if errors.Is(err, unix.EAGAIN) {
			select {
			case <-ctx.Done():
				return nil, 0, fmt.Errorf("irqbalance is busy: %w", ctx.Err())
			case <-time.After(busyWait):
				continue
			}
		}
		if err != nil {
			return nil, 0, fmt.Errorf("irqbalance: %w", err)
		}
		conn = any.(*net.UnixConn) // what the network "unix" gives
		break
	}
	peer, err := peercred.Of(conn)
	if err == nil && !c.trusted(peer.Uid) {
		err = fmt.Errorf("user %d: %w", peer.Uid, errStranger)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("socket %q: %w", c.address, err), conn.Close())
	}
	return conn, int(peer.Pid), nil
}
