package watch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxFiles bounds how many files are kept: ten times those of a node of 256 CPUs and 4,000
// interrupts.
const maxFiles = 1 << 16

// maxContent is how much of a file is compared. A setting is a line, and sysfs never gives
// more than a page.
const maxContent = 8 << 10

// Files are settings of the kernel, files of procfs and sysfs, that are kept open: so that
// their writers are heard, and so that looking at all of them is cheap. The zero value is
// not ready; a Watcher has one. It may be used by several goroutines.
type Files struct {
	local bool
	mark  func(fd int, on bool) error         // nil when writers are not heard
	tell  func(err error)                     // which files' writers are not heard, as mark has it; nil with it
	allow func(path string, fd int) error     // whether path, opened as fd, may be kept
	paths atomic.Pointer[map[identity]string] // of kept; read by the source of writes

	mu     sync.Mutex
	kept   []file       // guarded by mu
	buf    []byte       // guarded by mu
	seed   maphash.Seed // of sums
	closed bool         // guarded by mu
}

// An identity is which inode it is, among those in use.
type identity struct{ device, inode uint64 }

// A file is one that is kept, or waited for.
type file struct {
	path     string
	fd       int // -1: it cannot be opened
	id       identity
	accepted bool
	content  content // as accepted
}

// A content is what a file says: the hash of its text, or the error of reading it.
type content struct {
	sum   uint64
	errno unix.Errno
}

func newFiles(local bool) *Files {
	return &Files{local: local, allow: allowKernel, buf: make([]byte, maxContent), seed: maphash.MakeSeed()}
}

// allowKernel allows files of the kernel's own file systems: by path, so that nothing else
// is opened, and by what was opened, as links lead elsewhere.
func allowKernel(path string, fd int) error {
	if path != filepath.Clean(path) || !strings.HasPrefix(path, "/sys/") && !strings.HasPrefix(path, "/proc/") {
		return fmt.Errorf("%.200q is not a path below /sys or /proc", path)
	}
	if fd < 0 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return nil
	}
	return fmt.Errorf("%s is not a file of procfs, sysfs or cgroup2", path)
}

// Set makes paths the whole set: it opens and marks what is new or was made anew by the
// kernel (an interrupt after its driver was loaded again has the same path and another
// inode), and closes what is no longer in it. A file that cannot be opened is waited for:
// Changed returns it when it can.
//
// Paths outside /sys and /proc, and more than 65,536, are refused and change nothing. Any
// other error is about single files that are not kept, or whose writers are not heard;
// the rest is. Of a node that is not this machine nothing is kept.
func (f *Files) Set(paths []string) error {
	if !f.local {
		return nil
	}
	paths = slices.Compact(slices.Sorted(slices.Values(paths)))
	if len(paths) > maxFiles {
		return fmt.Errorf("%d files to watch; the most is %d", len(paths), maxFiles)
	}
	for _, p := range paths {
		if err := f.allow(p, -1); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	raiseLimit(len(paths))
	had := make(map[string]file, len(f.kept))
	for _, k := range f.kept {
		had[k.path] = k
	}
	var (
		failures failures
		fresh    []int // of next, to mark
		next     = make([]file, 0, len(paths))
	)
	for _, p := range paths {
		old, ok := had[p]
		if ok && f.alive(old) {
			delete(had, p)
			next = append(next, old)
			continue
		}
		k := file{path: p, accepted: old.accepted, content: old.content}
		if err := f.open(&k); err == nil {
			fresh = append(fresh, len(next))
		} else if !waitable(err) {
			failures.add(err)
		}
		next = append(next, k)
	}
	f.kept = next
	f.publish()
	forgotten := map[identity]bool{}
	for _, old := range had {
		f.forget(old)
		forgotten[old.id] = true
	}
	for i, k := range f.kept { // two paths of one inode share its mark
		if forgotten[k.id] && k.fd >= 0 {
			fresh = append(fresh, i)
		}
	}
	for _, i := range fresh {
		failures.add(f.watch(f.kept[i]))
	}
	err := failures.err()
	if f.tell != nil {
		f.tell(err)
	}
	return err
}

// open opens k's file. The caller holds f.mu.
func (f *Files) open(k *file) error {
	k.fd, k.id = -1, identity{}
	// Not blocking: a path may have become anything.
	fd, err := unix.Open(k.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: k.path, Err: err}
	}
	id, err := identify(fd)
	if err == nil {
		err = f.allow(k.path, fd)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	k.fd, k.id = fd, id
	return nil
}

// waitable is whether a file may come to be by itself: its device or CPU is not there.
func waitable(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO)
}

