package experiment

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/param"
)

// A Kind is what wrote an experiment.
type Kind string

// Kinds.
const (
	Apply   Kind = "apply"
	Destroy Kind = "destroy"
	Bench   Kind = "bench"
	// Reconcile is an apply by the daemon.
	Reconcile Kind = "reconcile"
)

// Kinds are all that there are.
var Kinds = []Kind{Apply, Destroy, Bench, Reconcile}

// A Status is how an experiment went.
type Status string

// Statuses.
const (
	Running     Status = "running"
	Done        Status = "done"
	Failed      Status = "failed"
	RolledBack  Status = "rolled_back"
	Interrupted Status = "interrupted" // by its user, or by a crash
)

// An Experiment is one record.
type Experiment struct {
	ID       string        `json:"id"`
	Time     time.Time     `json:"time"`
	Kind     Kind          `json:"kind"`
	Workload string        `json:"workload"` // addresses, separated by ", "
	Status   Status        `json:"status"`
	Error    string        `json:"error,omitempty"`
	Duration time.Duration `json:"duration_ns"`

	Node      Node   `json:"node"`
	Device    string `json:"device,omitempty"`
	Simulated bool   `json:"simulated"`

	SpecRoot   string `json:"spec_root,omitempty"`
	SpecDigest string `json:"spec_digest,omitempty"`
	GitCommit  string `json:"git_commit,omitempty"` // with "-dirty" when the tree was
	Version    string `json:"version"`              // of rdmatune

	Settings []Setting `json:"settings,omitempty"`
	Series   []Series  `json:"series,omitempty"`
	Sizes    []Size    `json:"sizes,omitempty"`
	Switches []Switch  `json:"switches,omitempty"`

	Detail
}

// A Detail is what an experiment has besides: stored as one JSON document, so that a
// fact more needs no new schema.
type Detail struct {
	// Explain holds what can explain a number: hardware, firmware, drivers, limits, by
	// name ("nic.firmware", "cpu.microcode").
	Explain map[string]string `json:"explain,omitempty"`
	// Observed is what was seen during the run and is never twice the same: interrupts
	// taken, frequency.
	Observed map[string]string `json:"observed,omitempty"`
	Guards   []Guard           `json:"guards,omitempty"`
	// Tried are the values that an apply wrote, of those settings that were not read back
	// with them in the end: they were refused, or rolled back.
	Tried []Tried `json:"tried,omitempty"`
	// Effects say what each part of an apply did to what was measured.
	Effects []Effect `json:"effects,omitempty"`
	// Notes say what a reader must know to read the numbers right.
	Notes []string `json:"notes,omitempty"`
	// Origin is the archive that the experiment was imported from, "" for one of this node.
	Origin string `json:"origin,omitempty"`
}

// A Tried is a value that a Setting of the same address and attribute was to have.
type Tried struct {
	Address string `json:"address"`
	Attr    string `json:"attr"`
	Value   string `json:"value"`
}

// A Series is one of the set-ups that a run measured side by side.
type Series struct {
	Name string `json:"name"`           // unique within the experiment
	Hint *int64 `json:"hint,omitempty"` // bytes; nil: none
	// Profile is the connection's profile as granted, by attribute.
	Profile map[string]string `json:"profile,omitempty"`
}

// Steps of an apply that have an Effect.
const (
	StepBase = "base tuning"
	StepHint = "hint"
)

// An Effect is what one part of an apply did to a workload's latency.
type Effect struct {
	Workload string `json:"workload"`
	Step     string `json:"step"`
	Device   string `json:"device"`
	Firmware string `json:"firmware,omitempty"`
	Hint     *int64 `json:"hint,omitempty"`  // that was set, in bytes
	Lanes    string `json:"lanes,omitempty"` // likewise, "" for the default
	Shown    bool   `json:"shown"`           // some difference is
	Text     string `json:"text"`
}

// Verdicts on a guard.
const (
	GuardPassed      = "passed"
	GuardBreached    = "breached"
	GuardNotMeasured = "not measured"
)

