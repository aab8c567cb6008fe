package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
)

// Bounds of one look at a run directory. Every user may create files there: what one
// of them does with it must cost the others neither their place nor the time. A process
// that accepts and says nothing costs a descriptor and a place until the time is over,
// so many may be waited for at once; few answers are decoded at once, since that takes
// memory.
const (
	maxNames     = 1 << 17
	batch        = 1024             // names read at one time
	listTime     = 10 * time.Second // for all of it
	readTime     = 5 * time.Second  // of that to wait for answers, also on a starved machine
	users        = 16               // asked at one time
	listers      = 512              // sockets of root's and this user's, asked at one time
	decoders     = 4                // answers decoded at one time
	trustedBytes = 512 << 20        // answers of all sockets of root or of this user
	userTime     = 3 * time.Second  // for all sockets of one user that is neither
	userListers  = 128              // sockets of such a user, asked at one time
	userCount    = 256              // sockets of such a user
	userBytes    = 64 << 20         // answers of such a user
)

// List returns the live transport processes of runDir by ascending pid, one entry
// for each transport. Sockets of processes that are gone are removed where this
// user may, and ignored. A process that does not answer, or answers what it must
// not, is listed with Err, once; so is what was left out because a user has too many
// sockets, and, with no PID, that the directory has too many names. A run directory
// without sockets is an empty list. However many do not answer, they cost one wait of 5 s;
// within one look (drivers.Look) all are asked one time.
func List(ctx context.Context, runDir string) ([]Process, error) {
	ps, err := drivers.Once(ctx, listKey(runDir), func() ([]Process, error) { return list(ctx, runDir, 0) })
	return slices.Clone(ps), err
}

// listKey is a run directory whose processes a look has listed.
type listKey string

// list is List for one pid, or all when it is 0; of one it says nothing that was
// left out.
func list(ctx context.Context, runDir string, pid int) ([]Process, error) {
	d, err := openDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.f.Close()
	sockets, whole, err := d.scan(ctx, pid, maxNames)
	if err != nil {
		return nil, err
	}
	out := d.askAll(ctx, sockets)
	// Running out of time is said of each process; being told to stop is an error.
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	if pid != 0 {
		return slices.DeleteFunc(out, func(p Process) bool { return p.left }), nil
	}
	if !whole {
		out = slices.Insert(out, 0, Process{left: true, Err: fmt.Sprintf("%s: more than %d names: what is behind the others is not known", d.path, maxNames)})
	}
	return out, nil
}

// A socket is one name of the directory, of a live process.
type socket struct {
	name  string
	pid   int
	start uint64
	uid   uint32 // owner of the file
}

func (s socket) process() Process {
	return Process{PID: s.pid, Start: s.start, UID: s.uid, socket: s.name}
}

// scan returns the sockets of live processes by owner, of one process or of all when
// pid is 0; whole is false when there are more than most names, about. What has the
// name of a socket and is none, or not one of the process that its name says, is
// removed where this user may: root all, others their own sockets.
func (d *dir) scan(ctx context.Context, pid, most int) (byUser map[uint32][]socket, whole bool, err error) {
	type incarnation struct {
		pid   int
		start uint64
	}
	byUser = map[uint32][]socket{}
	owners := map[incarnation][]uint32{} // whose sockets are theirs; nobody's when dead
	for seen := 0; seen < most; {
		names, err := d.f.Readdirnames(min(batch, most))
		if err == io.EOF {
			return byUser, true, nil
		}
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			return nil, false, err
		}
		seen += len(names)
		for _, name := range names {
			p, start, ok := parseSocketName(name)
			if !ok || pid != 0 && p != pid {
				continue
			}
			key := incarnation{p, start}
			who, known := owners[key]
			if !known {
				if who, err = creators(p, start); err != nil {
					continue // it cannot be told
				}
				owners[key] = who
			}
			owner, err := d.owner(name)
			switch {
			case err == nil && slices.Contains(who, owner):
				byUser[owner] = append(byUser[owner], socket{name, p, start, owner})
			case os.Geteuid() == 0 && (err == nil || errors.Is(err, errNoSocket)), err == nil && int(owner) == os.Geteuid():
				d.remove(name) // another lister may have been faster
			}
		}
	}
	return byUser, false, nil
}

