package soft

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// noDMABuf is why DeviceAttr.DMABuf is false.
const noDMABuf = "a soft device has no way to other devices' memory"

type pd struct {
	dev *device
	mu  sync.RWMutex
	mrs map[uint32]*mr // guarded by mu
}

// An mr is a region. Its key serves as local and as remote one.
type mr struct {
	pd     *pd
	key    uint32
	buf    []byte
	access verbs.Access

	mu     sync.RWMutex // held for reading while a peer's write touches buf
	closed bool         // guarded by mu
}

func (p *pd) RegMR(buf []byte, access verbs.Access) (verbs.MR, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("%s: register no memory: %w", p.dev.name, syscall.EINVAL)
	}
	if access&^(verbs.AccessLocalWrite|verbs.AccessRemoteWrite) != 0 || access == verbs.AccessRemoteWrite {
		return nil, fmt.Errorf("%s: register memory for access %#x: %w", p.dev.name, int(access), syscall.EINVAL)
	}
	p.dev.mu.Lock()
	p.dev.nextKey++
	key := p.dev.nextKey
	p.dev.mu.Unlock()
	m := &mr{pd: p, key: key, buf: buf, access: access}
	p.mu.Lock()
	p.mrs[key] = m
	p.mu.Unlock()
	return m, nil
}

func (p *pd) RegDMABuf(int, uint64, uint64, verbs.Access) (verbs.MR, error) {
	return nil, fmt.Errorf("%s: register dma-buf: %s: %w", p.dev.name, noDMABuf, syscall.EOPNOTSUPP)
}

func (m *mr) LKey() uint32 { return m.key }
func (m *mr) RKey() uint32 { return m.key }
func (m *mr) Addr() uint64 { return address(m.buf) }
func (m *mr) Len() int     { return len(m.buf) }

func (m *mr) Close() error {
	m.pd.mu.Lock()
	delete(m.pd.mrs, m.key)
	m.pd.mu.Unlock()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return nil
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func (p *pd) region(key uint32) *mr {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mrs[key]
}

// at returns the n bytes of the region from addr on.
func (m *mr) at(addr uint64, n int) ([]byte, bool) {
	off := addr - m.Addr()
	if addr < m.Addr() || n < 0 || off > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-off {
		return nil, false
	}
	return m.buf[off : off+uint64(n)], true
}

// covers reports whether b lies in the region that key names, which allows access.
func (p *pd) covers(key uint32, b []byte, access verbs.Access) bool {
	m := p.region(key)
	if m == nil || m.access&access != access {
		return false
	}
	_, ok := m.at(address(b), len(b))
	return ok || len(b) == 0
}

// source returns the memory that a send request names, if that is registered.
func (p *pd) source(w *verbs.SendWR) ([]byte, bool) {
	switch {
	case w.Inline:
		return w.Buf, true
	case w.Buf != nil:
		return w.Buf, p.covers(w.LKey, w.Buf, 0)
	case w.Len == 0:
		return nil, true
	}
	m := p.region(w.LKey)
	if m == nil {
		return nil, false
	}
	return m.at(w.Addr, w.Len)
}

// target finds where a peer's write of n bytes goes. A write of nothing needs no
// region: m is nil then.
func (p *pd) target(w remoteWrite, n int) (m *mr, to []byte, ok bool) {
	if n == 0 {
		return nil, nil, true
	}
	m = p.region(w.rkey)
	if m == nil || m.access&verbs.AccessRemoteWrite == 0 {
		return nil, nil, false
	}
	to, ok = m.at(w.addr, n)
	return m, to, ok
}

// write copies to a part of the region, unless that is closed.
func (m *mr) write(to, from []byte) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return false
	}
	copy(to, from)
	return true
}

func (p *pd) Close() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.mrs) > 0 {
		return fmt.Errorf("%s: deallocate pd with %d regions: %w", p.dev.name, len(p.mrs), syscall.EBUSY)
	}
	return nil
}
