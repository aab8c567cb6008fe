//go:build cgo

package ibv

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
// #cgo noescape shim_poll
// #cgo nocallback shim_poll
// #cgo noescape shim_post_send
// #cgo nocallback shim_post_send
// #cgo noescape shim_post_recv
// #cgo nocallback shim_post_recv
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// Built says whether this build has verbs.
const Built = true

// Handles of the library's objects.
type (
	Context struct{ p *C.struct_abi_context }
	PD      struct{ p unsafe.Pointer }
	MR      struct{ p *C.struct_abi_mr }
	Channel struct{ p *C.struct_abi_comp_channel }
	CQ      struct{ p *C.struct_abi_cq }
	QP      struct{ p *C.struct_abi_qp }
)

// load opens the library once.
var load = sync.OnceValue(func() error {
	var text [256]C.char
	if C.shim_load(&text[0], C.int(len(text))) != 0 {
		return fmt.Errorf("no verbs library: %s (install libibverbs1)", C.GoString(&text[0]))
	}
	return nil
})

func check(what string, rc C.int) error {
	if rc == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", what, syscall.Errno(rc))
}

// explain adds what ENOSYS means where the library is there and the kernel's part is not.
func explain(err error) error {
	if errors.Is(err, syscall.ENOSYS) {
		return fmt.Errorf("%w (no RDMA in this kernel: is ib_uverbs loaded?)", err)
	}
	return err
}

// Devices lists the names of the devices.
func Devices() ([]string, error) {
	if err := load(); err != nil {
		return nil, err
	}
	var names [256][64]C.char
	n := C.shim_devices(&names[0], C.int(len(names)))
	if n < 0 {
		return nil, explain(check("list verbs devices", -n))
	}
	out := []string{}
	for i := range min(int(n), len(names)) {
		out = append(out, C.GoString(&names[i][0]))
	}
	return out, nil
}

// Open opens a device; ENODEV when the library finds none of the name.
func Open(name string) (Context, error) {
	if err := load(); err != nil {
		return Context{}, err
	}
	cs := C.CString(name)
	defer C.free(unsafe.Pointer(cs))
	var c Context
	return c, explain(check("open "+name, C.shim_open(cs, &c.p)))
}

// Close closes the device.
func (c Context) Close() error { return check("close device", C.shim_close(c.p)) }

// Query returns the device's attributes.
func (c Context) Query() (DeviceAttr, error) {
	var a C.struct_abi_device_attr
	if err := check("query device", C.shim_query_device(c.p, &a)); err != nil {
		return DeviceAttr{}, err
	}
	a.fw_ver[len(a.fw_ver)-1] = 0
	return DeviceAttr{
		Firmware: C.GoString(&a.fw_ver[0]), NodeGUID: uint64(a.node_guid),
		VendorID: uint32(a.vendor_id), VendorPartID: uint32(a.vendor_part_id),
		MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxCQE: int(a.max_cqe),
		CompVectors: int(c.p.num_comp_vectors),
	}, nil
}

// QueryPort returns a port's attributes.
func (c Context) QueryPort(port uint8) (PortAttr, error) {
	var a C.struct_abi_port_attr
	if err := check("query port", C.shim_query_port(c.p, C.uint8_t(port), &a)); err != nil {
		return PortAttr{}, err
	}
	return PortAttr{
		Active: a.state == C.ABI_PORT_ACTIVE, LID: uint16(a.lid), ActiveMTU: int(a.active_mtu),
		GIDs: int(a.gid_tbl_len), Ethernet: a.link_layer == C.ABI_LINK_LAYER_ETHERNET,
	}, nil
}

// QueryGID returns an entry of a port's GID table.
func (c Context) QueryGID(port uint8, index int) (gid [16]byte, err error) {
	err = check("query gid", C.shim_query_gid(c.p, C.uint8_t(port), C.int(index), (*C.uint8_t)(&gid[0])))
	return gid, err
}

// AsyncFD is the descriptor that asynchronous events come by, owned by the library.
func (c Context) AsyncFD() int { return int(c.p.async_fd) }

// TakeAsync takes and acknowledges one asynchronous event: libibverbs' type and, of
// a queue pair or a port, its number. ok is false when none waits on the
// non-blocking descriptor.
func (c Context) TakeAsync() (kind int, number uint32, ok bool, err error) {
	var k C.int
	var n C.uint32_t
	rc := C.shim_take_async(c.p, &k, &n)
	if e := syscall.Errno(rc); e == syscall.EAGAIN || e == syscall.EINTR {
		return 0, 0, false, nil
	}
	return int(k), uint32(n), rc == 0, check("asynchronous event", rc)
}

// AllocPD allocates a protection domain.
func (c Context) AllocPD() (PD, error) {
	var pd PD
	return pd, check("allocate pd", C.shim_alloc_pd(c.p, &pd.p))
}

