package transport

import (
	"fmt"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// Profiles' names, as the control socket shows them.
const (
	profileLowLatency = "low_latency"
	profileGeneral    = "general"
)

// The general profile is what a library sets up that knows nothing of the sizes to
// come: UCX's documented defaults for RC (UCX_RC_TX_QUEUE_LEN, UCX_RC_TX_MIN_INLINE,
// UCX_IB_SEG_SIZE, UCX_RC_TX_CQ_MODERATION in `ucx_info -cf`).
const (
	generalDepth   = 256
	generalInline  = 64
	generalSegment = 8256
	generalSignal  = 64
)

// The low-latency profile: a queue that drains in microseconds, and everything
// inlined that the device can.
const (
	lowLatencyDepth = 16
	lowLatencyCap   = 1024 // bytes of inline: more makes every work request larger
	minEager        = 256  // bytes, so that a tiny hint leaves room for its odd larger message
	maxEager        = 64 << 10
)

// controlDepth is what is kept free beside data in both queues: a marker, a vote
// or decision, and the credit messages that can be under way, at most two by the
// rule that each returns half of the buffers.
const controlDepth = 8

// A completion is how an end waits for messages.
type completion string

const (
	completionAdaptive completion = "adaptive" // spin shortly, then wait for an event
	completionBusy     completion = "busy"     // spin
	completionEvent    completion = "event"    // wait for an event
)

// A profile is what a lane is set up with for what this end sends. Two profiles
// with the same shape need no new lane.
type profile struct {
	name string
	shape
	signal int // every n-th work request is signaled
	completion
}

// A shape is the part of a profile that a lane has from its creation on.
type shape struct {
	depth   int // data segments in flight
	segment int // bytes of a segment, header included
	inline  int // bytes of an inline send, header included
}

// profileFor returns the profile for a hint (nil: none), on a device that inlines
// maxInline bytes. eagerMax bounds the eager size in bytes, 0 = no bound.
func profileFor(hint *int64, eagerMax int64, mode completion, maxInline int) profile {
	if hint == nil || *hint == 0 {
		seg := int64(generalSegment)
		if eagerMax > 0 {
			seg = min(seg, max(eagerMax, minEager)+headerLen)
		}
		return profile{
			name:       profileGeneral,
			shape:      shape{depth: generalDepth, segment: int(seg), inline: min(generalInline, maxInline)},
			signal:     generalSignal,
			completion: mode,
		}
	}
	eager := min(*hint, maxEager)
	if eagerMax > 0 {
		eager = min(eager, eagerMax)
	}
	return profile{
		name: profileLowLatency,
		shape: shape{
			depth: lowLatencyDepth, segment: int(max(eager, minEager)) + headerLen,
			inline: min(lowLatencyCap, maxInline),
		},
		signal:     1,
		completion: mode,
	}
}

// recvBudget bounds the receive memory that a peer can ask for per lane, in bytes.
const recvBudget = 4 << 20

// grantFor returns what this end lets a peer have that wants w.
func grantFor(w want) want {
	seg := min(w.Segment, maxEager+headerLen)
	return want{Credits: min(w.Credits, generalDepth, max(recvBudget/seg, 1)), Segment: seg}
}

// probeInline finds the largest inline send that the device grants, by bisection:
// there is no attribute that says it.
func probeInline(pd verbs.PD, cq verbs.CQ) (int, error) {
	try := func(n int) (int, error) {
		qp, err := pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{SendWR: 1, RecvWR: 1, Inline: n}})
		if err != nil {
			return 0, err
		}
		return qp.Cap().Inline, qp.Close()
	}
	best, err := try(0)
	if err != nil {
		return 0, fmt.Errorf("probe inline size: %w", err)
	}
	for lo, hi := best+1, 4*lowLatencyCap; lo <= hi; {
		mid := (lo + hi) / 2
		got, err := try(mid)
		if err != nil {
			hi = mid - 1
			continue
		}
		best = max(best, got)
		lo = max(mid, got) + 1
	}
	return best, nil
}
