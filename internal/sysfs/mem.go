package sysfs

import (
	"io/fs"
	"path"
	"sync"
	"syscall"
)

// Mem is a tree in memory: an unpacked archive, a simulated machine, or the
// processes that a tree at rest is made to show. It may grow while it is read.
type Mem struct {
	mu    sync.RWMutex
	nodes map[string]*memNode // by canonical name; guarded by mu
}

type memNode struct {
	mode     fs.FileMode
	data     []byte // of a file; the target of a link
	children map[string]struct{}
}

// NewMem returns a tree with a root and nothing in it.
func NewMem() *Mem {
	return &Mem{nodes: map[string]*memNode{".": {mode: fs.ModeDir | 0o755}}}
}

// canonical is the key of name in a Mem.
func canonical(name string) string { return path.Join(".", clean(name)[1:]) }

// File puts a file with mode 0644 at name, parents included.
func (m *Mem) File(name, content string) { m.FileMode(name, 0o644, content) }

// FileMode puts a file with the given permissions at name, parents included.
func (m *Mem) FileMode(name string, perm fs.FileMode, content string) {
	m.put(name, &memNode{mode: perm.Perm(), data: []byte(content)})
}

// Link puts a symbolic link to target at name, parents included.
func (m *Mem) Link(name, target string) {
	m.put(name, &memNode{mode: fs.ModeSymlink | 0o777, data: []byte(target)})
}

// Dir puts a directory at name, parents included; one that is there stays.
func (m *Mem) Dir(name string) { m.put(name, &memNode{mode: fs.ModeDir | 0o755}) }

// Remove takes name and all below it away.
func (m *Mem) Remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(canonical(name))
}

func (m *Mem) remove(key string) {
	n, ok := m.nodes[key]
	if !ok || key == "." {
		return
	}
	for child := range n.children {
		m.remove(path.Join(key, child))
	}
	delete(m.nodes, key)
	delete(m.nodes[path.Dir(key)].children, path.Base(key))
}

func (m *Mem) put(name string, n *memNode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := canonical(name)
	if old, ok := m.nodes[key]; ok && (n.mode.IsDir() && old.mode.IsDir() || key == ".") {
		return
	}
	m.remove(key)
	m.attach(key, n)
}

// attach links n to its parent, which it makes where it is missing or no directory.
func (m *Mem) attach(key string, n *memNode) {
	m.nodes[key] = n
	parent := path.Dir(key)
	p, ok := m.nodes[parent]
	if !ok || !p.mode.IsDir() {
		if ok {
			m.remove(parent)
		}
		p = &memNode{mode: fs.ModeDir | 0o755}
		m.attach(parent, p)
	}
	if p.children == nil {
		p.children = map[string]struct{}{}
	}
	p.children[path.Base(key)] = struct{}{}
}

// Open returns m as the root of an FS whose writes go to layerDir, with over, when
// not nil, shown above it.
func (m *Mem) Open(layerDir string, over *Mem, opts ...Option) FS {
	return atRest(union{over, m}, layerDir, opts)
}

// node returns the node of a canonical name.
func (m *Mem) node(name string) (*memNode, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, ok := m.nodes[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	return n, nil
}

func (m *Mem) lstat(name string) (fs.FileMode, error) {
	n, err := m.node(name)
	if err != nil {
		return 0, err
	}
	return n.mode, nil
}

func (m *Mem) readlink(name string) (string, error) {
	n, err := m.node(name)
	if err == nil && n.mode.Type() != fs.ModeSymlink {
		err = syscall.EINVAL
	}
	if err != nil {
		return "", err
	}
	return string(n.data), nil
}

// read returns a copy: callers may change what they get.
func (m *Mem) read(name string) ([]byte, error) {
	n, err := m.node(name)
	if err == nil && !n.mode.IsRegular() {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), n.data...), nil
}

func (m *Mem) list(name string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, ok := m.nodes[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	names := make([]string, 0, len(n.children))
	for child := range n.children {
		names = append(names, child)
	}
	return names, nil
}

func (m *Mem) close() error { return nil }