// creators returns the users who may have made a socket of the process pid that
// started at start: its own, and root, as which it may have begun. A process that is
// gone has none.
func creators(pid int, start uint64) ([]uint32, error) {
	live, err := alive(pid, start)
	if err != nil || !live {
		return nil, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errNoProcess) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(parseUIDs(status), 0), nil
}

// parseUIDs returns the real, effective, saved and file system user of a status file
// (proc_pid_status(5)).
func parseUIDs(status []byte) []uint32 {
	var out []uint32
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if !ok {
			continue
		}
		for _, f := range bytes.Fields(rest) {
			if uid, err := strconv.ParseUint(string(f), 10, 32); err == nil {
				out = append(out, uint32(uid))
			}
		}
		break
	}
	return out
}

// askAll asks the sockets of all users, some users at one time.
func (d *dir) askAll(ctx context.Context, byUser map[uint32][]socket) []Process {
	until := time.Now().Add(listTime)
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var mu sync.Mutex
	out := []Process{} // guarded by mu
	var wg sync.WaitGroup
	sem, gate := make(chan struct{}, users), make(chan struct{}, decoders)
	for _, uid := range slices.Sorted(maps.Keys(byUser)) { // root's own first
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			found := d.askUser(ctx, uid, byUser[uid], &user{until: until, decoders: gate, bytes: trustedBytes})
			mu.Lock()
			defer mu.Unlock()
			out = append(out, found...)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b Process) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.socket, b.socket)) })
	return once(out)
}

// askUser asks the sockets of one user, and says which process it left out.
func (d *dir) askUser(ctx context.Context, uid uint32, sockets []socket, u *user) []Process {
	slices.SortFunc(sockets, func(a, b socket) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.name, b.name)) })
	at := listers
	var left []socket
	if uid != 0 && int(uid) != os.Geteuid() {
		at, u.bytes = userListers, userBytes
		left = sockets[min(len(sockets), userCount):]
		sockets = sockets[:len(sockets)-len(left)]
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, userTime)
		defer cancel()
	}
	found := make([]*Process, len(sockets))
	sem := make(chan struct{}, at)
	var wg sync.WaitGroup
	for i, s := range sockets {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			found[i] = d.ask(ctx, s, u)
		})
	}
	wg.Wait()
	var out []Process
	for _, p := range found {
		if p != nil {
			out = append(out, *p)
		}
	}
	if len(left) > 0 {
		p := left[0].process()
		if p.describe() == nil {
			p.left, p.Err = true, fmt.Sprintf("user %d has %d sockets; only the first %d were asked", uid, len(left)+userCount, userCount)
			out = append(out, p)
		}
	}
	return out
}

// once drops entries that say of a process again that it does not answer: one process
// may have any number of sockets.
func once(ps []Process) []Process {
	silent := map[int]bool{}
	return slices.DeleteFunc(ps, func(p Process) bool {
		if p.Err == "" || p.left {
			return false
		}
		again := silent[p.PID]
		silent[p.PID] = true
		return again
	})
}

// A user is what one user's answers may cost and have cost.
type user struct {
	until    time.Time     // when answers that are not decoded yet are given up
	decoders chan struct{} // places, shared by all users
	bytes    int64         // at most
	read     atomic.Int64
}

// count charges what is read from c to u.
func (u *user) count(c net.Conn) net.Conn { return &counted{c, u} }

// counted ends when its user has had too much.
type counted struct {
	net.Conn
	user *user
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.user.read.Add(int64(n)) > c.user.bytes {
		return 0, fmt.Errorf("the answers of its user are more than %d MiB", c.user.bytes>>20)
	}
	return n, err
}
