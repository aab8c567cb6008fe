package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// native is the byte order of netlink: the machine's own.
var native = binary.NativeEndian

// Sizes of netlink's headers.
const (
	messageHeader   = unix.NLMSG_HDRLEN
	attributeHeader = unix.SizeofRtAttr
)

// maxMessage is more than the kernel puts into one datagram that it was not asked a larger
// one for.
const maxMessage = 64 << 10

// A socket is a netlink socket on which the kernel tells of a source.
type socket struct {
	q      *queue
	source Source
	f      *os.File
	conn   syscall.RawConn
	buf    []byte
	oob    []byte // for the sender's credentials, which the source asked for; else empty
	// handle gets each datagram of the kernel.
	handle func(b []byte)
	// overrun, where not nil, is called when the kernel had to drop some.
	overrun func()
	// before, where not nil, is called before the socket is closed.
	before func()
	gather time.Duration // gatherKernel, if the source has not its own
}

// listen opens a socket of a netlink protocol, with membership of the groups of the bit
// mask, and with room for bytes that the source has not read yet.
func (w *Watcher) listen(s Source, protocol int, groups uint32, room int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("netlink protocol %d: %w", protocol, err)
	}
	// Beyond the system's limit with the right to, up to it without.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room) // a small buffer is told of when it overflows
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink protocol %d: bind: %w", protocol, err)
	}
	f := os.NewFile(uintptr(fd), string(s))
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &socket{q: w.q, source: s, f: f, conn: conn, gather: gatherKernel, buf: make([]byte, maxMessage)}, nil
}

// send sends b to the kernel.
func (s *socket) send(b []byte) error {
	var sent error
	err := s.conn.Control(func(fd uintptr) {
		sent = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	return errors.Join(err, sent)
}

// set sets an option of the socket.
func (s *socket) set(level, option, value int) error {
	var set error
	err := s.conn.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, set)
}

func (s *socket) close() error {
	if s.before != nil {
		s.before()
	}
	return s.f.Close()
}

// run gives handle what the kernel says, until the socket is closed.
func (s *socket) run(stop <-chan struct{}) error {
	for {
		var failed error
		err := s.conn.Read(func(fd uintptr) (done bool) {
			done, failed = s.drain(int(fd))
			return done || failed != nil
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		pause(s.gather, stop)
	}
}

// drain reads until nothing is left, and returns whether there was something.
func (s *socket) drain(fd int) (some bool, err error) {
	for range maxWaiting { // so that a storm does not keep it from being closed
		n, oobn, flags, from, err := unix.Recvmsg(fd, s.buf, s.oob, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return some, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			s.lost()
			some = true
			continue
		case err != nil:
			return some, fmt.Errorf("receive: %w", err)
		}
		some = true
		if !kernelSent(from) || len(s.oob) > 0 && !rootSent(s.oob[:oobn]) {
			continue
		}
		if flags&unix.MSG_TRUNC != 0 {
			s.lost()
			continue
		}
		s.handle(s.buf[:n])
	}
	return some, nil
}

func (s *socket) lost() {
	s.q.drop(s.source)
	if s.overrun != nil {
		s.overrun()
	}
}

// kernelSent is whether a datagram is the kernel's: another process that may send to the
// group has a port other than 0.
func kernelSent(from unix.Sockaddr) bool {
	a, ok := from.(*unix.SockaddrNetlink)
	return ok && a.Pid == 0
}

// rootSent is whether the credentials that came along are the kernel's: no process, root.
func rootSent(oob []byte) bool {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return false
	}
	for i := range messages {
		if c, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return c.Pid == 0 && c.Uid == 0
		}
	}
	return false
}

// A header is what is used of a netlink message's.
type header struct {
	typ, flags uint16
}

// messages walks the netlink messages of a datagram, and ends at one that is not whole.
func messages(b []byte) iter.Seq2[header, []byte] {
	return func(yield func(header, []byte) bool) {
		for len(b) >= messageHeader {
			size := native.Uint32(b)
			if size < messageHeader || uint64(size) > uint64(len(b)) {
				return
			}
			if !yield(header{native.Uint16(b[4:]), native.Uint16(b[6:])}, b[messageHeader:size]) {
				return
			}
			b = b[min((int(size)+3)&^3, len(b)):]
		}
	}
}

// attribute returns the value of the first attribute of a type in a row of them, nil when
// there is none.
func attribute(b []byte, typ uint16) []byte {
	for len(b) >= attributeHeader {
		size := int(native.Uint16(b))
		if size < attributeHeader || size > len(b) {
			return nil
		}
		if native.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == typ {
			return b[attributeHeader:size]
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}
