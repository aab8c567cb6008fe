package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
)

const (
	maxSockets = 4096
	maxReply   = 64 << 20
	readTime   = 2 * time.Second  // for one process to describe itself
	listTime   = 10 * time.Second // for all
	listers    = 8                // asked at one time
)

// List returns the live transport processes of runDir by ascending pid, one entry
// for each transport. Sockets of processes that are gone are removed where this
// user may, and ignored. A process that does not answer, or answers what it must
// not, is listed with Err. A run directory without sockets is an empty list.
func List(ctx context.Context, runDir string) ([]Process, error) {
	return list(ctx, runDir, 0)
}

// list is List for one pid, or all when it is 0.
func list(ctx context.Context, runDir string, pid int) ([]Process, error) {
	d, err := openDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.f.Close()
	entries, err := d.f.Readdirnames(maxSockets + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(entries) > maxSockets {
		return nil, fmt.Errorf("%s: more than %d entries", d.path, maxSockets)
	}
	slices.Sort(entries)
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	found := make([]*Process, len(entries))
	sem := make(chan struct{}, listers)
	var wg sync.WaitGroup
	for i, name := range entries {
		p, start, ok := parseSocketName(name)
		if !ok || pid != 0 && p != pid {
			continue
		}
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			found[i] = d.ask(ctx, name, p, start)
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	out := []Process{}
	for _, p := range found {
		if p != nil {
			out = append(out, *p)
		}
	}
	slices.SortStableFunc(out, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return out, nil
}

// ask returns what the process behind a socket says, or nil where no live process
// is provably behind it.
func (d *dir) ask(ctx context.Context, name string, pid int, start uint64) *Process {
	owner, err := d.owner(name)
	if err != nil {
		return nil
	}
	live, err := alive(pid, start)
	if err != nil {
		return nil
	}
	if !live {
		if os.Geteuid() == 0 || int(owner) == os.Geteuid() {
			d.remove(name) // another lister may have been faster
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	p := Process{PID: pid, Start: start, UID: owner, socket: name}
	c, err := d.connect(ctx, &p)
	if err != nil {
		if errors.Is(err, errImpostor) {
			return nil
		}
		p.Err = err.Error()
	} else if err := call(ctx, c, http.MethodGet, "/v1/process", nil, &p); err != nil {
		p = Process{PID: pid, Start: start, UID: owner, socket: name, Err: printable(err.Error())}
	}
	p.PID, p.Start, p.UID, p.socket = pid, start, owner, name
	if err := p.describe(); err != nil {
		return nil // it ended meanwhile
	}
	return &p
}

// errImpostor is a socket that is not served by the process that its name says.
var errImpostor = errors.New("served by another process")

// connect connects to p's socket and verifies that p is behind it.
func (d *dir) connect(ctx context.Context, p *Process) (net.Conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", d.sock(p.socket))
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.PID, err)
	}
	cred, err := peerCred(c)
	if err == nil && (int(cred.Pid) != p.PID || cred.Uid != p.UID) {
		err = errImpostor
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("process %d: %w", p.PID, err)
	}
	return c, nil
}

// call makes one request on c, which it closes, and decodes and checks the answer.
func call(ctx context.Context, c net.Conn, method, path string, body any, into interface{ check() error }) error {
	used := false
	tr := &http.Transport{
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 16 << 10,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if used {
				return nil, errors.New("connection lost")
			}
			used = true
			return c, nil
		},
	}
	defer c.Close()
	var rd io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		rd = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://transport"+path, rd)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode != http.StatusOK {
		var p problem
		if err := dec.Decode(&p); err != nil {
			return fmt.Errorf("answer %d: %w", resp.StatusCode, err)
		}
		err := fmt.Errorf("answer %d: %.*s", resp.StatusCode, maxText, printable(p.Error))
		if resp.StatusCode == http.StatusConflict {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return err
	}
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return into.check()
}

// send gives an order to p's transport and waits for the result.
func send(ctx context.Context, runDir string, p *Process, o Order) (Result, error) {
	d, err := openDir(runDir)
	if err != nil {
		return Result{}, err
	}
	defer d.f.Close()
	c, err := d.connect(ctx, p)
	if err != nil {
		if live, lerr := alive(p.PID, p.Start); lerr == nil && !live || errors.Is(err, os.ErrNotExist) {
			return Result{}, fmt.Errorf("process %d: %w", p.PID, drivers.ErrGone)
		}
		return Result{}, err
	}
	var res Result
	if err := call(ctx, c, http.MethodPost, "/v1/order", o, &res); err != nil {
		if live, lerr := alive(p.PID, p.Start); lerr == nil && !live {
			return Result{}, fmt.Errorf("process %d: %w", p.PID, drivers.ErrGone)
		}
		return Result{}, fmt.Errorf("process %d: %w", p.PID, err)
	}
	return res, nil
}
