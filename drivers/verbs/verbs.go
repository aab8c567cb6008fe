// Package verbs is what rdmatune's transport needs of an RDMA device, in the
// words of libibverbs: devices, protection domains, memory regions, completion
// queues and channels, reliable connected queue pairs. Two providers implement
// it: ibverbs (the real library, opened at run time) and soft (pure Go over TCP).
// Both pass the suite in verbstest.
//
// Posting and polling allocate nothing and take whole batches, so that a provider
// over C crosses into it at most once per batch.
package verbs

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Provider opens devices of one implementation.
type Provider interface {
	// Name is "ibverbs" or "soft".
	Name() string
	// Devices lists the devices that Open knows, sorted.
	Devices() ([]string, error)
	// Open opens a device by name.
	Open(name string) (Device, error)
}

// For returns the provider that serves device: soft for names that start with
// "soft", else ibverbs.
func For(device string, providers ...Provider) (Provider, error) {
	want := "ibverbs"
	if strings.HasPrefix(device, "soft") {
		want = "soft"
	}
	for _, p := range providers {
		if p.Name() == want {
			return p, nil
		}
	}
	return nil, fmt.Errorf("device %q: no provider %s", device, want)
}

// A Device is an open RDMA device.
type Device interface {
	Name() string
	Attr() DeviceAttr
	// Port describes a physical port; the first is 1.
	Port(port uint8) (PortAttr, error)
	// GIDs lists the used entries of a port's GID table by ascending index.
	GIDs(port uint8) ([]GIDEntry, error)
	AllocPD() (PD, error)
	NewCompChannel() (CompChannel, error)
	// NewCQ creates a completion queue of at least cqe entries. ch may be nil: no
	// events. vector picks the completion vector (an interrupt), 0 <= vector <
	// DeviceAttr.CompVectors.
	NewCQ(cqe int, ch CompChannel, vector int) (CQ, error)
	// Events delivers what happens to the device outside work completions. It holds
	// a few; when nobody takes them the oldest are dropped. Close closes it.
	Events() <-chan Event
	Close() error
}

// DeviceAttr identifies a device and bounds what can be asked of it.
type DeviceAttr struct {
	Firmware     string
	NodeGUID     uint64
	VendorID     uint32
	VendorPartID uint32
	MaxQPWR      int // work requests of a send or receive queue
	MaxSGE       int
	MaxCQE       int
	CompVectors  int

	// Moderation is whether CQ.Moderate works, as a try at opening told. Whether
	// the device then does it, only a measurement tells.
	Moderation bool
	// DMABuf is whether PD.RegDMABuf can work; DMABufWhy says what is missing if not.
	DMABuf    bool
	DMABufWhy string
}

// PortAttr describes a port.
type PortAttr struct {
	Active    bool // traffic can pass
	LID       uint16
	ActiveMTU int  // bytes
	Ethernet  bool // link layer: addresses are GIDs, there is no LID
}

// A GID is a port address: 16 bytes, an IPv4-mapped IPv6 address for RoCE v2 over IPv4.
type GID [16]byte

