package control

import (
	"net"
	"os"
	"sync"

	"github.com/rdmatune/rdmatune/internal/peercred"
)

const (
	maxClients   = 64 // connections at one time
	maxStrangers = 32 // of these by users who may only read
)

// limited is a listener that has a bounded number of connections open and keeps
// room for root and the process's own user. What is too much is closed at once.
type limited struct {
	net.Listener
	mu        sync.Mutex
	clients   int // guarded by mu
	strangers int // guarded by mu
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cred, err := peercred.Of(c)
		if err != nil {
			c.Close()
			continue
		}
		stranger := cred.Uid != 0 && int(cred.Uid) != os.Geteuid()
		if !l.admit(stranger) {
			c.Close()
			continue
		}
		return &limitedConn{UnixConn: c.(*net.UnixConn), l: l, stranger: stranger}, nil
	}
}

func (l *limited) admit(stranger bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == maxClients || stranger && l.strangers == maxStrangers {
		return false
	}
	l.count(stranger, 1)
	return true
}

// count adds n connections. Caller holds mu.
func (l *limited) count(stranger bool, n int) {
	l.clients += n
	if stranger {
		l.strangers += n
	}
}

// limitedConn gives its place back when it is closed.
type limitedConn struct {
	*net.UnixConn
	l        *limited
	stranger bool
	once     sync.Once
}

func (c *limitedConn) Close() error {
	err := c.UnixConn.Close()
	c.once.Do(func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.l.count(c.stranger, -1)
	})
	return err
}
