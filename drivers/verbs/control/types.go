// Package control is how a process that uses the transport is seen and told what
// to do: a Unix socket that it serves (HTTP and JSON), a client that lists such
// sockets safely, the hints that apply publishes for processes to come, and the
// driver for param.Hint built from these.
package control

import "time"

// Version is the version of the socket's JSON; it rises when a field changes its meaning.
const Version = 1

// A Process is what a process says of its transport. PID, Start, UID, Comm,
// Cmdline and Threads are taken from the kernel by List, not from the process.
type Process struct {
	Version  int     `json:"version"`
	PID      int     `json:"pid"`
	Start    uint64  `json:"start"` // clock ticks after boot, field 22 of /proc/PID/stat
	UID      uint32  `json:"uid"`
	Comm     string  `json:"comm"`
	Cmdline  string  `json:"cmdline"` // arguments joined by one space
	Threads  Threads `json:"threads"` // thread ids, ascending
	Workload string  `json:"workload"`
	Device   string  `json:"device"`
	Provider string  `json:"provider"` // ibverbs or soft
	// Simulated is true when the soft provider stands for a device of a simulated node.
	Simulated bool          `json:"simulated"`
	Hint      EffectiveHint `json:"hint"`
	Order     *Order        `json:"order"` // in force, nil before the first
	// Settings are those in force: the order's, else what was published for the
	// workload; nil when there is neither.
	Settings *Settings `json:"settings"`
	// Registered is how many bytes of memory are registered, of all connections and
	// of the program's own buffers.
	Registered int64 `json:"registered"`
	Conns      Conns `json:"conns"`
	// Err says why a process that is there could not be asked; it is set by List only.
	Err string `json:"-"`

	socket string // name in the directory, set by List
	left   bool   // Err is about what List left out
}

// A Level is where a hint comes from; a lower number wins.
type Level int

// Levels.
const (
	LevelOrdered   Level = 1 // by apply, through the socket
	LevelProgram   Level = 2 // by the program, through the API
	LevelEnv       Level = 3 // RDMA_LOW_LATENCY_HINT
	LevelPublished Level = 4 // by apply, for the workload, as a file
	LevelNone      Level = 5 // nobody gave one
)

// String returns the level's name.
func (l Level) String() string {
	switch l {
	case LevelOrdered:
		return "order"
	case LevelProgram:
		return "program"
	case LevelEnv:
		return "environment"
	case LevelPublished:
		return "published"
	}
	return "none"
}

// A Candidate is one hint that could have been in force.
type Candidate struct {
	Level  Level  `json:"level"`
	Origin string `json:"origin"` // for a person: "RDMA_LOW_LATENCY_HINT=16KiB"
	Size   *int64 `json:"size"`   // bytes; nil: none given or rejected
	Why    string `json:"why,omitempty"`
}

// An EffectiveHint is the hint that new connections follow, and why.
type EffectiveHint struct {
	Size    *int64     `json:"size"` // bytes; 0 is a value; nil: no hint
	Level   Level      `json:"level"`
	Origin  string     `json:"origin"`
	Losers  Candidates `json:"losers"`  // what else was given, strongest first
	Notices Texts      `json:"notices"` // rejected values, deprecated units
}

// Settings are what a workload wants of its processes. A nil field is unset.
type Settings struct {
	Size           *int64  `json:"size"`             // bytes
	Lanes          *string `json:"lanes"`            // single or dual
	Completion     *string `json:"completion"`       // adaptive, busy or event
	Ordered        *bool   `json:"ordered"`          // nil means true
	EagerMax       *int64  `json:"eager_max"`        // bytes
	Override       *bool   `json:"override"`         // nil means true
	DrainTimeoutMS *int64  `json:"drain_timeout_ms"` // milliseconds
	CooldownMS     *int64  `json:"cooldown_ms"`      // milliseconds
}

// Values of Settings.Lanes.
const (
	LanesSingle = "single"
	LanesDual   = "dual"
)

// An Order tells a process what its side of its connections shall have.
type Order struct {
	ID         string `json:"id"` // the run that gives it
	Generation uint64 `json:"generation"`
	Workload   string `json:"workload"`
	// Settings is nil when the order takes an earlier one back.
	Settings *Settings `json:"settings"`
	Force    bool      `json:"force,omitempty"` // no cooldown at this end
	// Open also switches every connection below Generation; without it only what
	// this and later connections shall have is set.
	Open bool `json:"open,omitempty"`
	// DrainTimeoutMS is how long switches may drain at least, whatever the settings say:
	// the way back may take as long as the way there did. 0 is nothing.
	DrainTimeoutMS int64 `json:"drain_timeout_ms,omitempty"` // milliseconds
}

// A Result is the answer to an order.
type Result struct {
	Process  Process  `json:"process"` // after it
	Outcomes Outcomes `json:"outcomes"`
}

// An Outcome is what an opening order did to one connection.
type Outcome struct {
	Conn uint64 `json:"conn"`
	Switch
}

