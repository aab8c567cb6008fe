package transport

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A Buffer is registered memory. Send and Recv of any slice of it move large messages
// without a copy and without registering anything.
type Buffer struct {
	t   *Transport
	mr  verbs.MR
	mem []byte // nil for device memory
	len int
	// users counts Sends and Recvs that the memory serves, plus one until Close.
	users atomic.Int64
}

// Bytes returns the memory; nil for memory of a device. It is gone after Close.
func (b *Buffer) Bytes() []byte { return b.mem }

// Len returns the size in bytes.
func (b *Buffer) Len() int { return b.len }

// region is one Buffer in the table that slices are looked up in.
type region struct {
	start, end uintptr
	buf        *Buffer
}

// memories is a transport's registered memory.
type memories struct {
	table atomic.Pointer[[]region] // by start; replaced as a whole, so that reading takes no lock

	mu     sync.Mutex
	all    map[*Buffer]bool // guarded by mu
	bytes  int64            // guarded by mu; registered, lanes' included
	sealed bool             // guarded by mu: the transport is closing
	pins   sync.WaitGroup   // Add is guarded by mu, with sealed still false
}

// Register returns n bytes of registered memory, which comes out of what
// RLIMIT_MEMLOCK allows. Close gives it back.
func (t *Transport) Register(n int) (*Buffer, error) {
	if n < 1 || n > MaxMessage {
		return nil, fmt.Errorf("register %d bytes: %w", n, syscall.EINVAL)
	}
	mem, err := verbs.AllocMem(n)
	if err != nil {
		return nil, err
	}
	b := &Buffer{t: t, mem: mem, len: n}
	if b.mr, err = t.register(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err == nil {
		err = t.adopt(b)
	}
	if err != nil {
		return nil, errors.Join(err, verbs.FreeMem(mem))
	}
	return b, nil
}

// RegisterDMABuf registers n bytes at off of a dma-buf, such as memory of a GPU that
// its driver exported. The descriptor may be closed afterwards. Such memory has no
// Bytes: SendBuffer and RecvBuffer move it. An error that wraps EOPNOTSUPP names what
// is missing.
func (t *Transport) RegisterDMABuf(fd int, off, n uint64) (*Buffer, error) {
	if fd < 0 || n < 1 || n > MaxMessage || off > off+n {
		return nil, fmt.Errorf("register %d bytes at %d of dma-buf %d: %w", n, off, fd, syscall.EINVAL)
	}
	if a := t.dev.Attr(); !a.DMABuf {
		return nil, fmt.Errorf("%s: register a dma-buf: %s: %w", t.device, cmp.Or(a.DMABufWhy, "the device cannot"), syscall.EOPNOTSUPP)
	}
	mr, err := t.eng.pd.RegDMABuf(fd, off, n, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return nil, fmt.Errorf("%s: register %d bytes of a dma-buf: %w", t.device, n, err)
	}
	b := &Buffer{t: t, mr: mr, len: int(n)}
	return b, t.adopt(b)
}

// register registers memory and counts it.
func (t *Transport) register(mem []byte, access verbs.Access) (verbs.MR, error) {
	mr, err := t.eng.pd.RegMR(mem, access)
	if errors.Is(err, syscall.ENOMEM) {
		err = fmt.Errorf("%w (is RLIMIT_MEMLOCK, `ulimit -l`, large enough?)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(mem), err)
	}
	t.countMemory(mr.Len())
	return mr, nil
}

// deregister undoes register.
func (t *Transport) deregister(mr verbs.MR) error {
	t.countMemory(-mr.Len())
	return mr.Close()
}

func (t *Transport) countMemory(n int) {
	t.mem.mu.Lock()
	t.mem.bytes += int64(n)
	t.mem.mu.Unlock()
}

// adopt makes b known, or deregisters it when the transport is closing.
func (t *Transport) adopt(b *Buffer) error {
	m := &t.mem
	b.users.Store(1)
	m.mu.Lock()
	if m.sealed {
		m.mu.Unlock()
		return errors.Join(ErrClosed, b.mr.Close())
	}
	defer m.mu.Unlock()
	m.all[b] = true
	if b.mem == nil {
		m.bytes += int64(b.len)
		return nil
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b.mem)))
	table := append(slices.Clone(m.regions()), region{start, start + uintptr(b.len), b})
	slices.SortFunc(table, func(a, b region) int { return cmp.Compare(a.start, b.start) })
	m.table.Store(&table)
	return nil
}

