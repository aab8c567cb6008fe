// Package transport is connections between processes over RDMA queue pairs:
// messages of any size up to MaxMessage, in order, exactly once while the
// connection lives. A connection's lane is set up by a hint of the message sizes to
// come, and can be replaced by one that follows another hint while traffic runs.
//
// A connection has two channels. The control channel is TCP: hello, the messages
// of a switch that need no order with the data, the farewell. Its keep-alive
// probes tell a dead peer from a stalled one. The lane is a queue pair: data
// segments, credits, and the vote and decision of a switch. Every segment carries
// its message's 64-bit sequence, length and offset, and delivery follows these
// alone.
//
// A receiver grants as many segments as it has receive buffers; a segment's buffer
// is granted again when Recv has copied it out. Messages above one segment go as
// several (labelled rendezvous: they wait for the peer's buffers), copied at both
// ends.
package transport
