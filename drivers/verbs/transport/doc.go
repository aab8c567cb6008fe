// Package transport is connections between processes over RDMA queue pairs:
// messages of any size up to MaxMessage, exactly once while the connection lives.
// How a connection is set up follows a hint of the message sizes to come, and can be
// changed to follow another one while traffic runs.
//
// # Messages
//
// Open a device, then Listen and Dial; Send and Recv move whole messages. Any number
// of goroutines may do either: the order of their messages is the order in which they
// got their turn. Three tiers carry messages, by size (Conn.Info says where the
// limits are):
//
//   - inline: copied into the work request; up to what the device was found to grant,
//     less the header, which is counted wherever it is.
//   - eager: copied into registered buffers at both ends; up to the hint and what the
//     peer's buffers hold.
//   - rendezvous: nothing is copied. The sender offers the message; when a Recv has a
//     buffer for it, the receiver answers with its address, and the sender writes
//     segments of 64 KiB from the one memory into the other, as many at a time as the
//     lane is deep. As many messages are in flight as there are callers of Send and
//     Recv, up to eight in a direction.
//
// Send returns once a copied message is posted, or once one by rendezvous has arrived.
// Close waits until everything has arrived. When a connection ends otherwise, a
// *ConnError counts which messages were delivered, which were not, and of which that
// is unknown.
//
// # Lanes and order
//
// Without a hint a connection has one lane, set up for everything: a deep queue with
// few signaled completions. With a hint it is low latency: a shallow queue,
// everything small inline, each completion signaled. One such lane carries all sizes,
// and large messages cost it their bandwidth. With two lanes, messages above the hint
// have a deep one of their own, for the price of its queue pair and memory. Each end
// chooses for what it sends.
//
// Every message has a sequence number, and delivery follows that alone, whatever lane
// it came on. It travels with the rest of the header in the send's immediate data, as
// the distance from the message before it on the lane; for an empty message and one
// that is far from the one before, in a header of 16 bytes in front. An end whose settings
// say ordered = false lets its small messages pass its large ones; then the messages of
// each lane keep their order.
//
// # Memory
//
// Buffers from Transport.Register are registered once: rendezvous of any part of them
// registers nothing and allocates nothing. Any other memory is pinned and registered
// for the duration of the call, which costs system calls. While Recv waits for a
// rendezvous that it has answered, the peer writes to the memory: it returns when that
// is over, not when its context ends. A Buffer is lent as a whole: until its Close, a
// peer that was told of a part of it could write to all of it, so connect to programs
// that you trust that far.
//
// # Flow control
//
// A receiver grants as many messages as it has receive buffers, and a buffer again
// when Recv has copied it out, so that no message ever finds a receiver without one.
// Send blocks while there is no room, TrySend returns ErrWouldBlock.
//
// # Two channels
//
// The control channel is TCP: hello, the messages of a switch that need no order with
// the data, the farewell. Its keep-alive probes tell a dead peer from a stalled one. All
// else is on the lanes. On a device, where no send completes for as long, the path is
// taken for dead, and a pause is marked on its lane, so that the peer sees whether all is
// there. The soft provider's lanes are TCP themselves, and its peer's process acknowledges,
// which may be stopped: there a stalled peer is not taken for a dead one.
//
// # Being seen
//
// Open serves a control socket in rdmatune's run directory, unless Options say otherwise:
// there `rdmatune connections` and `plan` see the process, and `apply` orders it to follow
// another hint. The hint that was published for the process's workload is read there too.
package transport
