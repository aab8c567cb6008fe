// The part of libibverbs' binary interface that the binding uses, so that it
// builds without the library's headers. Every layout here has been fixed since
// IBVERBS_1.1 (2006); testdata/abi_check.c compares each of them with the real
// header. LP64 only.
#ifndef RDMATUNE_ABI_H
#define RDMATUNE_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct abi_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct abi_send_wr {
	uint64_t wr_id;
	struct abi_send_wr *next;
	struct abi_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	uint32_t imm; // in network order, as in abi_wc
	uint64_t remote_addr; // of an RDMA write, as is rkey
	uint32_t rkey;
	uint8_t other[76]; // operands of other opcodes
};

struct abi_recv_wr {
	uint64_t wr_id;
	struct abi_recv_wr *next;
	struct abi_sge *sg_list;
	int num_sge;
};

struct abi_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint8_t other[8];
};

struct abi_cq;
struct abi_qp;

// Posting and polling have no symbol: they are calls through the context.
struct abi_context {
	void *device;
	void *ops0[11];
	int (*poll_cq)(struct abi_cq *, int, struct abi_wc *);
	int (*req_notify_cq)(struct abi_cq *, int);
	void *ops1[12];
	int (*post_send)(struct abi_qp *, struct abi_send_wr *, struct abi_send_wr **);
	int (*post_recv)(struct abi_qp *, struct abi_recv_wr *, struct abi_recv_wr **);
	void *ops2[5];
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; // ABI_EXTENDED: the context is the end of an abi_extended
};

#define ABI_EXTENDED ((void *)UINTPTR_MAX)

struct abi_modify_cq_attr {
	uint32_t attr_mask;
	uint16_t cq_count;
	uint16_t cq_period; // us
};

// What stands before a context. New fields come first, so that places count from
// the end; sz tells how much there is.
struct abi_extended {
	int (*modify_cq)(struct abi_cq *, struct abi_modify_cq_attr *);
	void *other[21];
	size_t sz;
	struct abi_context context;
};

struct abi_cq {
	struct abi_context *context;
	void *other[2];
	uint32_t handle;
	int cqe;
};

struct abi_qp {
	struct abi_context *context;
	void *other[5];
	uint32_t handle;
	uint32_t qp_num;
};

struct abi_mr {
	struct abi_context *context;
	void *other[3];
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct abi_async_event {
	union {
		struct abi_qp *qp;
		int port_num;
	} element;
	int event_type;
};

struct abi_comp_channel {
	struct abi_context *context;
	int fd;
};

struct abi_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct abi_qp_init_attr {
	void *qp_context;
	struct abi_cq *send_cq;
	struct abi_cq *recv_cq;
	void *srq;
	struct abi_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

struct abi_ah_attr {
	uint64_t dgid[2]; // 16 bytes in network order
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct abi_qp_attr {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct abi_qp_cap cap;
	struct abi_ah_attr ah;
	struct abi_ah_attr alt_ah;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct abi_port_attr {
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t other[4];
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint8_t other2[10];
	uint8_t link_layer;
	uint8_t later[80]; // fields that newer libraries may fill
};

struct abi_device_attr {
	char fw_ver[64];
	uint64_t node_guid; // big endian
	uint64_t other[3];
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int caps;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	uint8_t later[216]; // the rest, and room
};

enum {
	ABI_QPS_RESET = 0, ABI_QPS_INIT, ABI_QPS_RTR, ABI_QPS_RTS, ABI_QPS_SQD, ABI_QPS_SQE, ABI_QPS_ERR,
	ABI_QPT_RC = 2,
	ABI_WR_RDMA_WRITE = 0, ABI_WR_SEND = 2, ABI_WR_SEND_WITH_IMM = 3,
	ABI_WC_RECV = 1 << 7,
	ABI_WC_WITH_IMM = 1 << 1, // of wc_flags
	ABI_SEND_SIGNALED = 1 << 1, ABI_SEND_SOLICITED = 1 << 2, ABI_SEND_INLINE = 1 << 3,
	ABI_ACCESS_LOCAL_WRITE = 1 << 0, ABI_ACCESS_REMOTE_WRITE = 1 << 1,
	ABI_CQ_ATTR_MODERATE = 1 << 0,
	ABI_EVENT_CQ_ERR = 0, ABI_EVENT_QP_FATAL, ABI_EVENT_QP_REQ_ERR, ABI_EVENT_QP_ACCESS_ERR,
	ABI_EVENT_DEVICE_FATAL = 8, ABI_EVENT_PORT_ACTIVE, ABI_EVENT_PORT_ERR,
	ABI_EVENT_GID_CHANGE = 18,
	ABI_PORT_ACTIVE = 4,
	ABI_LINK_LAYER_ETHERNET = 2,
	ABI_QP_STATE = 1 << 0, ABI_QP_ACCESS_FLAGS = 1 << 3, ABI_QP_PKEY_INDEX = 1 << 4, ABI_QP_PORT = 1 << 5,
	ABI_QP_AV = 1 << 7, ABI_QP_PATH_MTU = 1 << 8, ABI_QP_TIMEOUT = 1 << 9, ABI_QP_RETRY_CNT = 1 << 10,
	ABI_QP_RNR_RETRY = 1 << 11, ABI_QP_RQ_PSN = 1 << 12, ABI_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	ABI_QP_MIN_RNR_TIMER = 1 << 15, ABI_QP_SQ_PSN = 1 << 16, ABI_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	ABI_QP_CAP = 1 << 19, ABI_QP_DEST_QPN = 1 << 20,
};

#endif
