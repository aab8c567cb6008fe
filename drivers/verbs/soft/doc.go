// Package soft is a verbs provider in pure Go over TCP, for machines without an
// RDMA device. It keeps the semantics of a reliable connected queue pair: order
// per queue pair, posted receives, bounded queues that answer ENOMEM, completions
// that arrive when the peer has the data in memory, slots that only a signaled
// completion frees, granted capabilities that differ from those asked for, flush
// in the error state, receiver-not-ready retries, solicited events and moderation.
//
// A queue pair sends on a TCP connection that it dials when it goes to RTS and
// receives on the one that its peer dials; acknowledgements travel against the
// data. The device listens on the address of each GID in use.
package soft
