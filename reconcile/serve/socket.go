package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/peercred"
)

// socketMode lets root and root's group ask.
const socketMode = 0o660

// A socket is a Unix socket in the file system.
type socket struct {
	listener *net.UnixListener
	path     string
	ino      uint64
}

// listenUnix makes a socket at path. It is bound in a directory of its own and moved into
// place with its mode set, so that nobody meets it with another.
func listenUnix(path string) (*socket, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := clear(path); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(dir, ".listen-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp) // empty by then, or of a failure that is returned
	var l *net.UnixListener
	err = at(tmp, func(dir string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: dir + "/s"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // it would remove the name that it was bound by
	s := &socket{listener: l, path: path}
	var st unix.Stat_t
	bound := filepath.Join(tmp, "s")
	err = errors.Join(os.Chmod(bound, socketMode), unix.Lstat(bound, &st))
	if err == nil {
		s.ino = st.Ino
		err = os.Rename(bound, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return s, nil
}

// clear makes sure that nothing of value is at path, and nobody behind it. The next step
// replaces what is there.
func clear(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("socket %s: something else is there", path)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("socket %s: it belongs to user %d", path, st.Uid)
	}
	conn, err := dialUnix(path)
	if err == nil {
		pid := 0
		if peer, err := peercred.Of(conn); err == nil {
			pid = int(peer.Pid)
		}
		return errors.Join(fmt.Errorf("socket %s: a daemon answers there already (pid %d)", path, pid), conn.Close())
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("socket %s: %w", path, err)
}

// remove removes the socket's name, unless another has it by now. Its listener is closed
// with the server.
func (s *socket) remove() error {
	var st unix.Stat_t
	if unix.Lstat(s.path, &st) != nil || st.Ino != s.ino {
		return nil
	}
	return os.Remove(s.path)
}

// at calls do with a short name of dir: the address of a Unix socket holds 107 bytes.
func at(dir string, do func(dir string) error) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	return do(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// dialUnix connects to the socket at path.
func dialUnix(path string) (conn *net.UnixConn, err error) {
	err = at(filepath.Dir(path), func(dir string) (err error) {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: dir + "/" + filepath.Base(path)})
		return err
	})
	return conn, err
}
