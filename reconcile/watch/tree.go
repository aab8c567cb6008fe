package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// What is asked of a directory. On the way to a watched path only its components matter,
// which come, go and are replaced; in the directory at its end also the files' contents.
const (
	onTheWay = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	atTheEnd = onTheWay | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	howToAdd = unix.IN_MASK_ADD | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
)

// Bounds on the way to a path: as many symbolic links as the kernel follows, and as many
// entries of a directory as are looked through for links.
const (
	maxLinksOnTheWay = 40
	maxEntries       = 4096
)

// A tree watches paths by inotify. For each it watches every directory on the way to it,
// through all symbolic links, for the one component that leads on: so it hears when a path
// is made, when a directory is replaced by another (a checkout of another commit), and when
// a link is switched (a Kubernetes volume's ..data). After such an event it goes the way
// again.
type tree struct {
	q      *queue
	source Source
	f      *os.File
	conn   syscall.RawConn
	buf    []byte
	// tell puts an event into the queue, for what has happened in a watched directory.
	tell func(h happened)

	mu    sync.Mutex
	roots []string             // guarded by mu
	dirs  map[int32]*directory // by watch descriptor; guarded by mu
}

// A directory is one that is watched.
type directory struct {
	path  string
	names map[string]string // of interest, and a root that each leads to
	whole string            // the root that the directory is; "": it is none
}

// A happened is what inotify says, resolved.
type happened struct {
	root string // that it is about
	path string // of the entry, or of the directory itself
	end  bool   // path is an entry of a directory that is root
	mask uint32
}

// openTree opens the source s, of no paths yet.
func (w *Watcher) openTree(s Source, tell func(h happened)) (*tree, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	t := &tree{q: w.q, source: s, f: os.NewFile(uintptr(fd), string(s)), buf: make([]byte, 16<<10), tell: tell}
	if t.conn, err = t.f.SyscallConn(); err != nil {
		t.f.Close()
		return nil, err
	}
	return t, nil
}

func (t *tree) close() error { return t.f.Close() }

// set makes roots the watched paths.
func (t *tree) set(roots []string) error {
	whole := make([]string, len(roots))
	for i, r := range roots {
		abs, err := filepath.Abs(r)
		if err != nil {
			return err
		}
		whole[i] = abs
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roots = whole
	return t.walk()
}

// walk goes the way to all roots, and forgets the directories that are no longer on one.
// The caller holds t.mu.
func (t *tree) walk() error {
	w := walk{tree: t, found: map[int32]*directory{}}
	for _, r := range t.roots {
		w.root, w.links = r, 0
		w.follow("/", split(r))
	}
	err := t.conn.Control(func(fd uintptr) {
		for wd := range t.dirs {
			if _, ok := w.found[wd]; !ok {
				_, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) // it may be gone by itself
			}
		}
	})
	t.dirs = w.found
	return errors.Join(err, w.failures.err())
}

// A walk is one way to all roots.
type walk struct {
	tree     *tree
	found    map[int32]*directory
	root     string // that is gone to
	links    int    // followed so far
	failures failures
}

// follow goes from dir, which has no link in it, along rest.
func (w *walk) follow(dir string, rest []string) {
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		mask := uint32(onTheWay)
		if len(rest) == 0 {
			mask = atTheEnd // it may be a file
		}
		// The watch comes before the look: what is made in between is heard.
		if !w.watch(dir, mask, func(d *directory) { d.names[name] = w.root }) {
			return
		}
		path := filepath.Join(dir, name)
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return // the watch tells when it is there
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if w.links++; err != nil || w.links > maxLinksOnTheWay {
				return
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = slices.Concat(split(target), rest)
		case unix.S_IFDIR:
			dir = path
			if len(rest) == 0 {
				w.end(dir)
				return
			}
		default:
			return
		}
	}
	w.end(dir) // a link led to "/", "." or ".."
}

// end watches a directory that is at the end of the way, and the ways of the links in it.
func (w *walk) end(dir string) {
	seen := false
	if !w.watch(dir, atTheEnd, func(d *directory) { seen = d.whole != ""; d.whole = w.root }) || seen {
		return
	}
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxEntries) // of an unreadable directory there is nothing to follow
	for _, e := range entries {
		if e.Type() == os.ModeSymlink {
			links := w.links
			w.follow(dir, []string{e.Name()})
			w.links = links
		}
	}
}

