#include "shim.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct abi_device;

static struct {
	struct abi_device **(*get_device_list)(int *);
	void (*free_device_list)(struct abi_device **);
	const char *(*get_device_name)(struct abi_device *);
	struct abi_context *(*open_device)(struct abi_device *);
	int (*close_device)(struct abi_context *);
	int (*query_device)(struct abi_context *, struct abi_device_attr *);
	int (*query_port)(struct abi_context *, uint8_t, struct abi_port_attr *);
	int (*query_gid)(struct abi_context *, uint8_t, int, void *);
	void *(*alloc_pd)(struct abi_context *);
	int (*dealloc_pd)(void *);
	struct abi_mr *(*reg_mr)(void *, void *, size_t, int);
	struct abi_mr *(*reg_dmabuf_mr)(void *, uint64_t, size_t, uint64_t, int, int); // NULL in old libraries
	int (*dereg_mr)(struct abi_mr *);
	struct abi_comp_channel *(*create_comp_channel)(struct abi_context *);
	int (*destroy_comp_channel)(struct abi_comp_channel *);
	int (*get_cq_event)(struct abi_comp_channel *, struct abi_cq **, void **);
	int (*get_async_event)(struct abi_context *, struct abi_async_event *);
	void (*ack_async_event)(struct abi_async_event *);
	void (*ack_cq_events)(struct abi_cq *, unsigned int);
	struct abi_cq *(*create_cq)(struct abi_context *, int, void *, struct abi_comp_channel *, int);
	int (*destroy_cq)(struct abi_cq *);
	struct abi_qp *(*create_qp)(void *, struct abi_qp_init_attr *);
	int (*destroy_qp)(struct abi_qp *);
	int (*modify_qp)(struct abi_qp *, struct abi_qp_attr *, int);
	int (*query_qp)(struct abi_qp *, struct abi_qp_attr *, int, struct abi_qp_init_attr *);
} f;

// Without a version dlsym gives the default one, which is the one that programs
// linked today get.
int shim_load(char *err, int n)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(err, n, "%s", dlerror());
		return -1;
	}
	const struct {
		const char *name;
		void *to;
	} symbols[] = {
		{"ibv_get_device_list", &f.get_device_list},
		{"ibv_free_device_list", &f.free_device_list},
		{"ibv_get_device_name", &f.get_device_name},
		{"ibv_open_device", &f.open_device},
		{"ibv_close_device", &f.close_device},
		{"ibv_query_device", &f.query_device},
		{"ibv_query_port", &f.query_port},
		{"ibv_query_gid", &f.query_gid},
		{"ibv_alloc_pd", &f.alloc_pd},
		{"ibv_dealloc_pd", &f.dealloc_pd},
		{"ibv_reg_mr", &f.reg_mr},
		{"ibv_dereg_mr", &f.dereg_mr},
		{"ibv_create_comp_channel", &f.create_comp_channel},
		{"ibv_destroy_comp_channel", &f.destroy_comp_channel},
		{"ibv_get_cq_event", &f.get_cq_event},
		{"ibv_get_async_event", &f.get_async_event},
		{"ibv_ack_async_event", &f.ack_async_event},
		{"ibv_ack_cq_events", &f.ack_cq_events},
		{"ibv_create_cq", &f.create_cq},
		{"ibv_destroy_cq", &f.destroy_cq},
		{"ibv_create_qp", &f.create_qp},
		{"ibv_destroy_qp", &f.destroy_qp},
		{"ibv_modify_qp", &f.modify_qp},
		{"ibv_query_qp", &f.query_qp},
	};
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *s = dlsym(lib, symbols[i].name);
		if (!s) {
			snprintf(err, n, "libibverbs.so.1 has no %s", symbols[i].name);
			dlclose(lib);
			return -1;
		}
		memcpy(symbols[i].to, &s, sizeof s);
	}
	void *s = dlsym(lib, "ibv_reg_dmabuf_mr");
	memcpy(&f.reg_dmabuf_mr, &s, sizeof s);
	return 0;
}

// Some providers fail without setting errno.
static int error(void)
{
	return errno ? errno : EIO;
}

// Those that return an error return it positive, or -1 with errno.
static int result(int rc)
{
	return rc < 0 ? error() : rc;
}