// What became of a switch.
const (
	Switched = "switched" // on new lanes
	InPlace  = "in_place" // only run-time settings differed: no drain
	Deferred = "deferred" // cooldown or busy: RetryAfter says until when
	Refused  = "refused"  // the peer cannot
	Aborted  = "aborted"  // returned to the old lanes
	Gone     = "gone"     // the connection ended
)

// A Switch is the record of one attempt to change a connection's lanes.
type Switch struct {
	Generation uint64        `json:"generation"` // at this end
	Order      string        `json:"order"`      // id of the order, "" when the peer opened
	Epoch      uint32        `json:"epoch"`
	Opener     bool          `json:"opener"`
	Outcome    string        `json:"outcome"`
	Reason     string        `json:"reason,omitempty"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Pause      time.Duration `json:"pause_ns"` // first held request to its post, 0 when none was held
	Drained    int           `json:"drained"`  // work requests outstanding when the lanes were held
	Held       int           `json:"held"`     // requests that waited
	When       time.Time     `json:"when"`
}

// A Conn is one connection as its process sees it.
type Conn struct {
	ID         uint64  `json:"id"`
	Peer       string  `json:"peer"`   // host:port of the control channel's far end
	Dialed     bool    `json:"dialed"` // false: accepted
	Epoch      uint32  `json:"epoch"`
	Generation uint64  `json:"generation"`
	Profile    string  `json:"profile"` // of lane 0: low_latency or general
	Completion string  `json:"completion"`
	Hint       *int64  `json:"hint"`       // bytes that the lanes follow; nil: none
	Origin     string  `json:"origin"`     // of that hint
	Eager      int64   `json:"eager"`      // largest message that lane 0 copies, bytes
	Inline     int64   `json:"inline"`     // largest message posted inline there, bytes
	Ordered    bool    `json:"ordered"`    // what this end sends; false: in order on each lane only
	Dual       bool    `json:"dual"`       // this end sends large messages on a lane of their own
	Fixed      bool    `json:"fixed"`      // it keeps the settings that it was made with: no order is about it
	Bands      Bands   `json:"bands"`      // how messages of each size go, ascending
	Registered int64   `json:"registered"` // bytes of its lanes, and of memory that rendezvous use now
	Degraded   Texts   `json:"degraded"`   // what was asked for and not granted
	Lanes      Lanes   `json:"lanes"`
	Sent       Traffic `json:"sent"`
	Received   Traffic `json:"received"`
	// Switches are the latest attempts, oldest first, at most 16.
	Switches Switches `json:"switches"`
	Err      string   `json:"err,omitempty"` // why the connection ended
}

// A Band is a range of message sizes that go one way.
type Band struct {
	From int64  `json:"from"` // bytes
	To   int64  `json:"to"`   // bytes, inclusive
	Tier string `json:"tier"` // inline, eager or rendezvous
	Lane int    `json:"lane"`
}

// A Lane is one queue pair of a connection.
type Lane struct {
	Epoch      uint32 `json:"epoch"`
	Index      int    `json:"index"` // 1 is the bandwidth lane
	Profile    string `json:"profile"`
	Completion string `json:"completion"`
	QPN        uint32 `json:"qpn"`
	PeerQPN    uint32 `json:"peer_qpn"`
	SendWR     int    `json:"send_wr"` // granted capabilities
	RecvWR     int    `json:"recv_wr"`
	MaxInline  int    `json:"max_inline"`
	Moderated  bool   `json:"moderated"` // the device delays completion events
	Vector     int    `json:"vector"`    // the device's completion vector, an interrupt
	Segment    int    `json:"segment"`   // bytes of a send segment, header included
	Credits    int    `json:"credits"`   // receive buffers that the peer granted
	Messages   uint32 `json:"messages"`  // sent on it since it was made, wrapping
	Depth      int    `json:"depth"`     // work requests outstanding now
	HighWater  int    `json:"high_water"`
	FullEvents uint64 `json:"full_events"` // times that a sender found no slot or credit
	Registered int64  `json:"registered"`  // bytes
}

// Traffic counts messages by the tier that carried them.
type Traffic struct {
	Messages   uint64 `json:"messages"`
	Bytes      uint64 `json:"bytes"`
	Inline     uint64 `json:"inline"`
	Eager      uint64 `json:"eager"`
	Rendezvous uint64 `json:"rendezvous"`
	Tiers      Tiers  `json:"tiers"`
	Sizes      Bins   `json:"sizes"` // messages by size in bytes: 0, 1, 2 to 3, 4 to 7, and so on
}

// A Tier is what one tier carried.
type Tier struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Copied   uint64 `json:"copied"` // bytes that the CPU copied at this end
	// Times are of sent messages, from post to seen completion in nanoseconds, in bins
	// of a quarter of a power of two: every rendezvous (from its offer), and of the other
	// tiers one message in 16 or, where fewer than that are signaled, the signaled ones.
	Times Bins `json:"times"`
}

// A Bin counts what lies between From and the next bin's; empty bins are left out.
type Bin struct {
	From  int64  `json:"from"`
	Count uint64 `json:"count"`
}
