package rdmanl

import (
	"net/netip"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// A Device is one RDMA device that the reader's network namespace shows.
type Device struct {
	Index    uint32 `json:"index"`
	Name     string `json:"name"`
	Ports    uint32 `json:"ports"`
	Firmware string `json:"firmware,omitempty"`
	Protocol string `json:"protocol,omitempty"` // "ib", "roce", "iw", "opa"
	// AdaptiveModeration is the device's DIM switch, which reaches completion queues of
	// kernel protocols allocated later; nil before Linux 5.19.
	AdaptiveModeration *bool `json:"adaptive_moderation,omitempty"`
}

// A Link is one port of a device.
type Link struct {
	Device      string `json:"device"`
	Port        uint32 `json:"port"`
	State       string `json:"state"`          // "ACTIVE", "DOWN"
	PhysState   string `json:"physical_state"` // "LINK_UP", "DISABLED"
	Netdev      string `json:"netdev,omitempty"`
	NetdevIndex uint32 `json:"netdev_index,omitempty"`
}

// An Owner is who made a resource. With neither field it is a process that the kernel
// does not name: dead, or of another pid namespace.
type Owner struct {
	// TID is the thread that made it, in the reader's pid namespace; 0 when not told.
	TID int `json:"tid,omitempty"`
	// Kernel is the kernel module that made it, "" for a process's.
	Kernel string `json:"kernel,omitempty"`
}

// A QP is a queue pair. Nil numbers are not told: a queue pair has no port before it
// is initialised and no peer before it is connected.
type QP struct {
	Device   string  `json:"device"`
	Port     *uint32 `json:"port,omitempty"`
	Number   uint32  `json:"lqpn"`
	Peer     *uint32 `json:"rqpn,omitempty"` // the queue pair at the other end
	Type     string  `json:"type"`           // "RC", "UD", "GSI"
	State    string  `json:"state"`          // "RTS", "INIT"
	SQPSN    *uint32 `json:"sq_psn,omitempty"`
	RQPSN    *uint32 `json:"rq_psn,omitempty"`
	PathMig  string  `json:"path_mig_state,omitempty"`
	PDNumber *uint32 `json:"pdn,omitempty"`
	Owner
}

// A CQ is a completion queue.
type CQ struct {
	Device  string `json:"device"`
	Number  uint32 `json:"cqn"`
	Entries uint32 `json:"cqe"`
	Users   uint64 `json:"users"`              // queue pairs and others that complete to it
	PollCtx string `json:"poll_ctx,omitempty"` // of a kernel protocol's
	// AdaptiveModeration is nil where the kernel does not moderate the queue.
	AdaptiveModeration *bool   `json:"adaptive_moderation,omitempty"`
	Context            *uint32 `json:"ctxn,omitempty"`
	Owner
}

// An MR is a registered memory region.
type MR struct {
	Device string  `json:"device"`
	Number uint32  `json:"mrn"`
	Bytes  uint64  `json:"bytes"`
	PD     *uint32 `json:"pdn,omitempty"`
	Owner
}

// A Context is one opening of a device by a process.
type Context struct {
	Device string `json:"device"`
	Number uint32 `json:"ctxn"`
	Owner
}

// A CMID is an id of the RDMA connection manager.
type CMID struct {
	Device string         `json:"device"`
	Port   *uint32        `json:"port,omitempty"`
	Number uint32         `json:"cm_idn"`
	QP     *uint32        `json:"lqpn,omitempty"`
	Type   string         `json:"type,omitempty"`
	State  string         `json:"state"`
	Space  string         `json:"port_space"` // "TCP", "UDP", "IPOIB", "IB"
	Src    netip.AddrPort `json:"src"`
	Dst    netip.AddrPort `json:"dst"`
	Owner
}

// A Problem is a list that is not there or not whole, and why.
type Problem struct {
	Device string `json:"device,omitempty"` // "" when it is about all
	What   string `json:"what"`             // "queue pairs"
	Reason string `json:"reason"`
}

// A Table is everything that was found. What a list lacks is in Problems.
type Table struct {
	Devices  []Device  `json:"devices"`
	Links    []Link    `json:"links"`
	QPs      []QP      `json:"qps"`
	CQs      []CQ      `json:"cqs"`
	MRs      []MR      `json:"mrs"`
	Contexts []Context `json:"contexts"`
	CMIDs    []CMID    `json:"cm_ids"`
	Problems []Problem `json:"problems"`
}

// Sanitize makes every text of a table that did not come from this kernel fit to be
// shown: bounded, and without control characters.
func (t *Table) Sanitize() {
	fix := func(texts ...*string) {
		for _, s := range texts {
			*s = printable.Line((*s)[:min(len(*s), maxReason)])
		}
	}
	for i := range t.Devices {
		fix(&t.Devices[i].Name, &t.Devices[i].Firmware, &t.Devices[i].Protocol)
	}
	for i := range t.Links {
		l := &t.Links[i]
		fix(&l.Device, &l.State, &l.PhysState, &l.Netdev)
	}
	for i := range t.QPs {
		q := &t.QPs[i]
		fix(&q.Device, &q.Type, &q.State, &q.PathMig, &q.Kernel)
	}
	for i := range t.CQs {
		fix(&t.CQs[i].Device, &t.CQs[i].PollCtx, &t.CQs[i].Kernel)
	}
	for i := range t.MRs {
		fix(&t.MRs[i].Device, &t.MRs[i].Kernel)
	}
	for i := range t.Contexts {
		fix(&t.Contexts[i].Device, &t.Contexts[i].Kernel)
	}
	for i := range t.CMIDs {
		c := &t.CMIDs[i]
		fix(&c.Device, &c.Type, &c.State, &c.Space, &c.Kernel)
	}
	for i := range t.Problems {
		p := &t.Problems[i]
		fix(&p.Device, &p.What, &p.Reason)
	}
}

// maxReason bounds a text of a table that is read from a file.
const maxReason = 300

// Names of numbers (IBTA; ib_verbs.h, rdma_cm.h).
var (
	qpTypes     = map[uint64]string{0: "SMI", 1: "GSI", 2: "RC", 3: "UC", 4: "UD", 5: "RAW_IPV6", 6: "RAW_ETHERTYPE", 8: "RAW_PACKET", 9: "XRC_INI", 10: "XRC_TGT", 255: "DRIVER"}
	qpStates    = map[uint64]string{0: "RESET", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "ERR"}
	migStates   = map[uint64]string{0: "MIGRATED", 1: "REARM", 2: "ARMED"}
	pollCtxs    = map[uint64]string{0: "DIRECT", 1: "SOFTIRQ", 2: "WORKQUEUE", 3: "UNBOUND_WORKQUEUE"}
	portStates  = map[uint64]string{0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
	physStates  = map[uint64]string{0: "NOP", 1: "SLEEP", 2: "POLLING", 3: "DISABLED", 4: "TRAINING", 5: "LINK_UP", 6: "LINK_ERROR_RECOVER", 7: "PHY_TEST"}
	cmStates    = map[uint64]string{0: "IDLE", 1: "ADDR_QUERY", 2: "ADDR_RESOLVED", 3: "ROUTE_QUERY", 4: "ROUTE_RESOLVED", 5: "CONNECT", 6: "DISCONNECT", 7: "ADDR_BOUND", 8: "LISTEN", 9: "DEVICE_REMOVAL", 10: "DESTROYING"}
	cmPortSpace = map[uint64]string{0x0002: "IPOIB", 0x0106: "TCP", 0x0111: "UDP", 0x013f: "IB"}
)
