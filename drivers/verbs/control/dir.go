package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// errNoProcess is what reading /proc/PID of a process that just ended gives.
var errNoProcess error = unix.ESRCH

const socketsDir = "transports"

// socketName is PID-START.sock, with a number for a process's further transports.
var socketName = regexp.MustCompile(`^([1-9][0-9]{0,9})-([0-9]{1,20})(?:-[0-9]{1,6})?\.sock$`)

func parseSocketName(name string) (pid int, start uint64, ok bool) {
	m := socketName.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	p, err1 := strconv.ParseInt(m[1], 10, 32)
	s, err2 := strconv.ParseUint(m[2], 10, 64)
	return int(p), s, err1 == nil && err2 == nil
}

// A dir is an open directory of sockets.
type dir struct {
	f    *os.File
	path string
}

// openDir opens RUN/transports without following a link there. What strangers
// could replace behind our back is refused: the directory must be root's or our
// own, and sticky where others may write.
func openDir(runDir string) (*dir, error) {
	path := filepath.Join(runDir, socketsDir)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &dir{os.NewFile(uintptr(fd), path), path}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		d.f.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		d.f.Close()
		return nil, fmt.Errorf("%s: belongs to user %d", path, st.Uid)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		d.f.Close()
		return nil, fmt.Errorf("%s: others may write and it is not sticky", path)
	}
	return d, nil
}

// makeDir is openDir, creating the directory where it is missing. Root makes it
// sticky for all users' processes.
func makeDir(runDir string) (*dir, error) {
	path := filepath.Join(runDir, socketsDir)
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	mode := os.FileMode(0o755)
	if os.Geteuid() == 0 {
		mode = 0o777 | os.ModeSticky
	}
	err := os.Mkdir(path, 0o755)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	d, oerr := openDir(runDir)
	if oerr != nil {
		return nil, oerr
	}
	if err == nil {
		if err := d.f.Chmod(mode); err != nil {
			d.f.Close()
			return nil, err
		}
	}
	return d, nil
}

// sock returns a path to name that is short whatever the directory's is: the
// address of a Unix socket holds 107 bytes.
func (d *dir) sock(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.f.Fd(), name)
}

// errNoSocket is a name that a socket should have and something else has.
var errNoSocket = errors.New("not a socket")

// owner returns the owner of the socket called name; anything but a socket is errNoSocket.
func (d *dir) owner(name string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, &os.PathError{Op: "stat", Path: filepath.Join(d.path, name), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0, fmt.Errorf("%s: %w", filepath.Join(d.path, name), errNoSocket)
	}
	return st.Uid, nil
}

func (d *dir) remove(name string) error {
	if err := unix.Unlinkat(int(d.f.Fd()), name, 0); err != nil {
		return &os.PathError{Op: "unlink", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}
