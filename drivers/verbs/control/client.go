package control

import (
	"bytes"
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
	"github.com/rdmatune/rdmatune/internal/peercred"
	"github.com/rdmatune/rdmatune/internal/printable"
)

const (
	maxReply = 16 << 20 // bytes of one answer
	maxError = 256      // bytes of what is said of a process that does not
)

// Reasons why a process is not asked.
var (
	errStopped = errors.New("it is stopped by a signal, and answers when it is continued")
	errNoTime  = errors.New("it was not asked: those before it took all the time")
)

// ask returns what the process behind a socket says, or nil where no live process
// is provably behind it. The wait for it ends with ctx.
func (d *dir) ask(ctx context.Context, s socket, u *user) *Process {
	p := s.process()
	said, err := d.answer(ctx, &p, u)
	if errors.Is(err, errImpostor) {
		return nil
	}
	if err != nil {
		p.Err = printable.Clip(err.Error(), maxError)
	} else {
		said.PID, said.Start, said.UID, said.socket = p.PID, p.Start, p.UID, p.socket
		p = *said
	}
	if err := p.describe(); err != nil {
		return nil // it ended meanwhile
	}
	return &p
}

// answer asks p and returns what it says.
func (d *dir) answer(ctx context.Context, p *Process, u *user) (*Process, error) {
	if ctx.Err() != nil {
		return nil, errNoTime
	}
	c, err := d.connect(ctx, p)
	if err != nil {
		return nil, err
	}
	if stopped(p.PID) {
		c.Close()
		return nil, errStopped
	}
	began := time.Now()
	status, body, err := exchange(ctx, u.count(c), http.MethodGet, "/v1/process", nil)
	if err != nil {
		return nil, inTime(err, began)
	}
	u.decoders <- struct{}{}
	defer func() { <-u.decoders }()
	if time.Now().After(u.until) {
		return nil, errNoTime
	}
	var said Process
	return &said, decode(status, body, &said)
}

// inTime says in place of a context's end how long an answer was waited for.
func inTime(err error, began time.Time) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", time.Since(began).Round(100*time.Millisecond))
	}
	return err
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
	cred, err := peercred.Of(c)
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
	status, b, err := exchange(ctx, c, method, path, body)
	if err != nil {
		return err
	}
	return decode(status, b, into)
}

// exchange makes one request on c, which it closes at the latest when ctx ends, and
// returns the whole answer. Whatever the peer does, it does not wait longer than ctx.
func exchange(ctx context.Context, c net.Conn, method, path string, body any) (status int, answer []byte, err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // what closed the connection says more than that it is closed
		}
	}()
	// net/http ends what it knows of with the request's context, and a connection that the
	// peer has taken over by a 101 is nothing of that.
	defer context.AfterFunc(ctx, func() { c.Close() })()
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
			return 0, nil, err
		}
		rd = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://transport"+path, rd)
	if err != nil {
		return 0, nil, err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK {
		return 0, nil, fmt.Errorf("answer %d: it is not a final one", resp.StatusCode)
	}
	var b bytes.Buffer
	switch n, err := b.ReadFrom(io.LimitReader(resp.Body, maxReply+1)); {
	case n > maxReply:
		return 0, nil, fmt.Errorf("answer: more than %d MiB", maxReply>>20)
	case err != nil:
		return 0, nil, fmt.Errorf("answer: %w", err)
	}
	return resp.StatusCode, b.Bytes(), nil
}

// decode decodes and checks an answer.
func decode(status int, answer []byte, into interface{ check() error }) error {
	if status != http.StatusOK {
		var p problem
		if err := json.Unmarshal(answer, &p); err != nil {
			return fmt.Errorf("answer %d: %w", status, err)
		}
		err := fmt.Errorf("answer %d: %s", status, printable.Clip(p.Error, maxText))
		if status == http.StatusConflict {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
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
	began := time.Now()
	if err := call(ctx, c, http.MethodPost, "/v1/order", o, &res); err != nil {
		if live, lerr := alive(p.PID, p.Start); lerr == nil && !live {
			return Result{}, fmt.Errorf("process %d: %w", p.PID, drivers.ErrGone)
		}
		return Result{}, fmt.Errorf("process %d: %w", p.PID, inTime(err, began))
	}
	return res, nil
}
