package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	helloTime   = 10 * time.Second // for a whole hello
	maxHellos   = 64               // under way at one listener
	maxAccepted = 128              // connections that wait for Accept
	firstEpoch  = 1
)

// A Listener accepts connections.
type Listener struct {
	t      *Transport
	lns    []net.Listener
	ready  chan *Conn
	sem    chan struct{}
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// Listen announces on addrs ("host:port", TCP, for the hello). A port of 0 in the
// first picks one that the others with port 0 share.
func (t *Transport) Listen(ctx context.Context, addrs ...string) (*Listener, error) {
	if len(addrs) == 0 {
		return nil, errors.New("listen: no address")
	}
	hctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Listener{t: t, ready: make(chan *Conn, maxAccepted), sem: make(chan struct{}, maxHellos), done: make(chan struct{}), cancel: cancel}
	shared := ""
	for _, a := range addrs {
		host, p, err := net.SplitHostPort(a)
		if err == nil && p == "0" && shared != "" {
			a = net.JoinHostPort(host, shared)
		}
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", a)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.lns = append(l.lns, ln)
		if shared == "" {
			if _, shared, err = net.SplitHostPort(ln.Addr().String()); err != nil {
				l.Close()
				return nil, err
			}
		}
	}
	t.mu.Lock()
	closed := t.closed
	t.listeners[l] = true
	t.mu.Unlock()
	if closed {
		l.Close()
		return nil, ErrClosed
	}
	for _, ln := range l.lns {
		l.wg.Go(func() { l.loop(hctx, ln) })
	}
	return l, nil
}

// Addr returns the first address listened on.
func (l *Listener) Addr() net.Addr { return l.lns[0].Addr() }

// Accept returns the next connection. After the listener's Close the error is ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, ErrClosed
	}
}

// Close stops listening and closes connections that nobody accepted; accepted ones
// stay.
func (l *Listener) Close() error {
	var errs []error
	l.once.Do(func() {
		close(l.done)
		l.cancel()
		for _, ln := range l.lns {
			errs = append(errs, ln.Close())
		}
		l.wg.Wait()
		l.t.mu.Lock()
		delete(l.t.listeners, l)
		l.t.mu.Unlock()
		close(l.ready)
		for c := range l.ready {
			c.Close() // nothing was sent on it
		}
	})
	return errors.Join(errs...)
}

func (l *Listener) loop(ctx context.Context, ln net.Listener) {
	for {
		select {
		case l.sem <- struct{}{}:
		case <-l.done:
			return
		}
		tcp, err := ln.Accept()
		if err != nil {
			<-l.sem
			select {
			case <-l.done:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors: some may be closed meanwhile
			}
			continue
		}
		l.wg.Go(func() {
			defer func() { <-l.sem }()
			c, err := l.t.answer(ctx, tcp)
			if err != nil {
				l.t.log.Warn("hello", "peer", tcp.RemoteAddr().String(), "err", err)
				return
			}
			select {
			case l.ready <- c:
			case <-l.done:
				c.Close() // nothing was sent on it
			}
		})
	}
}

// greeting prepares a control channel for its hello; the returned function ends
// the hello's time limit.
func (t *Transport) greeting(ctx context.Context, tcp net.Conn) (func() bool, error) {
	if err := keepAlive(tcp.(*net.TCPConn), t.deadTime); err != nil {
		return nil, fmt.Errorf("keep-alive: %w", err)
	}
	if err := tcp.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { tcp.SetDeadline(time.Unix(1, 0)) }), nil
}

// Dial connects to a Listener's address. It returns when the other end has its lanes, which
// may be before its program accepts; a host that does not answer ends it after 10 seconds.
func (t *Transport) Dial(ctx context.Context, addr string) (*Conn, error) {
	return t.dialAs(ctx, addr, nil)
}

// dialAs connects to addr, with a connection that follows fixed if that is not nil.
func (t *Transport) dialAs(ctx context.Context, addr string, fixed *Settings) (*Conn, error) {
	var d net.Dialer
	tcp, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c, err := t.dial(ctx, tcp, fixed)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return c, nil
}

