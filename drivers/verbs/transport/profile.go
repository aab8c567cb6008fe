package transport

import "math"

// Profiles' names, as the control socket shows them.
const (
	profileLowLatency = "low_latency"
	profileBandwidth  = "bandwidth" // beside a low-latency lane
	profileGeneral    = "general"   // no hint
	profileReceive    = "receive"   // a lane on which only the peer sends
)

// The general profile is what a library sets up that knows nothing of the sizes to
// come: UCX's documented defaults for RC (UCX_RC_TX_QUEUE_LEN, UCX_RC_TX_MIN_INLINE,
// UCX_IB_SEG_SIZE, UCX_RC_TX_CQ_MODERATION in `ucx_info -cf`). The bandwidth profile
// has the same queue.
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

// rendezvousSegment is how many bytes one RDMA write of a rendezvous moves: enough
// to keep any link busy, few enough that a small message on the same queue does not
// wait long.
const rendezvousSegment = 64 << 10

// maxRendezvous is how many messages of one direction can be offered or on their way
// by rendezvous at a time, on all lanes together. Each end keeps receive buffers
// free for what that can bring uncredited: an answer for each of its own offers and
// an end of each of the peer's.
const maxRendezvous = 8

// controlDepth is what is kept free besides in both queues: a marker, a vote or
// decision, and the credit messages that can be under way, at most two by the rule
// that each returns half of the buffers; the rest is posted again in batches.
const controlDepth = 8

// controlSlots is how many segments without a message a lane can have under way.
const controlSlots = 2*maxRendezvous + controlDepth

// controlBatch is how many receive buffers that such segments came in are kept to be
// posted together.
const controlBatch = 4

// Moderation of the completion queues that bandwidth lanes are on: so many
// completions or so many microseconds to an event.
const (
	moderateCount = 16
	moderateUsec  = 8
)

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
	depth    int  // messages, offers and writes in flight
	eager    int  // bytes of the largest message that is copied
	segment  int  // bytes of a segment, header included
	inline   int  // bytes of an inline send, header included
	moderate bool // on a moderated completion queue, where the device can
}

// A layout is what this end wants of a connection: a profile for each lane it sends
// on, and which sizes go where.
type layout struct {
	profiles  [maxLanes]profile
	lanes     int   // that this end sends on
	small     int64 // bytes of the largest message on lane 0
	unordered bool  // messages keep their order on each lane only
}

// sameShape reports whether lanes made for l serve o.
func (l *layout) sameShape(o *layout) bool {
	if l.lanes != o.lanes || l.unordered != o.unordered {
		return false
	}
	for i := range l.lanes {
		if l.profiles[i].shape != o.profiles[i].shape {
			return false
		}
	}
	return true
}

// wants is what the peer is asked for.
func (l *layout) wants() []want {
	out := make([]want, l.lanes)
	for i := range out {
		p := l.profiles[i]
		out[i] = want{Credits: p.depth, Segment: p.segment}
	}
	return out
}

// lane returns the index of the lane for a message of size bytes.
func (l *layout) lane(size int) int {
	if l.lanes > 1 && int64(size) > l.small {
		return 1
	}
	return 0
}

// layoutFor returns the layout for what this end follows, on a device that inlines
// maxInline bytes.
func layoutFor(f *follow, maxInline int) layout {
	if f.hint == nil || *f.hint == 0 {
		p := bulkProfile(profileGeneral, 0, f.eagerMax, maxInline)
		p.completion = f.completion
		return layout{profiles: [maxLanes]profile{p}, lanes: 1, small: math.MaxInt64}
	}
	eager := int64(maxEager)
	eager = min(eager, *f.hint)
	if f.eagerMax > 0 {
		eager = min(eager, f.eagerMax)
	}
	eager = max(eager, minEager)
	inline := min(lowLatencyCap, maxInline)
	l := layout{lanes: 1, small: *f.hint, unordered: f.unordered && f.dual}
	l.profiles[0] = profile{
		name: profileLowLatency,
		shape: shape{
			depth: lowLatencyDepth, eager: int(eager), inline: inline,
			segment: max(int(eager)+headerLen, inline, minSegment),
		},
		signal:     1,
		completion: f.completion,
	}
	if f.dual {
		l.lanes = 2
		l.profiles[1] = bulkProfile(profileBandwidth, *f.hint, f.eagerMax, maxInline)
		l.profiles[1].completion = completionEvent
	}
	return l
}

// bulkProfile is the deep queue, for messages above above bytes.
func bulkProfile(name string, above, eagerMax int64, maxInline int) profile {
	eager := int64(generalSegment - headerLen)
	if eagerMax > 0 {
		eager = min(eager, max(eagerMax, minEager))
	}
	p := profile{
		name:   name,
		shape:  shape{depth: generalDepth, inline: min(generalInline, maxInline), moderate: true},
		signal: generalSignal,
	}
	p.eager = int(eager)
	if eager <= above {
		p.eager = 0 // nothing that small comes here: no memory for it
	}
	p.segment = max(p.eager+headerLen, p.inline, minSegment)
	return p
}

// receiveProfile is for a lane that only the peer asked for: this end sends answers
// and credits on it.
func receiveProfile() profile {
	return profile{
		name: profileReceive, shape: shape{depth: 1, segment: minSegment, inline: longHeaderLen},
		signal: 1, completion: completionEvent,
	}
}

// receiveWant is what a peer has for a lane that only this end asked for.
var receiveWant = want{Credits: 1, Segment: minSegment}

// recvBudget bounds the receive memory that a peer can ask for per lane, in bytes,
// besides that of maxRendezvous.
const recvBudget = 4 << 20

// grantFor returns what this end lets a peer have that wants w.
func grantFor(w want) want {
	seg := min(w.Segment, maxEager+headerLen)
	return want{Credits: min(w.Credits, generalDepth, max(recvBudget/seg, 1)), Segment: seg}
}
