package sysfs

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host returns the running machine's own tree.
func Host() FS { return FS{b: host{}} }

type host struct{}

// chunk is the size of the first read: a sysfs attribute is at most one page, which
// is 64 KiB on some arm64 and ppc64 kernels.
const chunk = 64 << 10

// read takes what one read(2) gives where that is all: a sysfs attribute is a
// snapshot, and reading on at an offset would make the kernel format it again. A
// read that fills a page is taken up, since binary attributes come a page at a time.
func (host) read(name string) ([]byte, error) {
	fd, err := openRetry(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	defer unix.Close(fd)
	oneRead := strings.HasPrefix(name, "/sys/")
	page := os.Getpagesize()
	var content bytes.Buffer
	buf := make([]byte, chunk)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, pathError("read", name, err)
		}
		content.Write(buf[:n])
		if content.Len() > MaxFile {
			return nil, pathError("read", name, unix.EFBIG)
		}
		if n == 0 || oneRead && n%page != 0 {
			return content.Bytes(), nil
		}
	}
}

// write is for kernel files alone: anything else on the machine is out of bounds,
// whatever a caller computed.
func (host) write(name string, value []byte) error {
	if !strings.HasPrefix(name, "/sys/") && !strings.HasPrefix(name, "/proc/") {
		return pathError("write", name, unix.EPERM)
	}
	fd, err := openRetry(name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return pathError("open", name, err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Write(fd, value)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return pathError("write", name, err)
		case n != len(value):
			return pathError("write", name, io.ErrShortWrite)
		}
		return nil
	}
}

func openRetry(name string, flags int) (int, error) {
	for {
		fd, err := unix.Open(name, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (host) list(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (host) readlink(name string) (string, error) { return os.Readlink(name) }

func (host) stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Mode: info.Mode(), Ident: inode(info)}, nil
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

func (host) realpath(name string) (string, error) { return filepath.EvalSymlinks(name) }

func (host) close() error { return nil }
