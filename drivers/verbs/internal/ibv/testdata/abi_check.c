// Compiled by TestABI against the real header: a difference is an error here.
#include <infiniband/verbs.h>
#include "../abi.h"

#define SIZE(a, r) _Static_assert(sizeof(struct a) == sizeof(struct r), "size of " #r)
#define ROOM(a, r) _Static_assert(sizeof(struct a) >= sizeof(struct r), "room for " #r)
#define AT(a, f, r, g) \
	_Static_assert(offsetof(struct a, f) == offsetof(struct r, g), "offset of " #r "." #g); \
	_Static_assert(sizeof(((struct a *)0)->f) == sizeof(((struct r *)0)->g), "size of " #r "." #g)
#define SAME(a, r, f) AT(a, f, r, f)
#define VALUE(n) _Static_assert((int)ABI_##n == (int)IBV_##n, #n)

SIZE(abi_sge, ibv_sge);
SAME(abi_sge, ibv_sge, addr);
SAME(abi_sge, ibv_sge, length);
SAME(abi_sge, ibv_sge, lkey);

SIZE(abi_send_wr, ibv_send_wr);
SAME(abi_send_wr, ibv_send_wr, wr_id);
SAME(abi_send_wr, ibv_send_wr, next);
SAME(abi_send_wr, ibv_send_wr, sg_list);
SAME(abi_send_wr, ibv_send_wr, num_sge);
SAME(abi_send_wr, ibv_send_wr, opcode);
SAME(abi_send_wr, ibv_send_wr, send_flags);
AT(abi_send_wr, imm, ibv_send_wr, imm_data);
AT(abi_send_wr, remote_addr, ibv_send_wr, wr.rdma.remote_addr);
AT(abi_send_wr, rkey, ibv_send_wr, wr.rdma.rkey);

SIZE(abi_recv_wr, ibv_recv_wr);
SAME(abi_recv_wr, ibv_recv_wr, wr_id);
SAME(abi_recv_wr, ibv_recv_wr, next);
SAME(abi_recv_wr, ibv_recv_wr, sg_list);
SAME(abi_recv_wr, ibv_recv_wr, num_sge);

SIZE(abi_wc, ibv_wc);
SAME(abi_wc, ibv_wc, wr_id);
SAME(abi_wc, ibv_wc, status);
SAME(abi_wc, ibv_wc, opcode);
SAME(abi_wc, ibv_wc, vendor_err);
SAME(abi_wc, ibv_wc, byte_len);
AT(abi_wc, imm, ibv_wc, imm_data);
SAME(abi_wc, ibv_wc, qp_num);
SAME(abi_wc, ibv_wc, wc_flags);

AT(abi_context, poll_cq, ibv_context, ops.poll_cq);
AT(abi_context, req_notify_cq, ibv_context, ops.req_notify_cq);
AT(abi_context, post_send, ibv_context, ops.post_send);
AT(abi_context, post_recv, ibv_context, ops.post_recv);
SAME(abi_context, ibv_context, cmd_fd);
SAME(abi_context, ibv_context, async_fd);
SAME(abi_context, ibv_context, num_comp_vectors);
SAME(abi_context, ibv_context, abi_compat);
SIZE(abi_context, ibv_context);
_Static_assert(ABI_EXTENDED == __VERBS_ABI_IS_EXTENDED, "mark of the extended context");

// The extended context grows at its start.
#define BEFORE(f) \
	_Static_assert(offsetof(struct abi_extended, context) - offsetof(struct abi_extended, f) == \
		offsetof(struct verbs_context, context) - offsetof(struct verbs_context, f), "place of verbs_context." #f)
BEFORE(modify_cq);
BEFORE(sz);

SIZE(abi_modify_cq_attr, ibv_modify_cq_attr);
SAME(abi_modify_cq_attr, ibv_modify_cq_attr, attr_mask);
AT(abi_modify_cq_attr, cq_count, ibv_modify_cq_attr, moderate.cq_count);
AT(abi_modify_cq_attr, cq_period, ibv_modify_cq_attr, moderate.cq_period);

SIZE(abi_async_event, ibv_async_event);
SAME(abi_async_event, ibv_async_event, element);
SAME(abi_async_event, ibv_async_event, event_type);

SAME(abi_cq, ibv_cq, context);
SAME(abi_cq, ibv_cq, cqe);
SAME(abi_qp, ibv_qp, context);
SAME(abi_qp, ibv_qp, qp_num);
SAME(abi_mr, ibv_mr, lkey);
SAME(abi_mr, ibv_mr, rkey);
SAME(abi_comp_channel, ibv_comp_channel, fd);

SIZE(abi_qp_cap, ibv_qp_cap);
SAME(abi_qp_cap, ibv_qp_cap, max_send_wr);
SAME(abi_qp_cap, ibv_qp_cap, max_recv_wr);
SAME(abi_qp_cap, ibv_qp_cap, max_send_sge);
SAME(abi_qp_cap, ibv_qp_cap, max_recv_sge);
SAME(abi_qp_cap, ibv_qp_cap, max_inline_data);

SIZE(abi_qp_init_attr, ibv_qp_init_attr);
SAME(abi_qp_init_attr, ibv_qp_init_attr, send_cq);
SAME(abi_qp_init_attr, ibv_qp_init_attr, recv_cq);
SAME(abi_qp_init_attr, ibv_qp_init_attr, srq);
SAME(abi_qp_init_attr, ibv_qp_init_attr, cap);
SAME(abi_qp_init_attr, ibv_qp_init_attr, qp_type);
SAME(abi_qp_init_attr, ibv_qp_init_attr, sq_sig_all);

SIZE(abi_ah_attr, ibv_ah_attr);
AT(abi_ah_attr, dgid, ibv_ah_attr, grh.dgid);
AT(abi_ah_attr, sgid_index, ibv_ah_attr, grh.sgid_index);
AT(abi_ah_attr, hop_limit, ibv_ah_attr, grh.hop_limit);
SAME(abi_ah_attr, ibv_ah_attr, dlid);
SAME(abi_ah_attr, ibv_ah_attr, is_global);
SAME(abi_ah_attr, ibv_ah_attr, port_num);

SIZE(abi_qp_attr, ibv_qp_attr);
SAME(abi_qp_attr, ibv_qp_attr, qp_state);
SAME(abi_qp_attr, ibv_qp_attr, path_mtu);
SAME(abi_qp_attr, ibv_qp_attr, rq_psn);
SAME(abi_qp_attr, ibv_qp_attr, sq_psn);
SAME(abi_qp_attr, ibv_qp_attr, dest_qp_num);
SAME(abi_qp_attr, ibv_qp_attr, qp_access_flags);
SAME(abi_qp_attr, ibv_qp_attr, cap);
AT(abi_qp_attr, ah, ibv_qp_attr, ah_attr);
SAME(abi_qp_attr, ibv_qp_attr, pkey_index);
SAME(abi_qp_attr, ibv_qp_attr, max_rd_atomic);
SAME(abi_qp_attr, ibv_qp_attr, max_dest_rd_atomic);
SAME(abi_qp_attr, ibv_qp_attr, min_rnr_timer);
SAME(abi_qp_attr, ibv_qp_attr, port_num);
SAME(abi_qp_attr, ibv_qp_attr, timeout);
SAME(abi_qp_attr, ibv_qp_attr, retry_cnt);
SAME(abi_qp_attr, ibv_qp_attr, rnr_retry);

ROOM(abi_port_attr, ibv_port_attr);
SAME(abi_port_attr, ibv_port_attr, state);
SAME(abi_port_attr, ibv_port_attr, active_mtu);
SAME(abi_port_attr, ibv_port_attr, gid_tbl_len);
SAME(abi_port_attr, ibv_port_attr, lid);
SAME(abi_port_attr, ibv_port_attr, link_layer);

ROOM(abi_device_attr, ibv_device_attr);
SAME(abi_device_attr, ibv_device_attr, fw_ver);
SAME(abi_device_attr, ibv_device_attr, node_guid);
SAME(abi_device_attr, ibv_device_attr, vendor_id);
SAME(abi_device_attr, ibv_device_attr, vendor_part_id);
SAME(abi_device_attr, ibv_device_attr, max_qp_wr);
SAME(abi_device_attr, ibv_device_attr, max_sge);
SAME(abi_device_attr, ibv_device_attr, max_cqe);

VALUE(QPS_INIT);
VALUE(QPS_RTR);
VALUE(QPS_RTS);
VALUE(QPS_ERR);
VALUE(QPT_RC);
VALUE(WR_RDMA_WRITE);
VALUE(WR_SEND);
VALUE(WR_SEND_WITH_IMM);
VALUE(WC_RECV);
VALUE(WC_WITH_IMM);
VALUE(SEND_SIGNALED);
VALUE(SEND_SOLICITED);
VALUE(SEND_INLINE);
VALUE(ACCESS_LOCAL_WRITE);
VALUE(ACCESS_REMOTE_WRITE);
VALUE(CQ_ATTR_MODERATE);
VALUE(EVENT_CQ_ERR);
VALUE(EVENT_QP_FATAL);
VALUE(EVENT_QP_REQ_ERR);
VALUE(EVENT_QP_ACCESS_ERR);
VALUE(EVENT_DEVICE_FATAL);
VALUE(EVENT_PORT_ACTIVE);
VALUE(EVENT_PORT_ERR);
VALUE(EVENT_GID_CHANGE);
VALUE(PORT_ACTIVE);
VALUE(LINK_LAYER_ETHERNET);
VALUE(QP_STATE);
VALUE(QP_ACCESS_FLAGS);
VALUE(QP_PKEY_INDEX);
VALUE(QP_PORT);
VALUE(QP_AV);
VALUE(QP_PATH_MTU);
VALUE(QP_TIMEOUT);
VALUE(QP_RETRY_CNT);
VALUE(QP_RNR_RETRY);
VALUE(QP_RQ_PSN);
VALUE(QP_MAX_QP_RD_ATOMIC);
VALUE(QP_MIN_RNR_TIMER);
VALUE(QP_SQ_PSN);
VALUE(QP_MAX_DEST_RD_ATOMIC);
VALUE(QP_CAP);
VALUE(QP_DEST_QPN);

// The completion statuses that package verbs names by number.
_Static_assert(IBV_WC_SUCCESS == 0 && IBV_WC_LOC_LEN_ERR == 1 && IBV_WC_LOC_QP_OP_ERR == 2 && IBV_WC_LOC_PROT_ERR == 4 &&
	IBV_WC_WR_FLUSH_ERR == 5 && IBV_WC_LOC_ACCESS_ERR == 8 && IBV_WC_REM_ACCESS_ERR == 10 && IBV_WC_REM_INV_REQ_ERR == 9 && IBV_WC_REM_OP_ERR == 11 && IBV_WC_RETRY_EXC_ERR == 12 &&
	IBV_WC_RNR_RETRY_EXC_ERR == 13, "completion statuses");
_Static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5, "MTU");
