// Package rdmanl lists RDMA devices and what is allocated on them (queue pairs,
// completion queues, memory regions, contexts, connection ids) by RDMA netlink, the
// kernel interface behind rdma(8) (drivers/infiniband/core/nldev.c; constants from
// include/uapi/rdma/rdma_netlink.h).
//
// The kernel tells who made a thing: a kernel module by its name, or a process by
// the id of the thread that made it, as the reader's pid namespace has it. It tells
// neither when that thread is dead or is of a pid namespace that the reader cannot
// see. Inline sizes, queue depths and completion vectors are not told at all.
package rdmanl