// Close deallocates the protection domain.
func (pd PD) Close() error { return check("deallocate pd", C.shim_dealloc_pd(pd.p)) }

// RegMR registers memory outside the Go heap, or pinned; access is libibverbs' bits.
func (pd PD) RegMR(b []byte, access int) (MR, error) {
	var mr MR
	return mr, check("register memory", C.shim_reg_mr(pd.p, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), C.int(access), &mr.p))
}

// HasDMABuf tells whether the library can register dma-bufs: rdma-core since 34.
func HasDMABuf() bool { return load() == nil && C.shim_has_dmabuf() != 0 }

// RegDMABuf registers a part of a dma-buf, which peers address from iova on. Not
// without HasDMABuf.
func (pd PD) RegDMABuf(fd int, offset, length, iova uint64, access int) (MR, error) {
	var mr MR
	return mr, check("register dma-buf", C.shim_reg_dmabuf_mr(pd.p, C.uint64_t(offset), C.size_t(length),
		C.uint64_t(iova), C.int(fd), C.int(access), &mr.p))
}

// LKey is the region's local key.
func (mr MR) LKey() uint32 { return uint32(mr.p.lkey) }

// RKey is the region's remote key.
func (mr MR) RKey() uint32 { return uint32(mr.p.rkey) }

// Close deregisters the region.
func (mr MR) Close() error { return check("deregister memory", C.shim_dereg_mr(mr.p)) }

// NewChannel creates a completion channel.
func (c Context) NewChannel() (Channel, error) {
	var ch Channel
	return ch, check("create completion channel", C.shim_create_channel(c.p, &ch.p))
}

// FD is the channel's file descriptor, owned by the library.
func (ch Channel) FD() int { return int(ch.p.fd) }

// TakeEvents takes and acknowledges what waits on a non-blocking channel.
func (ch Channel) TakeEvents() (int, error) {
	n := C.shim_take_events(ch.p)
	if n < 0 {
		return 0, check("completion event", -n)
	}
	return int(n), nil
}

// Close destroys the channel; its completion queues must be gone.
func (ch Channel) Close() error {
	return check("destroy completion channel", C.shim_destroy_channel(ch.p))
}

// NewCQ creates a completion queue; a zero channel means no events.
func (c Context) NewCQ(cqe int, ch Channel, vector int) (CQ, error) {
	var cq CQ
	return cq, check("create cq", C.shim_create_cq(c.p, C.int(cqe), ch.p, C.int(vector), &cq.p))
}

// Cap is how many entries the queue holds.
func (cq CQ) Cap() int { return int(cq.p.cqe) }

// ReqNotify arms the queue for one event.
func (cq CQ) ReqNotify(solicited bool) error {
	s := C.int(0)
	if solicited {
		s = 1
	}
	return check("arm cq", C.shim_req_notify(cq.p, s))
}

// Moderate delays events; EOPNOTSUPP where the library or the device cannot.
func (cq CQ) Moderate(count, periodUsec uint16) error {
	return check("moderate cq", C.shim_moderate(cq.p, C.uint16_t(count), C.uint16_t(periodUsec)))
}

// Poll fills up to Batch entries of wc, polling up to tries times until there is one.
func (cq CQ) Poll(wc []WC, tries int) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	n := C.shim_poll(cq.p, C.int(len(wc)), (*C.struct_shim_wc)(unsafe.Pointer(&wc[0])), C.int(tries))
	if n < 0 {
		return 0, check("poll cq", C.int(syscall.EIO))
	}
	return int(n), nil
}

// Close destroys the queue; its queue pairs must be gone.
func (cq CQ) Close() error { return check("destroy cq", C.shim_destroy_cq(cq.p)) }

// CreateQP creates a reliable connected queue pair with one segment per request.
func (pd PD) CreateQP(send, recv CQ, want Cap) (QP, error) {
	a := C.struct_abi_qp_init_attr{
		send_cq: send.p, recv_cq: recv.p, qp_type: C.ABI_QPT_RC,
		cap: C.struct_abi_qp_cap{
			max_send_wr: C.uint32_t(want.SendWR), max_recv_wr: C.uint32_t(want.RecvWR),
			max_send_sge: 1, max_recv_sge: 1, max_inline_data: C.uint32_t(want.Inline),
		},
	}
	// The attributes hold pointers into C memory only, and may be given to C.
	var qp QP
	return qp, check("create qp", C.shim_create_qp(pd.p, &a, &qp.p))
}

// Num is the queue pair's number.
func (qp QP) Num() uint32 { return uint32(qp.p.qp_num) }

// Query returns the state and what was really granted.
func (qp QP) Query() (state int, got Cap, err error) {
	var a C.struct_abi_qp_attr
	var init C.struct_abi_qp_init_attr
	err = check("query qp", C.shim_query_qp(qp.p, &a, &init))
	return int(a.qp_state), Cap{int(a.cap.max_send_wr), int(a.cap.max_recv_wr), int(a.cap.max_inline_data)}, err
}

