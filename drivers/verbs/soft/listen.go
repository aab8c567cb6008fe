package soft

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

const (
	handshakeTime = 10 * time.Second
	maxHandshakes = 64 // at one time
)

// A greeting opens a data connection: magic, destination, source and PSN.
const (
	greetingMagic = 0x52545333 // "RTS3": its last byte is the version of the frames
	greetingLen   = 16
)

type greeting struct {
	dst, src, psn uint32
}

func (g greeting) encode() []byte {
	b := make([]byte, greetingLen)
	binary.BigEndian.PutUint32(b, greetingMagic)
	binary.BigEndian.PutUint32(b[4:], g.dst)
	binary.BigEndian.PutUint32(b[8:], g.src)
	binary.BigEndian.PutUint32(b[12:], g.psn)
	return b
}

func decodeGreeting(b []byte) (greeting, bool) {
	if len(b) != greetingLen || binary.BigEndian.Uint32(b) != greetingMagic {
		return greeting{}, false
	}
	g := greeting{binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
	return g, g.dst < 1<<24 && g.src < 1<<24 && g.psn < 1<<24
}

// A listener accepts the data connections of all queue pairs on one address.
type listener struct {
	dev  *device
	ln   net.Listener
	sem  chan struct{}
	done chan struct{}
	wg   sync.WaitGroup
}

// listen returns the TCP port that the device listens on at addr.
func (d *device) listen(addr netip.Addr) (uint16, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, fmt.Errorf("%s: closed: %w", d.name, syscall.ENODEV)
	}
	l := d.listeners[addr]
	if l == nil {
		ln, err := net.Listen("tcp4", netip.AddrPortFrom(addr, 0).String())
		if err != nil {
			return 0, fmt.Errorf("%s: %w", d.name, err)
		}
		l = &listener{dev: d, ln: ln, sem: make(chan struct{}, maxHandshakes), done: make(chan struct{})}
		d.listeners[addr] = l
		l.wg.Go(l.loop)
	}
	ap, ok := netip.AddrFromSlice(l.ln.Addr().(*net.TCPAddr).IP)
	if !ok || ap.Unmap() != addr {
		return 0, fmt.Errorf("%s: listens on %s, not on %s: %w", d.name, l.ln.Addr(), addr, syscall.EADDRNOTAVAIL)
	}
	return uint16(l.ln.Addr().(*net.TCPAddr).Port), nil
}

func (l *listener) close() {
	close(l.done)
	l.ln.Close()
	l.wg.Wait()
}

func (l *listener) loop() {
	for {
		select {
		case l.sem <- struct{}{}:
		case <-l.done:
			return
		}
		c, err := l.ln.Accept()
		if err != nil {
			select {
			case <-l.done:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors: others may close some
			}
			<-l.sem
			continue
		}
		l.wg.Go(func() {
			defer func() { <-l.sem }()
			if !l.greet(c) {
				c.Close()
			}
		})
	}
}

// greet hands c to the queue pair that its greeting names, once that is connected.
func (l *listener) greet(c net.Conn) bool {
	var b [greetingLen]byte
	c.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return false
	}
	g, ok := decodeGreeting(b[:])
	if !ok {
		return false
	}
	l.dev.mu.Lock()
	q := l.dev.qps[g.dst]
	l.dev.mu.Unlock()
	if q == nil {
		return false
	}
	t := time.NewTimer(handshakeTime)
	defer t.Stop()
	select {
	case <-q.connected:
	case <-q.failed:
		return false
	case <-l.done:
		return false
	case <-t.C:
		return false
	}
	c.SetDeadline(time.Time{})
	return q.attach(c, g)
}

// dial opens the data connection to the queue pair at remote.
func dial(local, remote verbs.Endpoint) (net.Conn, error) {
	to, ok := remote.GID.IPv4()
	if !ok || remote.Service == 0 {
		return nil, fmt.Errorf("peer %s has no TCP endpoint: %w", remote.GID, syscall.EINVAL)
	}
	from, _ := local.GID.IPv4()
	d := net.Dialer{Timeout: handshakeTime, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	c, err := d.Dial("tcp4", netip.AddrPortFrom(to, remote.Service).String())
	if err != nil {
		return nil, err
	}
	c.SetWriteDeadline(time.Now().Add(handshakeTime))
	if _, err := c.Write(greeting{dst: remote.QPN, src: local.QPN, psn: local.PSN}.encode()); err != nil {
		c.Close()
		return nil, err
	}
	c.SetWriteDeadline(time.Time{})
	return c, nil
}
