package spec

import (
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/param"
)

// A Resolved is what a spec asks of one node: its workloads by address, each with
// what it wants.
type Resolved struct {
	Root      string // as in Spec
	Digest    string
	Workloads []Workload
	Reconcile Reconcile
	// Unfit is what this node cannot hold: diagnostics say why, and what Workloads has of it
	// is not whole.
	Unfit []Part
}

// A Part is what of a spec something is about: a workload, or one of its blocks.
type Part struct {
	Workload string     // its address
	Kind     param.Kind // the block's; "" for the whole workload
}

// String is the part's address: train, or train.irq_affinity.
func (p Part) String() string {
	if p.Kind == "" {
		return p.Workload
	}
	return p.Workload + "." + string(p.Kind)
}

// A Workload is one workload after for_each, with everything evaluated.
type Workload struct {
	Address     string // allreduce["0"]
	Description string
	Device      string // "" when none is named
	Match       param.Match
	// Continue keeps the workload's other changes when a write is refused
	// (on_failure = "continue").
	Continue bool
	Range    hcl.Range
	Wants    []Want  // in the order of param.Kinds
	Guards   []Guard // by name
}

// AboutProcesses reports whether it matters to w which processes there are: those that it
// matches, and those that name it to be pinned.
func (w Workload) AboutProcesses() bool {
	return !w.Match.IsEmpty() || slices.ContainsFunc(w.Wants, func(want Want) bool { return want.Kind == param.Pinning })
}

// A Guard is a limit that is measured after an apply.
type Guard struct {
	Name  string
	Size  int64  // bytes
	Kind  string // round_trip, completion or stream
	Peer  string // host:port of a bench serve; "" when none is given
	Count int    // messages
	// Limits; 0 is none.
	P50Max, P99Max time.Duration
	BandwidthMin   int64 // bytes per second
	Warn           bool  // on_breach = "warn"
	Range          hcl.Range
}

// A Want is one block of a workload: the targets and what each should have.
type Want struct {
	Kind  param.Kind
	Range hcl.Range
	// Targets are the targets by name. The single name "" stands for every target
	// that the driver discovers in the workload's scope: the processes of a pinning,
	// the transports of a hint.
	Targets []TargetWant
	// AllThreads is cpu_pinning's threads = "all".
	AllThreads bool
	// AllOrNone is hint's on_failure = "rollback".
	AllOrNone bool
	// Unavailable says why this node cannot have it at all; Targets is then empty.
	Unavailable string
}

// A TargetWant is what one target should have.
type TargetWant struct {
	Name     string
	Settings []Setting
}

// A Setting is a wanted value and the place that wants it.
type Setting struct {
	param.Setting
	Range hcl.Range
}

// Scope is what a driver's Discover needs to know of w for k.
func (w Workload) Scope(k param.Kind) param.Scope {
	s := param.Scope{Workload: w.Address, Device: w.Device, Match: w.Match}
	for _, want := range w.Wants {
		if want.Kind != k {
			continue
		}
		for _, t := range want.Targets {
			if t.Name != "" {
				s.Targets = append(s.Targets, t.Name)
			}
		}
	}
	return s
}

// Workloads are the names of the spec's workload blocks, in the order of the text.
func (s *Spec) Workloads() []string {
	var names []string
	for _, w := range s.workloads {
		names = append(names, w.name)
	}
	return names
}