func (t *Transport) dial(ctx context.Context, tcp net.Conn, fixed *Settings) (*Conn, error) {
	return t.hello(ctx, tcp, true, func(c *Conn) error {
		c.fixed = fixed
		f := c.follow()
		c.generation = f.generation
		err := writeControl(tcp, c.wants(&controlMsg{Type: msgHello, Version: wireVersion, Provider: t.provider, Mirror: fixed}, &f))
		if err != nil {
			return err
		}
		m, err := expect(tcp, msgAccept)
		if err != nil {
			return err
		}
		if err := c.firstLanes(f, m); err != nil {
			return err
		}
		if err := c.joinFirst(m); err != nil {
			return err
		}
		err = writeControl(tcp, &controlMsg{Type: msgConnect, Epoch: firstEpoch, Lanes: c.cur.describe(t.mtu)})
		if err != nil {
			return err
		}
		_, err = expect(tcp, msgReady)
		return err
	})
}

// answer is the accepting end's part of a hello.
func (t *Transport) answer(ctx context.Context, tcp net.Conn) (*Conn, error) {
	return t.hello(ctx, tcp, false, func(c *Conn) error {
		m, err := expect(tcp, msgHello)
		if err != nil {
			return err
		}
		if m.Version != wireVersion || m.Provider != t.provider {
			why := fmt.Sprintf("unsupported: version %d of provider %s here", wireVersion, t.provider)
			return errors.Join(writeControl(tcp, &controlMsg{Type: msgRefuse, Reason: why}),
				fmt.Errorf("version %d of provider %q: %w", m.Version, m.Provider, errors.ErrUnsupported))
		}
		c.fix(m)
		f := c.follow()
		c.generation = f.generation
		if err := c.firstLanes(f, m); err != nil {
			return errors.Join(writeControl(tcp, &controlMsg{Type: msgRefuse, Reason: err.Error()}), err)
		}
		err = writeControl(tcp, c.wants(&controlMsg{Type: msgAccept, Epoch: firstEpoch, Lanes: c.cur.describe(t.mtu)}, &f))
		if err != nil {
			return err
		}
		if m, err = expect(tcp, msgConnect); err != nil {
			return err
		}
		if err := c.joinFirst(m); err != nil {
			return err
		}
		return writeControl(tcp, &controlMsg{Type: msgReady, Epoch: firstEpoch})
	})
}

// hello runs talk on a new connection and starts it, or gives everything back.
func (t *Transport) hello(ctx context.Context, tcp net.Conn, dialed bool, talk func(*Conn) error) (*Conn, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		tcp.Close()
		return nil, ErrClosed
	}
	t.hellos.Add(1)
	t.mu.Unlock()
	defer t.hellos.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closing, func() { cancel(ErrClosed) })()
	stop, err := t.greeting(ctx, tcp)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	gid, err := t.pickGID(tcp.LocalAddr())
	if err != nil {
		tcp.Close()
		return nil, err
	}
	c := t.newConn(tcp, dialed, gid)
	err = talk(c)
	if !stop() {
		err = context.Cause(ctx)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no hello within %v: %w", helloTime, err)
	}
	if err == nil {
		if err = tcp.SetDeadline(time.Time{}); err == nil {
			err = t.enlist(c)
		}
	}
	if err != nil {
		tcp.Close()
		if c.cur != nil {
			err = errors.Join(err, c.cur.destroy())
		}
		return nil, err
	}
	c.start()
	return c, nil
}

// firstLanes makes the first lanes.
func (c *Conn) firstLanes(f follow, m *controlMsg) error {
	s, err := c.newSet(firstEpoch, f, m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.cur = s
	c.mu.Unlock()
	return nil
}

// joinFirst connects them.
func (c *Conn) joinFirst(m *controlMsg) error {
	if err := c.connect(c.cur, m.Lanes); err != nil {
		return err
	}
	c.mu.Lock()
	c.install(c.cur)
	c.mu.Unlock()
	return nil
}

// expect reads the one message that may come now, or a refusal.
func expect(tcp net.Conn, typ controlType) (*controlMsg, error) {
	m, err := readControl(tcp)
	switch {
	case err != nil:
		return nil, err
	case m.Type == msgRefuse:
		return nil, fmt.Errorf("%w: %s", ErrRefused, m.Reason)
	case m.Type != typ:
		return nil, fmt.Errorf("%s instead of %s: %w", m.Type, typ, ErrProtocol)
	}
	return m, nil
}