int shim_devices(char (*names)[64], int max)
{
	int n = 0;
	errno = 0;
	struct abi_device **list = f.get_device_list(&n);
	if (!list)
		return -error();
	for (int i = 0; i < n && i < max; i++)
		snprintf(names[i], sizeof names[i], "%s", f.get_device_name(list[i]));
	f.free_device_list(list);
	return n;
}

int shim_open(const char *name, struct abi_context **ctx)
{
	int n = 0, rc = ENODEV;
	errno = 0;
	struct abi_device **list = f.get_device_list(&n);
	if (!list)
		return error();
	for (int i = 0; i < n; i++) {
		if (strcmp(f.get_device_name(list[i]), name) != 0)
			continue;
		errno = 0;
		*ctx = f.open_device(list[i]);
		rc = *ctx ? 0 : error();
		break;
	}
	f.free_device_list(list);
	return rc;
}

int shim_close(struct abi_context *ctx)
{
	return result(f.close_device(ctx));
}

int shim_query_device(struct abi_context *ctx, struct abi_device_attr *attr)
{
	return result(f.query_device(ctx, attr));
}

int shim_query_port(struct abi_context *ctx, uint8_t port, struct abi_port_attr *attr)
{
	return result(f.query_port(ctx, port, attr));
}

int shim_query_gid(struct abi_context *ctx, uint8_t port, int index, uint8_t gid[16])
{
	errno = 0;
	return result(f.query_gid(ctx, port, index, gid));
}

int shim_alloc_pd(struct abi_context *ctx, void **pd)
{
	errno = 0;
	*pd = f.alloc_pd(ctx);
	return *pd ? 0 : error();
}

int shim_dealloc_pd(void *pd)
{
	return result(f.dealloc_pd(pd));
}

int shim_reg_mr(void *pd, void *addr, size_t len, int access, struct abi_mr **mr)
{
	errno = 0;
	*mr = f.reg_mr(pd, addr, len, access);
	return *mr ? 0 : error();
}

int shim_has_dmabuf(void)
{
	return f.reg_dmabuf_mr != NULL;
}

int shim_reg_dmabuf_mr(void *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access, struct abi_mr **mr)
{
	errno = 0;
	*mr = f.reg_dmabuf_mr(pd, offset, len, iova, fd, access);
	return *mr ? 0 : error();
}

int shim_dereg_mr(struct abi_mr *mr)
{
	return result(f.dereg_mr(mr));
}

int shim_create_channel(struct abi_context *ctx, struct abi_comp_channel **ch)
{
	errno = 0;
	*ch = f.create_comp_channel(ctx);
	return *ch ? 0 : error();
}

int shim_destroy_channel(struct abi_comp_channel *ch)
{
	return result(f.destroy_comp_channel(ch));
}

int shim_take_events(struct abi_comp_channel *ch)
{
	int n = 0;
	for (;;) {
		struct abi_cq *cq;
		void *context;
		errno = 0;
		if (f.get_cq_event(ch, &cq, &context)) {
			if (errno == EAGAIN || errno == EINTR)
				return n;
			return -error();
		}
		f.ack_cq_events(cq, 1);
		n++;
	}
}

int shim_take_async(struct abi_context *ctx, int *type, uint32_t *number)
{
	struct abi_async_event ev;
	errno = 0;
	if (f.get_async_event(ctx, &ev))
		return error();
	*type = ev.event_type;
	*number = 0;
	switch (ev.event_type) {
	case ABI_EVENT_QP_FATAL:
	case ABI_EVENT_QP_REQ_ERR:
	case ABI_EVENT_QP_ACCESS_ERR:
		// The queue pair is there until its event is acknowledged.
		*number = ev.element.qp->qp_num;
		break;
	case ABI_EVENT_PORT_ACTIVE:
	case ABI_EVENT_PORT_ERR:
	case ABI_EVENT_GID_CHANGE:
		*number = ev.element.port_num;
	}
	f.ack_async_event(&ev);
	return 0;
}

int shim_create_cq(struct abi_context *ctx, int cqe, struct abi_comp_channel *ch, int vector, struct abi_cq **cq)
{
	errno = 0;
	*cq = f.create_cq(ctx, cqe, NULL, ch, vector);
	return *cq ? 0 : error();
}

int shim_destroy_cq(struct abi_cq *cq)
{
	return result(f.destroy_cq(cq));
}