// IPv4 returns the address that an IPv4-mapped GID carries.
func (g GID) IPv4() (netip.Addr, bool) {
	a := netip.AddrFrom16(g)
	if !a.Is4In6() {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// String returns g as an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// A GIDEntry is one used entry of a GID table.
type GIDEntry struct {
	Index  int
	GID    GID
	RoCEv2 bool // false: InfiniBand or RoCE v1
}

// A PD is a protection domain.
type PD interface {
	// RegMR registers buf, which must outlive the region and stay where it is: memory
	// from AllocMem, or of the Go heap while a runtime.Pinner holds it. Pages are
	// locked: ENOMEM often means RLIMIT_MEMLOCK.
	RegMR(buf []byte, access Access) (MR, error)
	// RegDMABuf registers length bytes at offset of the dma-buf that fd is, which
	// may be closed afterwards. An error that wraps EOPNOTSUPP says which of
	// library, kernel and device lacks it.
	RegDMABuf(fd int, offset, length uint64, access Access) (MR, error)
	CreateQP(QPInitAttr) (QP, error)
	Close() error
}

// Access is what may be done to a memory region, besides reading it locally.
type Access int

// The accesses, with libibverbs' numbers. Remote writing needs both.
const (
	AccessLocalWrite  Access = 1 << 0 // receive into it
	AccessRemoteWrite Access = 1 << 1 // peers write to it
)

// An MR is a registered memory region.
type MR interface {
	// LKey names the region in work requests of this side.
	LKey() uint32
	// RKey names it in RDMA writes of a peer.
	RKey() uint32
	// Addr is the region's start as work requests and peers name it: the virtual
	// address of memory, the offset within a dma-buf.
	Addr() uint64
	Len() int
	// Close deregisters: afterwards no device touches the memory. Work requests that
	// name the region must have completed; a peer's write fails.
	Close() error
}

// QPCap is a queue pair's capabilities: asked for in QPInitAttr, granted in QP.Cap.
type QPCap struct {
	SendWR int // outstanding sends
	RecvWR int // posted receives
	Inline int // bytes of an inline send
}

// QPInitAttr says how to create a reliable connected queue pair.
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	Cap            QPCap
}

// An Endpoint is what one queue pair must know of the other.
type Endpoint struct {
	GID     GID
	LID     uint16
	QPN     uint32 // 24 bits
	PSN     uint32 // 24 bits: first packet sequence number that it sends
	Service uint16 // TCP port of the soft provider, 0 for ibverbs
}

// ConnectAttr takes a queue pair from RESET to RTS.
type ConnectAttr struct {
	Port     uint8
	GIDIndex int
	Local    Endpoint // as Local returned it
	Remote   Endpoint
	MTU      int // bytes: 256, 512, 1024, 2048 or 4096
	// RNRRetry is how often a send is tried again while the peer has no receive
	// posted; 7 means for ever.
	RNRRetry int
	// RetryCount and TimeoutExp bound a silent peer: RetryCount tries of
	// 4.096 us * 2^TimeoutExp each.
	RetryCount int
	TimeoutExp int
}

// QPState is a queue pair's state.
type QPState int

// The states that are used.
const (
	QPReset QPState = iota
	QPInit
	QPRTR
	QPRTS
	QPError
)

// A QP is a reliable connected queue pair. Posting is safe from several
// goroutines; messages go out in the order of posting.
type QP interface {
	Num() uint32
	// Cap is what was granted, which may be more or less than what was asked.
	Cap() QPCap
	// Local returns the endpoint that the peer needs. gidIndex must be the one of
	// the later Connect.
	Local(port uint8, gidIndex int) (Endpoint, error)
	// Init moves RESET to INIT: receives may be posted.
	Init(port uint8) error
	// Connect moves INIT to RTR and RTS.
	Connect(ConnectAttr) error
	// Fail moves to the error state: everything outstanding is flushed.
	Fail() error
	State() QPState
	// PostSend posts wrs in order and returns how many were taken. ENOMEM: the send
	// queue is full; EINVAL: wrong state, more inline bytes than granted, or an immediate
	// of OpWrite.
	PostSend(wrs []SendWR) (int, error)
	// PostRecv posts wrs in order and returns how many were taken.
	PostRecv(wrs []RecvWR) (int, error)
	Close() error
}

// Opcode is what a send work request does.
type Opcode uint8

// The opcodes.
const (
	// OpSend puts the data into the peer's oldest posted receive.
	OpSend Opcode = iota
	// OpWrite is an RDMA write to RemoteAddr under RKey: it takes no receive of the
	// peer and completes at the sender only. A later send on the queue pair arrives
	// after its data.
	OpWrite
)

// A SendWR is one send work request with one segment.
type SendWR struct {
	ID   uint64
	Buf  []byte // registered memory under LKey, untouched until completion
	LKey uint32 // ignored when Inline

	// Addr and Len stand for Buf where that is nil: a part of the region of LKey
	// that the program cannot address. Never inline.
	Addr uint64
	Len  int

	Op     Opcode
	HasImm bool   // OpSend carries Imm beside the bytes (IBV_WR_SEND_WITH_IMM); OpWrite cannot: EINVAL
	Imm    uint32 // immediate data, in host order

	RemoteAddr uint64 // of OpWrite
	RKey       uint32

	Signaled  bool // completes on the send CQ; unsignaled ones complete with the next signaled one
	Inline    bool // Buf is copied while posting
	Solicited bool // the peer's CQ armed for solicited events wakes; not of OpWrite
}

// Size is how many bytes the request moves.
func (w *SendWR) Size() int {
	if w.Buf == nil {
		return w.Len
	}
	return len(w.Buf)
}

// A RecvWR is one receive work request with one segment.
type RecvWR struct {
	ID   uint64
	Buf  []byte
	LKey uint32
}

// A CQ is a completion queue.
type CQ interface {
	// Poll fills wc and returns how many it filled, 0 when the queue is empty. An
	// error means that the queue overflowed: its queue pairs are lost.
	Poll(wc []WC) (int, error)
	// Spin is Poll, tried up to polls times until there is something: the wait of a
	// busy reader without a crossing into C per try. polls <= 0 is one try.
	Spin(wc []WC, polls int) (int, error)
	// ReqNotify asks for one event on the channel at the next completion. Poll
	// again after it: what came before is not announced.
	ReqNotify(solicitedOnly bool) error
	// Moderate delays events until count completions or period microseconds.
	// EOPNOTSUPP where the device cannot.
	Moderate(count, periodUsec int) error
	// Cap is the number of entries granted.
	Cap() int
	Close() error
}

// A CompChannel delivers the events of the CQs created with it.
type CompChannel interface {
	// Wait blocks until an event of any of the channel's CQs, takes all that wait,
	// acknowledges them, and returns. os.ErrClosed after Shutdown.
	Wait() error
	// Shutdown makes Wait return os.ErrClosed from now on. Close needs the CQs gone.
	Shutdown() error
	Close() error
}
