package irqbalance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/procs"
)

// answerTime bounds the wait for the daemon where the context does not: before 1.9.4 it
// may sleep for its interval of 10 s first.
const answerTime = 15 * time.Second

// maxAnswer bounds what is kept of an answer: some 60 bytes for each of maxIRQs.
const maxAnswer = 4 << 20

// PID is the daemon's process id, 0 when it is in another PID namespace.
func (c *Client) PID() int { return c.pid }

// Version is the daemon's version, zero when its program does not tell.
func (c *Client) Version() Version { return c.version }

// Verifiable reports whether the daemon can be asked which interrupts are banned. If not,
// only affinities that stay as they are show that it listened.
func (c *Client) Verifiable() bool { return c.version.AtLeast(readsBack) }

// ErrUnreadable: the daemon's version crashes when asked for its settings, or is not known.
var ErrUnreadable = errors.New("its settings cannot be read safely")

// Setup asks the daemon for its settings.
func (c *Client) Setup(ctx context.Context) (Setup, error) {
	if !c.Verifiable() {
		return Setup{}, fmt.Errorf("%s: %w", c, ErrUnreadable)
	}
	text, err := c.ask(ctx, "setup")
	if err == nil && text == "" {
		err = errors.New("irqbalance does not answer: it answers root alone")
	}
	if err != nil {
		return Setup{}, err
	}
	return parseSetup(text)
}

// Banned returns the interrupts that the daemon leaves alone by its list, ascending. Where
// it cannot be asked, these are the ones of its command line.
func (c *Client) Banned(ctx context.Context) ([]int, error) {
	if !c.Verifiable() {
		return bannedByArgs(c.args), nil
	}
	s, err := c.Setup(ctx)
	return s.Banned, err
}

// A LimitError says that the daemon's version cannot take a list as long as it is needed.
// The interrupts that were on the list before and the lowest of the others are banned.
type LimitError struct {
	Version       Version
	Fit, Wanted   int // interrupts
	CommandLength int // bytes that the version reads
}

func (e *LimitError) Error() string {
	name := "irqbalance of unknown version"
	if v := e.Version.String(); v != "" {
		name = "irqbalance " + v
	}
	later := ""
	if !e.Version.AtLeast(longCommand) {
		later = longCommand.String() + " reads more; "
	}
	return fmt.Sprintf("%s can be told of %d of %d interrupts, in a command of %d bytes (%sits --banmod and its policy scripts have no such limit)",
		name, e.Fit, e.Wanted, e.CommandLength, later)
}

// Ban asks the daemon to leave irqs alone besides what it leaves alone already, and returns
// which of them it did not before. Nothing is sent when there is none. Where the daemon
// can be asked, the list is read back and compared. A *LimitError comes with what fitted.
func (c *Client) Ban(ctx context.Context, irqs []int) (added []int, err error) {
	return c.Change(ctx, nil, irqs)
}

// Restore takes ours off the daemon's list, and leaves on it what others put there. Where
// the daemon cannot be asked, what is left is the list of its command line.
func (c *Client) Restore(ctx context.Context, ours []int) error {
	_, err := c.Change(ctx, ours, nil)
	return err
}

// Change is Restore of drop and Ban of add with one command. It returns what of add was not
// on the list, or was there only by drop.
func (c *Client) Change(ctx context.Context, drop, add []int) (added []int, err error) {
	now, err := c.Banned(ctx)
	if err != nil {
		return nil, err
	}
	return c.change(ctx, now, unique(slices.Clone(drop)), unique(slices.Clone(add)))
}

// change is Change of a list that was just read; drop and add are sorted.
func (c *Client) change(ctx context.Context, now, drop, add []int) (added []int, err error) {
	base := without(now, drop)
	added = without(add, base)
	fit := c.fit(base, added)
	want := union(base, added[:fit])
	if fit < len(added) {
		limit := c.version.commandMax()
		err = &LimitError{Version: c.version, Fit: fit, Wanted: len(added), CommandLength: limit}
		added = added[:fit]
	}
	if c.Verifiable() && slices.Equal(now, want) {
		return added, err
	}
	if sent := c.replace(ctx, want); sent != nil {
		return nil, sent
	}
	if !c.Verifiable() {
		return added, err
	}
	got, rerr := c.Banned(ctx)
	if rerr != nil {
		return added, fmt.Errorf("reading back: %w", rerr)
	}
	if !slices.Equal(got, want) {
		return added, fmt.Errorf("irqbalance was told to leave %d interrupts alone; its list now lacks %d of them and has %d more", len(want), len(without(want, got)), len(without(got, want)))
	}
	return added, err
}

