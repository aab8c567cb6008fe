package watch

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// writes hears who writes to the kept files, by fanotify: of the kernel's ways to tell of
// writes the only one that names the writer. A mark is on an inode. Those of procfs and
// sysfs exist only while somebody uses them, so each file stays open as long as it is
// marked.
type writes struct {
	q     *queue
	files *Files
	self  int32
	f     *os.File
	conn  syscall.RawConn
	buf   []byte
}

func openWrites(w *Watcher, c Config) (source, error) {
	fd, err := unix.FanotifyInit(
		unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_MARKS,
		unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("fanotify: needs CAP_SYS_ADMIN: %w", err)
	case err != nil:
		return nil, fmt.Errorf("fanotify: %w", err)
	}
	s := &writes{q: w.q, files: w.files, self: int32(c.Self), f: os.NewFile(uintptr(fd), "fanotify"), buf: make([]byte, 16<<10)}
	if s.conn, err = s.f.SyscallConn(); err != nil {
		s.f.Close()
		return nil, err
	}
	w.files.mark = s.mark
	w.files.tell = func(err error) { w.q.partly(Writes, err) }
	return s, nil
}

// mark begins, or ends, to hear of writes to the open file fd.
func (s *writes) mark(fd int, on bool) error {
	how := uint(unix.FAN_MARK_ADD)
	if !on {
		how = unix.FAN_MARK_REMOVE
	}
	var failed error
	err := s.conn.Control(func(group uintptr) {
		failed = unix.FanotifyMark(int(group), how, unix.FAN_MODIFY, fd, "")
	})
	return errors.Join(err, failed)
}

func (s *writes) close() error { return s.f.Close() }

func (s *writes) run(stop <-chan struct{}) error {
	for {
		var (
			n      int
			failed error
		)
		err := s.conn.Read(func(fd uintptr) bool {
			n, failed = unix.Read(int(fd), s.buf)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return err
		case errors.Is(failed, unix.EINTR):
		case errors.Is(failed, unix.EBADF), errors.Is(failed, unix.EFAULT):
			return fmt.Errorf("fanotify: %w", failed)
		case failed != nil:
			// The file of the first event cannot be opened for us: it is gone with its
			// device, or there is no descriptor left. The kernel has dropped the event.
			s.q.drop(Writes)
		case !s.events(s.buf[:n]):
			return errors.New("fanotify: the kernel's events have another format")
		}
		pause(gather, stop)
	}
}

// events takes what one read has brought, and closes the descriptor of each event. It
// returns false when that is not what this was built for.
func (s *writes) events(b []byte) bool {
	for len(b) > 0 {
		m, size, ok := parseWrite(b)
		if !ok {
			return false
		}
		s.event(m)
		b = b[size:]
	}
	return true
}

func (s *writes) event(m written) {
	if m.overflow {
		s.q.drop(Writes)
	}
	if m.fd < 0 {
		return
	}
	id, err := identify(int(m.fd))
	unix.Close(int(m.fd))
	if err != nil || m.pid == s.self {
		return
	}
	path, ok := s.files.path(id)
	if !ok {
		return // no longer kept
	}
	k := key{"write", path, int(m.pid)}
	if !s.q.wants(Writes, k) {
		return
	}
	e := Event{Source: Writes, What: "write", Subject: printable.Line(path), PID: int(m.pid), When: time.Now()}
	if m.pid > 0 { // 0: of a pid namespace that this process cannot see
		e.Comm, e.Command = comm(e.PID), command(e.PID)
	}
	s.q.add(k, e)
}

// A written is what is used of an event of fanotify.
type written struct {
	overflow bool
	fd, pid  int32
}

// parseWrite reads the first event of b, a struct fanotify_event_metadata of
// include/uapi/linux/fanotify.h with what a later kernel may append, and returns its size.
func parseWrite(b []byte) (m written, size int, ok bool) {
	if len(b) < unix.FAN_EVENT_METADATA_LEN || b[4] != unix.FANOTIFY_METADATA_VERSION {
		return written{}, 0, false
	}
	length := native.Uint32(b)
	if length < unix.FAN_EVENT_METADATA_LEN || uint64(length) > uint64(len(b)) {
		return written{}, 0, false
	}
	return written{
		overflow: native.Uint64(b[8:])&unix.FAN_Q_OVERFLOW != 0,
		fd:       int32(native.Uint32(b[16:])),
		pid:      int32(native.Uint32(b[20:])),
	}, int(length), true
}
