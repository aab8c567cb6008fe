package verbs

import "fmt"

// An Event is an asynchronous event of a device.
type Event struct {
	Kind EventKind
	Port uint8  // of a port's event
	QPN  uint32 // of a queue pair's event
}

// EventKind says what happened, with libibverbs' numbers.
type EventKind int

// The events that mean something for connections; providers deliver no others.
const (
	EventCQError     EventKind = 0  // a completion queue overflowed: its queue pairs are lost
	EventQPFatal     EventKind = 1  // the queue pair is lost
	EventQPRequest   EventKind = 2  // the peer asked for what is not allowed: the queue pair is lost
	EventQPAccess    EventKind = 3  // the peer wrote where it may not: the queue pair is lost
	EventDeviceFatal EventKind = 8  // nothing on the device works any more
	EventPortActive  EventKind = 9  // the port's link is up again
	EventPortError   EventKind = 10 // the port's link is down
	EventGIDChange   EventKind = 18 // the port's addresses changed
)

// String says what happened and to what.
func (e Event) String() string {
	switch e.Kind {
	case EventCQError:
		return "completion queue overflowed"
	case EventQPFatal:
		return fmt.Sprintf("queue pair %#x: fatal error", e.QPN)
	case EventQPRequest:
		return fmt.Sprintf("queue pair %#x: invalid request of the peer", e.QPN)
	case EventQPAccess:
		return fmt.Sprintf("queue pair %#x: access violation of the peer", e.QPN)
	case EventDeviceFatal:
		return "device: fatal error"
	case EventPortActive:
		return fmt.Sprintf("port %d: active", e.Port)
	case EventPortError:
		return fmt.Sprintf("port %d: down", e.Port)
	case EventGIDChange:
		return fmt.Sprintf("port %d: addresses changed", e.Port)
	}
	return fmt.Sprintf("event %d", int(e.Kind))
}

// Known reports whether the kind is one of the above.
func (k EventKind) Known() bool {
	switch k {
	case EventCQError, EventQPFatal, EventQPRequest, EventQPAccess,
		EventDeviceFatal, EventPortActive, EventPortError, EventGIDChange:
		return true
	}
	return false
}

// eventRoom is how many events wait for the reader of Device.Events.
const eventRoom = 16

// An EventQueue is a provider's side of Device.Events. One goroutine at a time may
// use Put and Close.
type EventQueue chan Event

// NewEventQueue returns an empty queue.
func NewEventQueue() EventQueue { return make(EventQueue, eventRoom) }

// Put adds an event; when the queue is full the oldest is dropped.
func (q EventQueue) Put(e Event) {
	for {
		select {
		case q <- e:
			return
		default:
		}
		select {
		case <-q:
		default: // the reader was quicker
		}
	}
}
