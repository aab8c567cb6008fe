package param

import (
	"encoding/json"
	"time"
)

// A Kind is a kind of tunable thing. Its text is the name of the spec's block.
type Kind string

// The kinds, in the order in which apply handles them: base tuning first, the
// path switch last.
const (
	Pinning    Kind = "cpu_pinning"     // the threads of a process
	Frequency  Kind = "frequency_lock"  // a cpufreq policy
	DMALatency Kind = "cpu_dma_latency" // the machine's bound on the wake-up from idle
	IRQ        Kind = "irq_affinity"    // an interrupt vector of a device
	Coalescing Kind = "coalescing"      // the channels of a netdev
	Hint       Kind = "hint"            // what a workload's transport is told
)

// Kinds lists all kinds in apply order.
func Kinds() []Kind { return []Kind{Pinning, Frequency, DMALatency, IRQ, Coalescing, Hint} }

// Rank is the position of k in apply order; an unknown kind sorts last.
func (k Kind) Rank() int {
	for i, known := range Kinds() {
		if k == known {
			return i
		}
	}
	return len(Kinds())
}

// An ID names one parameter of a kind; it has a row in Table.
type ID string

// The parameters. Units are in Table.
const (
	PinCPUs ID = "cpu_pinning.cpus" // one setting per thread; Index is THREAD@START

	Governor ID = "frequency_lock.governor"
	MinKHz   ID = "frequency_lock.min_khz"
	MaxKHz   ID = "frequency_lock.max_khz"
	// Of a policy, of the machine (target "turbo"), and of a CPU (target "cpu3").
	EnergyPreference ID = "frequency_lock.energy_preference"
	Turbo            ID = "frequency_lock.turbo"
	CStateLatency    ID = "frequency_lock.cstate_max_latency"

	DMAMaxLatency ID = "cpu_dma_latency.max_latency"

	IRQCPUs ID = "irq_affinity.cpus"

	AdaptiveRX ID = "coalescing.adaptive_rx"
	AdaptiveTX ID = "coalescing.adaptive_tx"
	RXUsecs    ID = "coalescing.rx_usecs"
	RXFrames   ID = "coalescing.rx_frames"
	TXUsecs    ID = "coalescing.tx_usecs"
	TXFrames   ID = "coalescing.tx_frames"

	HintSize       ID = "hint.size"       // also one setting per live connection; Index is the connection's number
	HintLanes      ID = "hint.lanes"      // single or dual
	HintCompletion ID = "hint.completion" // adaptive, busy or event
	HintOrdered    ID = "hint.ordered"
	HintEagerMax   ID = "hint.eager_max"
	HintOverride   ID = "hint.override"
	DrainTimeout   ID = "hint.drain_timeout"
	Cooldown       ID = "hint.cooldown"
)

// A Target is one tunable thing of a node.
type Target struct {
	Kind Kind `json:"kind"`
	// Name is the thing's identity within its kind and this boot: "4711" (a process),
	// "policy3", "0000:18:00.0/3" (PCI function and MSI-X index), "eth0". For Hint it
	// is "published/WORKLOAD" (what future processes of a workload will find) or a
	// process id (a live transport).
	Name string `json:"name"`
	// Incarnation changes when the thing is replaced by another of the same name: a
	// process's start time, a driver's bind. Originals do not outlive it.
	Incarnation string `json:"incarnation,omitempty"`
	// Label adds what a person wants to see beside the name (an action name, a
	// command); it is never compared.
	Label string `json:"-"`
}

// Key returns t without its label, for use as a map key.
func (t Target) Key() Target { t.Label = ""; return t }

// A Setting is a value that a target has, or should have.
type Setting struct {
	ID ID `json:"id"`
	// Index tells settings of the same ID on one target apart (a thread of a process,
	// a connection of a transport); most IDs leave it empty.
	Index string `json:"index,omitempty"`
	Value Value  `json:"value"`
	// Note is what a driver has to say of the value in force, for a person:
	// "effective pending", "pinned by itself", "kernel-managed". It is never compared.
	Note string `json:"note,omitempty"`
	// Origin says who gave a value that several may give: of a hint "order",
	// "program", "environment" or "published".
	Origin string `json:"origin,omitempty"`
	// Deferred says why the setting cannot change now, though it could later: "cooldown,
	// 7m left". Plan makes it pending.
	Deferred string `json:"deferred,omitempty"`
	// Fixed says that the setting cannot be written here (a kernel-managed interrupt,
	// a field that the driver does not offer). Plan makes a note of it, not a change.
	Fixed bool `json:"fixed,omitempty"`
}

