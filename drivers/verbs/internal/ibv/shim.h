// C side of the binding: libibverbs' functions by dlsym, and batches that cross
// between Go and C once. Functions return 0 or a positive errno unless said
// otherwise.
#ifndef RDMATUNE_SHIM_H
#define RDMATUNE_SHIM_H

#include "abi.h"

// Work requests and completions without pointers, filled and read by Go; immediate
// data is in host order.
struct shim_send {
	uint64_t id, addr, remote_addr;
	uint32_t len, lkey, rkey, opcode, flags, imm;
};

struct shim_recv {
	uint64_t id, addr;
	uint32_t len, lkey;
};

struct shim_wc {
	uint64_t id;
	int64_t byte_len;
	int32_t status;
	uint32_t qpn, imm;
	uint8_t is_recv, has_imm;
};

// Most entries that one call takes.
enum { SHIM_BATCH = 64 };

// Returns 0, or -1 with a text in err.
int shim_load(char *err, int n);

// Fills names with up to max device names of 64 bytes; returns how many devices
// there are, or -errno.
int shim_devices(char (*names)[64], int max);
int shim_open(const char *name, struct abi_context **ctx);
int shim_close(struct abi_context *ctx);
int shim_query_device(struct abi_context *ctx, struct abi_device_attr *attr);
int shim_query_port(struct abi_context *ctx, uint8_t port, struct abi_port_attr *attr);
int shim_query_gid(struct abi_context *ctx, uint8_t port, int index, uint8_t gid[16]);

int shim_alloc_pd(struct abi_context *ctx, void **pd);
int shim_dealloc_pd(void *pd);
int shim_reg_mr(void *pd, void *addr, size_t len, int access, struct abi_mr **mr);
// Whether the library has ibv_reg_dmabuf_mr (rdma-core 34).
int shim_has_dmabuf(void);
int shim_reg_dmabuf_mr(void *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access, struct abi_mr **mr);
int shim_dereg_mr(struct abi_mr *mr);

int shim_create_channel(struct abi_context *ctx, struct abi_comp_channel **ch);
int shim_destroy_channel(struct abi_comp_channel *ch);
// Takes and acknowledges every event that waits on the non-blocking channel;
// returns how many, or -errno.
int shim_take_events(struct abi_comp_channel *ch);

// Takes and acknowledges one asynchronous event: its type and, of a queue pair or a
// port, the number. EAGAIN: none waits on the non-blocking descriptor.
int shim_take_async(struct abi_context *ctx, int *type, uint32_t *number);

int shim_create_cq(struct abi_context *ctx, int cqe, struct abi_comp_channel *ch, int vector, struct abi_cq **cq);
int shim_destroy_cq(struct abi_cq *cq);
int shim_req_notify(struct abi_cq *cq, int solicited);
// EOPNOTSUPP where the library or the device cannot.
int shim_moderate(struct abi_cq *cq, uint16_t count, uint16_t period_usec);
// Polls up to tries times, until there is something. Returns how many entries of wc
// it filled, at most SHIM_BATCH, or negative.
int shim_poll(struct abi_cq *cq, int n, struct shim_wc *wc, int tries);

int shim_create_qp(void *pd, struct abi_qp_init_attr *attr, struct abi_qp **qp);
int shim_destroy_qp(struct abi_qp *qp);
int shim_modify_qp(struct abi_qp *qp, struct abi_qp_attr *attr, int mask);
int shim_query_qp(struct abi_qp *qp, struct abi_qp_attr *attr, struct abi_qp_init_attr *init);
// Post up to SHIM_BATCH requests. The result is how many the device took, times
// 2^32, plus the errno: a result by pointer would cost Go an allocation.
int64_t shim_post_send(struct abi_qp *qp, int n, const struct shim_send *wrs);
int64_t shim_post_recv(struct abi_qp *qp, int n, const struct shim_recv *wrs);

#endif
