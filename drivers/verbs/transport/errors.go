package transport

import (
	"errors"
	"fmt"
)

// Errors that Send, Recv, Dial and Close wrap. Match them with errors.Is.
var (
	// ErrClosed: this end closed the connection or transport.
	ErrClosed = errors.New("connection closed")
	// ErrPeerClosed: the peer closed the connection.
	ErrPeerClosed = errors.New("peer closed the connection")
	// ErrPeerGone: the peer's process, host or path died.
	ErrPeerGone = errors.New("peer gone")
	// ErrNoDecision: this end had voted to switch lanes and never heard the
	// decision, so that neither lane is safe.
	ErrNoDecision = errors.New("no decision on a switch after the vote")
	// ErrProtocol: the peer sent what it must not.
	ErrProtocol = errors.New("protocol violation by the peer")
	// ErrRefused: the peer refused the connection.
	ErrRefused = errors.New("connection refused by the peer")
	// ErrTooLarge: a message above MaxMessage, or above what TrySend can send.
	ErrTooLarge = errors.New("message too large")
	// ErrWouldBlock: TrySend found no room.
	ErrWouldBlock = errors.New("send would block")
	// ErrBusy: a Buffer that a Send or Recv uses.
	ErrBusy = errors.New("in use")
	// ErrCopied: a message that was copied on its way cannot be received into a
	// device's memory.
	ErrCopied = errors.New("message was copied")
)

// errRange: no such part of a Buffer.
var errRange = errors.New("out of range")

// errRouted: a switch has changed where a message goes; never returned to the program.
var errRouted = errors.New("routed elsewhere")

// A ConnError says why a connection ended and what became of the messages that
// this end had sent. Delivered ones are in the peer's memory (and, when the peer
// said farewell, were received by its program); NotDelivered ones are not;
// Unknown ones may be either.
type ConnError struct {
	Err          error
	Delivered    uint64
	NotDelivered uint64
	Unknown      uint64
}

// Error returns the reason and, where any message is not known to be delivered, the counts.
func (e *ConnError) Error() string {
	if e.NotDelivered+e.Unknown == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v (messages: %d delivered, %d not delivered, %d unknown)",
		e.Err, e.Delivered, e.NotDelivered, e.Unknown)
}

// Unwrap returns the reason.
func (e *ConnError) Unwrap() error { return e.Err }

// A SizeError is a message that is larger than the buffer given to Recv; the
// message stays and a larger buffer receives it. It wraps io.ErrShortBuffer.
type SizeError struct {
	Size int // bytes of the message
	err  error
}

// Error names the size.
func (e *SizeError) Error() string { return fmt.Sprintf("message of %d bytes: %v", e.Size, e.err) }

// Unwrap returns io.ErrShortBuffer.
func (e *SizeError) Unwrap() error { return e.err }