// Init moves the queue pair to INIT.
func (qp QP) Init(port uint8) error {
	a := C.struct_abi_qp_attr{qp_state: C.ABI_QPS_INIT, port_num: C.uint8_t(port),
		// What is really allowed, each memory region says.
		qp_access_flags: C.ABI_ACCESS_LOCAL_WRITE | C.ABI_ACCESS_REMOTE_WRITE}
	return check("qp to INIT", C.shim_modify_qp(qp.p, &a,
		C.ABI_QP_STATE|C.ABI_QP_PKEY_INDEX|C.ABI_QP_PORT|C.ABI_QP_ACCESS_FLAGS))
}

// Connect moves the queue pair to RTR and RTS.
func (qp QP) Connect(c Connect) error {
	a := C.struct_abi_qp_attr{
		qp_state: C.ABI_QPS_RTR, path_mtu: C.int(c.MTU), dest_qp_num: C.uint32_t(c.RemoteQPN),
		rq_psn: C.uint32_t(c.RemotePSN), min_rnr_timer: C.uint8_t(c.MinRNRTimer),
	}
	a.ah.port_num = C.uint8_t(c.Port)
	a.ah.dlid = C.uint16_t(c.RemoteLID)
	if c.Global {
		a.ah.is_global = 1
		a.ah.sgid_index = C.uint8_t(c.GIDIndex)
		a.ah.hop_limit = 64
		*(*[16]byte)(unsafe.Pointer(&a.ah.dgid)) = c.RemoteGID
	}
	err := check("qp to RTR", C.shim_modify_qp(qp.p, &a,
		C.ABI_QP_STATE|C.ABI_QP_AV|C.ABI_QP_PATH_MTU|C.ABI_QP_DEST_QPN|C.ABI_QP_RQ_PSN|
			C.ABI_QP_MAX_DEST_RD_ATOMIC|C.ABI_QP_MIN_RNR_TIMER))
	if err != nil {
		return err
	}
	a = C.struct_abi_qp_attr{
		qp_state: C.ABI_QPS_RTS, sq_psn: C.uint32_t(c.LocalPSN), timeout: C.uint8_t(c.Timeout),
		retry_cnt: C.uint8_t(c.RetryCount), rnr_retry: C.uint8_t(c.RNRRetry),
	}
	return check("qp to RTS", C.shim_modify_qp(qp.p, &a,
		C.ABI_QP_STATE|C.ABI_QP_TIMEOUT|C.ABI_QP_RETRY_CNT|C.ABI_QP_RNR_RETRY|C.ABI_QP_SQ_PSN|C.ABI_QP_MAX_QP_RD_ATOMIC))
}

// Fail moves the queue pair to the error state.
func (qp QP) Fail() error {
	a := C.struct_abi_qp_attr{qp_state: C.ABI_QPS_ERR}
	return check("qp to ERR", C.shim_modify_qp(qp.p, &a, C.ABI_QP_STATE))
}

// PostSend posts up to Batch requests and returns how many were taken. The error is
// a plain errno: it is on the data path.
func (qp QP) PostSend(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	return taken(C.shim_post_send(qp.p, C.int(len(wrs)), (*C.struct_shim_send)(unsafe.Pointer(&wrs[0]))))
}

// PostRecv is PostSend for receives.
func (qp QP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	return taken(C.shim_post_recv(qp.p, C.int(len(wrs)), (*C.struct_shim_recv)(unsafe.Pointer(&wrs[0]))))
}

// Go and C write to each other's structs.
var (
	_ = [1]int{}[unsafe.Sizeof(WC{})-unsafe.Sizeof(C.struct_shim_wc{})]
	_ = [1]int{}[unsafe.Offsetof(WC{}.IsRecv)-unsafe.Offsetof(C.struct_shim_wc{}.is_recv)]
	_ = [1]int{}[unsafe.Offsetof(WC{}.HasImm)-unsafe.Offsetof(C.struct_shim_wc{}.has_imm)]
	_ = [1]int{}[unsafe.Sizeof(SendWR{})-unsafe.Sizeof(C.struct_shim_send{})]
	_ = [1]int{}[unsafe.Offsetof(SendWR{}.Imm)-unsafe.Offsetof(C.struct_shim_send{}.imm)]
	_ = [1]int{}[unsafe.Sizeof(RecvWR{})-unsafe.Sizeof(C.struct_shim_recv{})]
)

// taken splits the result of a post.
func taken(r C.int64_t) (int, error) {
	if errno := syscall.Errno(uint32(r)); errno != 0 {
		return int(r >> 32), errno
	}
	return int(r >> 32), nil
}

// Close destroys the queue pair.
func (qp QP) Close() error { return check("destroy qp", C.shim_destroy_qp(qp.p)) }