// An Action is what a change does to its target. Its text is what JSON carries.
type Action string

// Actions.
const (
	Update  Action = "update"  // in place
	Replace Action = "replace" // create the new before destroying the old: a switch
	Restore Action = "restore" // put the original back
)

// A Disruption is the worst that a change does to running traffic.
type Disruption string

// Disruptions, mildest first.
const (
	None       Disruption = "none"
	Pause      Disruption = "pause"
	LinkBounce Disruption = "link-bounce"
)

// A Change is one setting's way from Old to New.
type Change struct {
	// Workload is the address of the workload that wants it: `allreduce["0"]`.
	// A restore carries the workload that had wanted it.
	Workload string     `json:"workload"`
	Target   Target     `json:"target"`
	ID       ID         `json:"id"`
	Index    string     `json:"index,omitempty"`
	Action   Action     `json:"action"`
	Old      Value      `json:"old"`
	New      Value      `json:"new"`
	Disrupt  Disruption `json:"disruption"`
	Reason   string     `json:"reason,omitempty"`
	Origin   string     `json:"origin,omitempty"` // file:line,column of the attribute
}

// An Order accompanies the changes of one target to its driver.
type Order struct {
	// ID names the run (an experiment's id); a driver that talks to processes passes it on.
	ID string
	// Workload is the workload's address and what its processes call themselves.
	Workload string
	// Generation is the workload's generation; a connection switches only to a higher one.
	Generation uint64
	// Force overrides a cooldown; a rollback does.
	Force bool
	// Want is what is wanted of the target and either in force already or among the changes:
	// a driver may hold it, and writes nothing else. A process gets its whole hint.
	Want []Setting
	// Release takes back what the target had been told, all of it; Want is then empty.
	Release bool
	// Drain is how long a switch may drain at least, whatever Want says: the way back may
	// take as long as the way there did. 0 is nothing.
	Drain time.Duration
}

// Want returns the wanted value of id, Absent when there is none.
func (o Order) Wanted(id ID) Value {
	for _, s := range o.Want {
		if s.ID == id && s.Index == "" {
			return s.Value
		}
	}
	return Absent()
}

// A Match says which processes a workload is about. All given conditions must
// hold; texts are globs (path.Match, where '*' also crosses '/'). An empty Match
// means the processes that name the workload themselves.
type Match struct {
	Comm    string            `json:"comm,omitempty"`
	Exe     string            `json:"exe,omitempty"`
	Cmdline string            `json:"cmdline,omitempty"` // arguments joined by one space
	Cgroup  string            `json:"cgroup,omitempty"`
	User    string            `json:"user,omitempty"` // name or number
	Env     map[string]string `json:"env,omitempty"`
}

// IsEmpty reports whether no condition is given.
func (m Match) IsEmpty() bool {
	return m.Comm == "" && m.Exe == "" && m.Cmdline == "" && m.Cgroup == "" && m.User == "" && len(m.Env) == 0
}

// A Scope tells a driver's Discover which targets a workload is about. Each
// driver reads the fields that mean something to it.
type Scope struct {
	Workload string   // address, `allreduce["0"]`
	Device   string   // RDMA device, "" when the workload names none
	Match    Match    // Pinning
	Targets  []string // Frequency, IRQ, Coalescing: names that the spec resolved to
}

// An Observed is one target as it was found.
type Observed struct {
	Target   Target
	Settings []Setting
}

// An Observation is what was found of one kind for one workload.
type Observation struct {
	Workload string
	Kind     Kind
	Found    []Observed
	// Unavailable says why the node has no such thing, "" when it has.
	Unavailable string
	// Incomplete says what could not be looked at and may belong to Found as well.
	Incomplete string
	// Err is why a managed thing could not be read.
	Err error
}

var _ json.Marshaler = Value{}
