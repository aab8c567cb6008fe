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
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/printable"
)

const (
	maxReply = 16 << 20        // bytes of one answer
	readTime = 5 * time.Second // for one process to describe itself, also on a starved machine
	maxError = 256             // bytes of what is said of a process that does not
)

// ask returns what the process behind a socket says, or nil where no live process
// is provably behind it.
func (d *dir) ask(ctx context.Context, s socket, u *user) *Process {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	p := s.process()
	c, err := d.connect(ctx, &p)
	if errors.Is(err, errImpostor) {
		return nil
	}
	if err == nil {
		err = call(ctx, u.count(c), http.MethodGet, "/v1/process", nil, &p)
	}
	said := p
	p = s.process()
	if err != nil {
		p.Err = printable.Clip(err.Error(), maxError)
	} else {
		said.PID, said.Start, said.UID, said.socket = p.PID, p.Start, p.UID, p.socket
		p = said
	}
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
	limit := &io.LimitedReader{R: resp.Body, N: maxReply + 1}
	dec := json.NewDecoder(limit)
	if resp.StatusCode != http.StatusOK {
		var p problem
		if err := dec.Decode(&p); err != nil {
			return fmt.Errorf("answer %d: %w", resp.StatusCode, err)
		}
		err := fmt.Errorf("answer %d: %s", resp.StatusCode, printable.Clip(p.Error, maxText))
		if resp.StatusCode == http.StatusConflict {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return err
	}
	switch err := cmp.Or(dec.Decode(into), ctx.Err()); {
	case limit.N <= 0:
		return fmt.Errorf("answer: more than %d MiB", maxReply>>20)
	case err != nil:
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