const banCommand = "settings ban irqs "

// fit returns how many of more fit into one command beside base.
func (c *Client) fit(base, more []int) int {
	room := c.version.commandMax() - len(banCommand) - 1 // the NUL
	for _, n := range base {
		room -= len(strconv.Itoa(n)) + 1
	}
	for i, n := range more {
		if room -= len(strconv.Itoa(n)) + 1; room < 0 {
			return i
		}
	}
	return len(more)
}

// replace sends a whole list. It is sorted, so that an interrupt 0 comes first, where it
// is read as a number.
func (c *Client) replace(ctx context.Context, irqs []int) error {
	command := banCommand + "NONE"
	if len(irqs) > 0 {
		texts := make([]string, len(irqs))
		for i, n := range irqs {
			texts[i] = strconv.Itoa(n)
		}
		command = banCommand + strings.Join(texts, " ")
	}
	if len(command)+1 > c.version.commandMax() {
		return fmt.Errorf("%s: a command of %d bytes is too long for it", c, len(command)+1)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // the command stays in the daemon's queue
	return c.send(conn, command)
}

// connect is dial to the daemon that was found, and no other in its place.
func (c *Client) connect(ctx context.Context) (*net.UnixConn, error) {
	conn, pid, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if pid != c.pid {
		// A connection is used once it is made.
		err := c.send(conn, "hello")
		return nil, errors.Join(fmt.Errorf("irqbalance was started anew (pid %d, now %d)", c.pid, pid), err, conn.Close())
	}
	return conn, nil
}

// send sends one command with this process's credentials.
func (c *Client) send(conn *net.UnixConn, command string) error {
	if err := conn.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	id := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())})
	b := []byte(command + "\x00")
	n, _, err := conn.WriteMsgUnix(b, id, nil)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("irqbalance: %w", err)
	}
	return nil
}

// pending counts the answers that daemons owe.
type pending struct {
	mu   sync.Mutex
	n    int           // guarded by mu
	none chan struct{} // guarded by mu; closed when n falls to 0, nil while it is 0
}

// add is called when an answer was asked for, done when it came or cannot come any more.
func (p *pending) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n == 1 {
		p.none = make(chan struct{})
	}
}

func (p *pending) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		close(p.none)
		p.none = nil
	}
}

func (p *pending) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Bounds of what a daemon that does not answer costs: connections that are kept for its
// answers, and how long each is kept, which is many of its rounds.
const (
	maxOwed    = 4
	lastAnswer = 5 * time.Minute
)

// wait waits until no answer is owed.
func (p *pending) wait(ctx context.Context) error {
	p.mu.Lock()
	none := p.none
	p.mu.Unlock()
	if none == nil {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("irqbalance has not answered yet: %w", ctx.Err())
	}
}

// ask sends a command and returns the answer. When it is late, the connection outlives
// this call: an answer to nobody would end the daemon.
func (c *Client) ask(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if n := c.pending.count(); n >= maxOwed {
		return "", fmt.Errorf("irqbalance owes %d answers, and is asked nothing more until one comes", n)
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(lastAnswer)); err != nil {
		return "", errors.Join(err, conn.Close())
	}
	if err := c.send(conn, command); err != nil {
		return "", errors.Join(err, conn.Close())
	}
	type answer struct {
		text string
		err  error
	}
	came := make(chan answer, 1)
	c.pending.add()
	go func() {
		defer c.pending.done()
		defer conn.Close()
		b, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
		if err == nil && len(b) > maxAnswer {
			err = fmt.Errorf("irqbalance's answer has more than %d bytes", maxAnswer)
			_, _ = io.Copy(io.Discard, conn) // the error above is the one that counts
		}
		came <- answer{strings.TrimRight(string(b), "\x00"), err}
	}()
	select {
	case a := <-came:
		return a.text, a.err
	case <-ctx.Done():
		return "", fmt.Errorf("irqbalance does not answer: %w", ctx.Err())
	}
}

// identity tells this daemon from one that was started later.
func (c *Client) identity() string { return procs.ThreadKey(c.pid, c.start) }

// String names the daemon: "irqbalance 1.9.2 (pid 712)".
func (c *Client) String() string {
	s := "irqbalance"
	if v := c.version.String(); v != "" {
		s += " " + v
	} else {
		s += " of unknown version"
	}
	if c.pid != 0 {
		s += fmt.Sprintf(" (pid %d)", c.pid)
	}
	return s
}
