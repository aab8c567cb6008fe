package experiment

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// A Kind is what wrote an experiment.
type Kind string

// Kinds.
const (
	Apply   Kind = "apply"
	Destroy Kind = "destroy"
	Bench   Kind = "bench"
)

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
	Sizes    []Size    `json:"sizes,omitempty"`
	Switches []Switch  `json:"switches,omitempty"`
}

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
	Size       int64  `json:"size"`
	Warmup     int64  `json:"warmup"`
	N          int64  `json:"n"`
	P50        int64  `json:"p50_ns"`
	P99        int64  `json:"p99_ns"`
	Max        int64  `json:"max_ns"`
	Lost       int64  `json:"lost"`
	Duplicated int64  `json:"duplicated"`
	Reordered  int64  `json:"reordered"`
	Corrupted  int64  `json:"corrupted"`
	Histogram  []byte `json:"histogram,omitempty"` // HdrHistogram V2, compressed
}

// A Switch is one connection's change of lanes.
type Switch struct {
	Workload   string        `json:"workload"`
	PID        int           `json:"pid"`
	Connection string        `json:"connection"`
	Generation uint64        `json:"generation"`
	Outcome    string        `json:"outcome"`
	Pause      time.Duration `json:"pause_ns"` // first held request to its post
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