int shim_req_notify(struct abi_cq *cq, int solicited)
{
	return result(cq->context->req_notify_cq(cq, solicited));
}

int shim_moderate(struct abi_cq *cq, uint16_t count, uint16_t period_usec)
{
	struct abi_context *ctx = cq->context;
	if (ctx->abi_compat != ABI_EXTENDED)
		return EOPNOTSUPP;
	struct abi_extended *ext = (void *)((char *)ctx - offsetof(struct abi_extended, context));
	if (ext->sz < sizeof *ext || !ext->modify_cq)
		return EOPNOTSUPP;
	struct abi_modify_cq_attr attr = {ABI_CQ_ATTR_MODERATE, count, period_usec};
	errno = 0;
	return result(ext->modify_cq(cq, &attr));
}

int shim_poll(struct abi_cq *cq, int max, struct shim_wc *out, int tries)
{
	struct abi_wc wc[SHIM_BATCH];
	if (max > SHIM_BATCH)
		max = SHIM_BATCH;
	int n;
	do
		n = cq->context->poll_cq(cq, max, wc);
	while (n == 0 && --tries > 0);
	for (int i = 0; i < n; i++) {
		out[i].id = wc[i].wr_id;
		out[i].status = wc[i].status;
		out[i].byte_len = wc[i].byte_len;
		out[i].qpn = wc[i].qp_num;
		out[i].imm = ntohl(wc[i].imm);
		out[i].is_recv = (wc[i].opcode & ABI_WC_RECV) != 0;
		// Some devices set the flag for the sender as well.
		out[i].has_imm = out[i].is_recv && (wc[i].wc_flags & ABI_WC_WITH_IMM);
	}
	return n;
}

int shim_create_qp(void *pd, struct abi_qp_init_attr *attr, struct abi_qp **qp)
{
	errno = 0;
	*qp = f.create_qp(pd, attr);
	return *qp ? 0 : error();
}

int shim_destroy_qp(struct abi_qp *qp)
{
	return result(f.destroy_qp(qp));
}

int shim_modify_qp(struct abi_qp *qp, struct abi_qp_attr *attr, int mask)
{
	errno = 0;
	return result(f.modify_qp(qp, attr, mask));
}

int shim_query_qp(struct abi_qp *qp, struct abi_qp_attr *attr, struct abi_qp_init_attr *init)
{
	errno = 0;
	return result(f.query_qp(qp, attr, ABI_QP_STATE | ABI_QP_CAP, init));
}

int64_t shim_post_send(struct abi_qp *qp, int n, const struct shim_send *wrs)
{
	struct abi_send_wr wr[SHIM_BATCH], *bad = NULL;
	struct abi_sge sge[SHIM_BATCH];
	if (n < 1 || n > SHIM_BATCH)
		return EINVAL;
	for (int i = 0; i < n; i++) {
		sge[i] = (struct abi_sge){wrs[i].addr, wrs[i].len, wrs[i].lkey};
		// The operands of other opcodes need no clearing.
		wr[i].wr_id = wrs[i].id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = wrs[i].opcode;
		wr[i].send_flags = wrs[i].flags;
		wr[i].imm = htonl(wrs[i].imm);
		wr[i].remote_addr = wrs[i].remote_addr;
		wr[i].rkey = wrs[i].rkey;
	}
	int rc = result(qp->context->post_send(qp, wr, &bad));
	int64_t taken = rc == 0 ? n : bad ? bad - wr : 0;
	return taken << 32 | rc;
}

int64_t shim_post_recv(struct abi_qp *qp, int n, const struct shim_recv *wrs)
{
	struct abi_recv_wr wr[SHIM_BATCH], *bad = NULL;
	struct abi_sge sge[SHIM_BATCH];
	if (n < 1 || n > SHIM_BATCH)
		return EINVAL;
	for (int i = 0; i < n; i++) {
		sge[i] = (struct abi_sge){wrs[i].addr, wrs[i].len, wrs[i].lkey};
		wr[i] = (struct abi_recv_wr){wrs[i].id, i + 1 < n ? &wr[i + 1] : NULL, &sge[i], 1};
	}
	int rc = result(qp->context->post_recv(qp, wr, &bad));
	int64_t taken = rc == 0 ? n : bad ? bad - wr : 0;
	return taken << 32 | rc;
}
