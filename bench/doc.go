// Package bench measures round trips over a connection and proves that no message
// of it was lost, repeated, reordered or damaged, also while the connection's path
// is switched underneath.
//
// A client sends numbered, checksummed messages; the server answers each with a message
// of the same size and a number of its own, or, in a stream, says in the end what came.
// Both ends keep account of what they receive by number and checksum alone. In round
// trips one message is under way at a time on each connection.
//
// The wire: a message begins with the CRC-32C of everything else that it stands for,
// then the low half of its number, both little-endian, then the payload. The number
// 2^32-1 marks a control message, whose payload is JSON; no test message has it.
package bench

import "context"

// A Conn carries whole messages, in order. Send and Recv may be used at the same time,
// each by one goroutine.
type Conn interface {
	// Send sends msg; msg may be reused on return.
	Send(ctx context.Context, msg []byte) error
	// Recv receives the next message into buf and returns its size; a message that
	// does not fit is an error.
	Recv(ctx context.Context, buf []byte) (int, error)
	Close() error
}

// A fullCounter is a Conn that counts how often a Send had to wait for room.
type fullCounter interface{ FullEvents() uint64 }

// Limits. A server allocates two sets of buffers for each client, of MaxSize each at
// most, so MaxSize and MaxClients bound its memory to 1 GiB.
const (
	MinSize     = header   // bytes; a message must hold its number and checksum
	MaxSize     = 64 << 20 // bytes
	MaxSizes    = 64
	MaxClients  = 8
	MaxWarmup   = 1_000_000
	MaxRounds   = 10_000
	MaxInFlight = 256
	MaxBurst    = 4096
)
