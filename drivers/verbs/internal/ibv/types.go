// Package ibv binds libibverbs, opened at run time, for the ibverbs provider. It
// needs no header at build time: abi.h declares what is used. Where cgo is off, the
// package compiles and says so.
package ibv

// Batch is the most that one call posts or polls.
const Batch = 64

// DeviceAttr is a device's attributes.
type DeviceAttr struct {
	Firmware     string
	NodeGUID     uint64 // as the library has it, big endian
	VendorID     uint32
	VendorPartID uint32
	MaxQPWR      int
	MaxSGE       int
	MaxCQE       int
	CompVectors  int
}

// PortAttr is a port's attributes.
type PortAttr struct {
	Active    bool
	LID       uint16
	ActiveMTU int // libibverbs' number: 1 = 256 bytes .. 5 = 4096
	GIDs      int // length of the table
	Ethernet  bool
}

// Cap is a queue pair's capabilities.
type Cap struct{ SendWR, RecvWR, Inline int }

// Connect takes a queue pair to RTS.
type Connect struct {
	Port        uint8
	GIDIndex    uint8
	Global      bool // address by GID: always on Ethernet
	MTU         int  // libibverbs' number
	LocalPSN    uint32
	RemoteGID   [16]byte
	RemoteLID   uint16
	RemoteQPN   uint32
	RemotePSN   uint32
	MinRNRTimer uint8 // 12 = 0.64 ms, in the table of the InfiniBand specification
	RNRRetry    uint8
	RetryCount  uint8
	Timeout     uint8
}

// Flags of a SendWR, with libibverbs' values.
const (
	Signaled  = 1 << 1
	Solicited = 1 << 2
	Inline    = 1 << 3
)

// Opcodes of a SendWR, with libibverbs' values.
const (
	RDMAWrite   = 0
	Send        = 2
	SendWithImm = 3
)

// A SendWR is a send request without Go pointers; its layout is shim_send's.
type SendWR struct {
	ID, Addr, RemoteAddr                uint64
	Len, LKey, RKey, Opcode, Flags, Imm uint32
}

// A RecvWR is a receive request without Go pointers; its layout is shim_recv's.
type RecvWR struct {
	ID, Addr  uint64
	Len, LKey uint32
}

// A WC is a completion; its layout is shim_wc's.
type WC struct {
	ID             uint64
	ByteLen        int64
	Status         int32
	QPN, Imm       uint32
	IsRecv, HasImm bool
}