// watch begins to hear of k's writers.
func (f *Files) watch(k file) error {
	if f.mark == nil {
		return nil
	}
	if err := f.mark(k.fd, true); err != nil {
		return fmt.Errorf("%s: hear of writers: %w", k.path, err)
	}
	return nil
}

// forget closes k.
func (f *Files) forget(k file) {
	if k.fd < 0 {
		return
	}
	if f.mark != nil {
		_ = f.mark(k.fd, false) // its inode may be gone, and the mark with it
	}
	unix.Close(k.fd)
}

// publish tells the source of writes which inode is which path. The caller holds f.mu.
func (f *Files) publish() {
	paths := make(map[identity]string, len(f.kept))
	for _, k := range f.kept {
		if _, ok := paths[k.id]; !ok && k.fd >= 0 {
			paths[k.id] = k.path
		}
	}
	f.paths.Store(&paths)
}

// path returns the path under which an inode is kept.
func (f *Files) path(id identity) (string, bool) {
	paths := f.paths.Load()
	if paths == nil {
		return "", false
	}
	p, ok := (*paths)[id]
	return p, ok
}

// alive is whether k is still the file at its path. An inode's number is not enough: the
// kernel gives that of a removed entry of procfs to the next. What was removed can no
// longer be read.
func (f *Files) alive(k file) bool {
	if k.fd < 0 {
		return false
	}
	var st unix.Stat_t
	if unix.Stat(k.path, &st) != nil || (identity{st.Dev, st.Ino}) != k.id {
		return false
	}
	return !dead(f.read(k).errno)
}

// dead is whether errno is what a descriptor of a removed entry gives: ENODEV in sysfs, EIO
// in procfs. A living file may give it too; it is opened again, then.
func dead(errno unix.Errno) bool { return errno == unix.ENODEV || errno == unix.EIO }

// read returns what k says. The caller holds f.mu.
func (f *Files) read(k file) content {
	if k.fd < 0 {
		return content{errno: unix.ENOENT}
	}
	n, err := unix.Pread(k.fd, f.buf, 0)
	for err == unix.EINTR {
		n, err = unix.Pread(k.fd, f.buf, 0)
	}
	if err != nil {
		errno := unix.EIO
		errors.As(err, &errno)
		return content{errno: errno}
	}
	return content{sum: maphash.Bytes(f.seed, f.buf[:n])}
}

// look is read, and opens a file again that was removed, or is waited for. It returns
// whether it did. The caller holds f.mu.
func (f *Files) look(k *file) (now content, renewed bool) {
	now = f.read(*k)
	if k.fd >= 0 && !dead(now.errno) {
		return now, false
	}
	again := *k
	if f.open(&again) != nil {
		return now, false
	}
	f.forget(*k)
	*k = again
	return f.read(*k), true
}

// Changed reads every file and returns the paths of those that say something else than at
// the last Accept, or that were never accepted; that a file can no longer be read, or can
// be read again, is such a difference too. Only a file's first 8 KiB are compared. The
// error is about files that the kernel has made anew and whose writers are not heard.
func (f *Files) Changed() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed []string
	err := f.each(func(k *file, now content) {
		if !k.accepted || now != k.content {
			changed = append(changed, k.path)
		}
	})
	return changed, err
}

// Accept remembers what the files say now. What changes after it is found by the next
// Changed: call it before reading the node, not after.
func (f *Files) Accept() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.each(func(k *file, now content) { k.accepted, k.content = true, now })
}

// each calls do with every file and what it says. The caller holds f.mu.
func (f *Files) each(do func(k *file, now content)) error {
	if f.closed {
		return os.ErrClosed
	}
	var fresh []int
	for i := range f.kept {
		now, renewed := f.look(&f.kept[i])
		if renewed {
			fresh = append(fresh, i)
		}
		do(&f.kept[i], now)
	}
	if fresh == nil {
		return nil
	}
	f.publish()
	var failures failures
	for _, i := range fresh {
		failures.add(f.watch(f.kept[i]))
	}
	err := failures.err()
	if err != nil && f.tell != nil {
		f.tell(err)
	}
	return err
}

// Len returns how many files are in the set.
func (f *Files) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.kept)
}

// close closes all files. The set is of no use afterwards.
func (f *Files) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mark = nil // its descriptor is closed, and all marks are gone
	for _, k := range f.kept {
		f.forget(k)
	}
	f.kept, f.closed = nil, true
	f.publish()
	return nil
}

// identify returns which inode fd is.
func identify(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return identity{}, errors.New("not a regular file")
	}
	return identity{st.Dev, st.Ino}, nil
}