// watch watches dir, and lets note say for what. It returns false when dir cannot be
// watched.
func (w *walk) watch(dir string, mask uint32, note func(d *directory)) bool {
	var wd int
	var failed error
	err := w.tree.conn.Control(func(fd uintptr) {
		wd, failed = unix.InotifyAddWatch(int(fd), dir, mask|howToAdd)
	})
	if err := errors.Join(err, failed); err != nil {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) { // gone since it was seen
			w.failures.add(fmt.Errorf("watch directory %s: %w", dir, err))
		}
		return false
	}
	d := w.found[int32(wd)]
	if d == nil {
		d = &directory{path: dir, names: map[string]string{}}
		w.found[int32(wd)] = d
	}
	note(d)
	return true
}

// split returns the components of a path.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

// run tells what happens to the roots until the tree is closed.
func (t *tree) run(stop <-chan struct{}) error {
	for {
		var (
			n      int
			failed error
		)
		err := t.conn.Read(func(fd uintptr) bool {
			n, failed = unix.Read(int(fd), t.buf)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return err
		case errors.Is(failed, unix.EINTR):
		case failed != nil:
			return fmt.Errorf("inotify: %w", failed)
		default:
			if err := t.events(t.buf[:n]); err != nil {
				return err
			}
		}
		pause(gather, stop)
	}
}

// events takes what one read has brought. When the way to a root may have changed it goes
// it again before it tells, so that nothing falls between the two.
func (t *tree) events(b []byte) error {
	var all []happened
	again := false
	t.mu.Lock()
	for len(b) > 0 {
		e, size, ok := parseInotify(b)
		if !ok {
			t.mu.Unlock()
			return errors.New("inotify: the kernel's events have another format")
		}
		b = b[size:]
		if e.mask&unix.IN_Q_OVERFLOW != 0 {
			t.q.drop(t.source)
			again = true
			continue
		}
		h, way := t.resolve(e)
		if h.root != "" {
			all = append(all, h)
			again = again || way
		}
	}
	var err error
	if again {
		err = t.walk()
	}
	t.mu.Unlock()
	for _, h := range all {
		t.tell(h)
	}
	if err != nil {
		t.q.drop(t.source) // what happens there from now on is not heard
	}
	return nil
}

// resolve returns what an event is about, with no root when that is nothing of interest,
// and whether the way to it may be another now. The caller holds t.mu.
func (t *tree) resolve(e inotified) (h happened, way bool) {
	d := t.dirs[e.wd]
	if d == nil || e.mask&unix.IN_IGNORED != 0 {
		return happened{}, false
	}
	h = happened{path: d.path, mask: e.mask}
	moved := e.mask&^(unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_ATTRIB|unix.IN_ISDIR) != 0
	if e.name == "" { // the directory itself
		h.root = d.whole
		for _, root := range d.names {
			h.root = root
		}
		return h, true
	}
	h.path = filepath.Join(d.path, e.name)
	if root, ok := d.names[e.name]; ok {
		h.root = root
		return h, moved
	}
	h.root, h.end = d.whole, true
	return h, moved && t.source == Spec // a link in the spec's directory is followed
}

// An inotified is an event of inotify.
type inotified struct {
	wd   int32
	mask uint32
	name string
}

// parseInotify reads the first event of b, a struct inotify_event of
// include/uapi/linux/inotify.h, and returns its size.
func parseInotify(b []byte) (e inotified, size int, ok bool) {
	if len(b) < unix.SizeofInotifyEvent {
		return inotified{}, 0, false
	}
	length := native.Uint32(b[12:])
	if uint64(length) > uint64(len(b)-unix.SizeofInotifyEvent) {
		return inotified{}, 0, false
	}
	size = unix.SizeofInotifyEvent + int(length)
	name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:size]), "\x00")
	return inotified{wd: int32(native.Uint32(b)), mask: native.Uint32(b[4:]), name: name}, size, true
}
