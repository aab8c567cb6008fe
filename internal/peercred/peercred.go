// Package peercred tells who is at the other end of a Unix socket.
package peercred

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the process and user at the other end of conn, a Unix socket: who listened
// there, or who connected, at that time.
func Of(conn net.Conn) (*unix.Ucred, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("peer credentials: not a socket")
	}
	var cred *unix.Ucred
	var asked error
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	}
	if err = errors.Join(err, asked); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}