// A Guard is the verdict on one guard block.
type Guard struct {
	Workload string `json:"workload"`
	Name     string `json:"name"`
	Verdict  string `json:"verdict"`
	Text     string `json:"text"` // what was asked and what was measured
}

// Kinds of a Size's measurement.
const (
	RoundTrip  = "round_trip" // from before the send until after the receipt of the answer
	Stream     = "stream"     // one way, as many under way as the connection takes
	AllReduce  = "all_reduce" // of the data of all ranks, from a barrier to the end
	Completion = "completion" // from the post of a message to its completion, on live connections
)

// A Node is the identity of the machine.
type Node struct {
	Ref         string `json:"ref"` // local, sim:dgx, a captured tree's path
	Hostname    string `json:"hostname,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	BootID      string `json:"boot_id,omitempty"`
	Virtualised string `json:"virtualised,omitempty"`
	Driver      string `json:"driver,omitempty"`   // of the device
	Firmware    string `json:"firmware,omitempty"` // of the device
}

// A Setting is one managed setting as it was read back.
type Setting struct {
	Address string `json:"address"`
	Attr    string `json:"attr"`
	Before  string `json:"before,omitempty"`
	Value   string `json:"value"`
}

// A Size is what was measured for one message size. Latencies are round trips in
// nanoseconds.
type Size struct {
	Series     string `json:"series,omitempty"` // name of the series, "" for a run of one
	Kind       string `json:"kind"`
	Tier       string `json:"tier,omitempty"` // inline, eager or rendezvous
	Size       int64  `json:"size"`
	Warmup     int64  `json:"warmup"`
	N          int64  `json:"n"`
	P50        int64  `json:"p50_ns"`
	P99        int64  `json:"p99_ns"`            // 0 when n is below 100
	P999       int64  `json:"p999_ns,omitempty"` // 0 when n is below 10,000
	Max        int64  `json:"max_ns"`
	Bandwidth  int64  `json:"bandwidth,omitempty"` // bytes per second
	Lost       int64  `json:"lost"`
	Duplicated int64  `json:"duplicated"`
	Reordered  int64  `json:"reordered"`
	Corrupted  int64  `json:"corrupted"`
	Histogram  []byte `json:"histogram,omitempty"` // HdrHistogram V2, compressed

	SizeDetail
}

// A SizeDetail is what a size has besides, stored as one JSON document.
type SizeDetail struct {
	Worst      []measure.Sample `json:"worst,omitempty"` // the longest, longest first
	Timeline   []Point          `json:"timeline,omitempty"`
	HighWater  int64            `json:"high_water,omitempty"`  // most work requests outstanding
	FullEvents int64            `json:"full_events,omitempty"` // times that a sender found no slot or credit
}

// A Point of a timeline is the latency of the messages of a stretch of time.
type Point struct {
	At   time.Duration `json:"at_ns"`   // since the start of the run: its end
	Took time.Duration `json:"took_ns"` // how long it was
	N    int64         `json:"n"`
	P50  int64         `json:"p50_ns"` // of latency; 0 in a stream
	Max  int64         `json:"max_ns"`
}

// A Switch is one connection's change of lanes.
type Switch struct {
	Workload   string        `json:"workload"`
	PID        int           `json:"pid"`
	Connection string        `json:"connection"`
	Generation uint64        `json:"generation"`
	Outcome    string        `json:"outcome"`
	At         time.Duration `json:"at_ns,omitempty"` // since the start of the run
	Pause      time.Duration `json:"pause_ns"`        // first held request to its post
	Drained    int64         `json:"drained"`
	Held       int64         `json:"held"`
}

// NewID returns an identifier that sorts by time: the second it was made, and four
// random digits for those made within it.
func NewID(now time.Time) string {
	b := make([]byte, 2)
	rand.Read(b) // never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b)
}

// HintText is the hint as a person reads it.
func (s Series) HintText() string {
	if s.Hint == nil {
		return "(unset)"
	}
	return param.FormatBytes(*s.Hint)
}