func (m *memories) regions() []region {
	if p := m.table.Load(); p != nil {
		return *p
	}
	return nil
}

// Close deregisters the memory and frees it. ErrBusy: a Send or Recv uses it.
func (b *Buffer) Close() error {
	if !b.users.CompareAndSwap(1, 0) {
		if b.users.Load() == 0 {
			return nil // closed before
		}
		return fmt.Errorf("close a buffer of %d bytes: %w", b.len, ErrBusy)
	}
	b.t.mem.forget(b)
	var err error
	if b.mr != nil {
		err = b.t.deregister(b.mr)
	}
	if b.mem != nil {
		err = errors.Join(err, verbs.FreeMem(b.mem))
		b.mem = nil
	}
	return err
}

func (m *memories) forget(b *Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, b)
	table := slices.DeleteFunc(slices.Clone(m.regions()), func(r region) bool { return r.buf == b })
	m.table.Store(&table)
}

// seal waits for pinned memory to be given back and deregisters what the program has
// not closed; its Buffers keep their memory until it does. No connection is left.
func (m *memories) seal() error {
	m.mu.Lock()
	m.sealed = true
	m.mu.Unlock()
	m.pins.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for b := range m.all {
		errs = append(errs, b.mr.Close())
		b.mr = nil
		m.bytes -= int64(b.len)
	}
	return errors.Join(errs...)
}

// A span is registered memory that a rendezvous moves.
type span struct {
	bytes []byte // nil for device memory
	addr  uint64 // as work requests and peers name it
	len   int
	lkey  uint32
	rkey  uint32
}

// memory is a span that is a part of a Buffer, or pinned for one call.
type memory struct {
	span
	buf    *Buffer
	pinned verbs.MR
	pinner runtime.Pinner
}

// claim makes b ready for a rendezvous: it looks for a Buffer that it is part of,
// else registers it for the time being. Call release afterwards.
func (m *memory) claim(t *Transport, b []byte, access verbs.Access) error {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if buf := t.mem.find(start, len(b)); buf != nil {
		m.use(buf, int(start-uintptr(unsafe.Pointer(unsafe.SliceData(buf.mem)))), len(b))
		return nil
	}
	t.mem.mu.Lock()
	if t.mem.sealed {
		t.mem.mu.Unlock()
		return ErrClosed
	}
	t.mem.pins.Add(1)
	t.mem.mu.Unlock()
	m.pinner.Pin(unsafe.SliceData(b))
	mr, err := t.register(b, access)
	if err != nil {
		m.pinner.Unpin()
		t.mem.pins.Done()
		return err
	}
	m.bytes, m.addr, m.len, m.lkey, m.rkey, m.pinned = b, mr.Addr(), len(b), mr.LKey(), mr.RKey(), mr
	return nil
}

// use makes m a part of a Buffer that find, or the caller, holds.
func (m *memory) use(b *Buffer, off, n int) {
	m.addr, m.len, m.lkey, m.rkey, m.buf = b.mr.Addr()+uint64(off), n, b.mr.LKey(), b.mr.RKey(), b
	if b.mem != nil {
		m.bytes = b.mem[off : off+n]
	}
}

// hold keeps b from being closed; false when it is closed.
func (b *Buffer) hold() bool {
	for {
		n := b.users.Load()
		if n == 0 {
			return false
		}
		if b.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// find returns the Buffer that n bytes at start lie in, held, or nil.
func (m *memories) find(start uintptr, n int) *Buffer {
	table := m.regions()
	i, found := slices.BinarySearchFunc(table, start, func(r region, at uintptr) int { return cmp.Compare(r.start, at) })
	if !found {
		i--
	}
	if i < 0 || start+uintptr(n) > table[i].end || !table[i].buf.hold() {
		return nil
	}
	return table[i].buf
}

// release gives back what claim or use took.
func (m *memory) release(t *Transport) error {
	var err error
	switch {
	case m.buf != nil:
		m.buf.users.Add(-1)
	case m.pinned != nil:
		err = t.deregister(m.pinned)
		m.pinner.Unpin()
		t.mem.pins.Done()
	}
	*m = memory{}
	return err
}
