// Package live shows the connections of a node as they are now: per process and RDMA
// device, what the kernel tells of every queue pair, what the processes of rdmatune's
// own transport tell of theirs, and how threads, completion queues and interrupts
// lie to each other. What cannot be observed is nil and said to be, never guessed.
package live

import (
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/rdmanl"
)

// FormatVersion is the version of the JSON of a View: a higher minor number adds
// members, a higher major number changes the meaning of one.
const FormatVersion = "1.1"

// A View is one look at a node.
type View struct {
	FormatVersion string `json:"format_version"`
	// Unobservable says why the kernel's list of resources is missing, "" when it is
	// there.
	Unobservable string `json:"unobservable,omitempty"`
	// Notes are what limits the look as a whole.
	Notes []string `json:"notes"`
	// Problems are lists of the kernel that are not whole.
	Problems  []rdmanl.Problem `json:"problems"`
	Processes []Process        `json:"processes"`
	Devices   []rdmanl.Device  `json:"devices"`
	Links     []rdmanl.Link    `json:"links"`
}

// A Process is one with RDMA resources, or with rdmatune's transport. Resources of the
// kernel, and of processes that the kernel does not name, have one entry each, with
// PID 0.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start,omitempty"` // clock ticks after boot
	Comm  string `json:"comm"`
	// Who says what stands behind an entry without a PID.
	Who     string `json:"who,omitempty"`
	Cmdline string `json:"cmdline,omitempty"`
	UID     *int   `json:"uid,omitempty"`
	// Namespaces lists what rdmatune does not share with the process: "net", "pid", "mnt".
	Namespaces []string      `json:"other_namespaces,omitempty"`
	Workload   string        `json:"workload,omitempty"`
	Threads    []Thread      `json:"threads,omitempty"`
	CPUSet     string        `json:"cpuset,omitempty"` // CPUs that its cgroup leaves it
	Memory     *procs.Memory `json:"memory,omitempty"`
	Devices    []Use         `json:"devices"`
	// Transports are the process's own words where it uses rdmatune's transport.
	Transports []control.Process `json:"transports,omitempty"`
	// Err says what could not be found out about the process.
	Err string `json:"error,omitempty"`
}

// A Thread is one thread of a process.
type Thread struct {
	TID     int    `json:"tid"`
	Comm    string `json:"comm"`
	CPUs    string `json:"cpus"`
	LastCPU *int   `json:"last_cpu"`
	Mems    string `json:"mems,omitempty"`
	// SelfPinned is true for a thread that is confined to less than its process: its
	// program or a library did that.
	SelfPinned bool `json:"self_pinned,omitempty"`
}

// A Use is what a process has on one device.
type Use struct {
	Device     string      `json:"device"`
	QueuePairs []QueuePair `json:"queue_pairs"`
	// Counts of what else there is; nil where the kernel's list is missing.
	CQs        *int    `json:"completion_queues"`
	MRs        *int    `json:"memory_regions"`
	Registered *uint64 `json:"registered_bytes"`
	Contexts   *int    `json:"contexts"`
	Chain      *Chain  `json:"chain,omitempty"`
}

// A QueuePair is one queue pair. What only rdmatune's transport tells of itself is nil
// for others.
type QueuePair struct {
	Number      uint32  `json:"lqpn"`
	Peer        *uint32 `json:"rqpn"`
	PeerAddress string  `json:"peer_address,omitempty"`
	Type        string  `json:"type"`  // "soft" for the transport's software provider
	State       string  `json:"state"` // "" where no kernel has it
	Port        *uint32 `json:"port,omitempty"`

	Connection *uint64 `json:"connection"`
	Profile    *string `json:"profile"`
	Hint       *int64  `json:"hint"` // bytes; also nil for a connection without one
	Origin     *string `json:"origin"`
	MaxInline  *int    `json:"max_inline"`
	SendWR     *int    `json:"send_wr"`
	RecvWR     *int    `json:"recv_wr"`
}

// A Chain is the way from a process's threads to its completions on one device.
type Chain struct {
	ThreadCPUs string `json:"thread_cpus"`
	Queues     *int   `json:"completion_queues"`
	// Vectors are the completion vectors that the process itself tells; nil when it does
	// not: no interface tells them of another's queues.
	Vectors []int `json:"completion_vectors"`
	// Interrupts are those of the vectors where these are known and their interrupts can
	// be told, else all of the device.
	Interrupts    int    `json:"interrupts"`
	InterruptCPUs string `json:"interrupt_cpus"`
	// Shared are CPUs that may run a thread and take the device's interrupts.
	Shared string `json:"shared_cpus"`
	// Near says whether all threads run on the CPUs near the device; nil when that is
	// not known.
	Near *bool `json:"near"`
	// InterruptsNear says the same of the interrupts whose affinity is known.
	InterruptsNear *bool `json:"interrupts_near"`
	// Exact says that Interrupts are those of the vectors.
	Exact bool `json:"exact"`
	// Verdict is the check in words.
	Verdict string `json:"verdict"`
}
