// Package reconcile keeps a node as its spec wants it: it plans and applies on events and
// by a slow sweep, decides what to heal, what to leave for a while and what to give up, and
// tells what it does.
package reconcile

import (
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

// FormatVersion is the version of Status as JSON. A higher first number means that fields
// changed their meaning or went away.
const FormatVersion = "1.0"

// A Trigger is why a pass was made.
type Trigger string

// The triggers.
const (
	AtStart  Trigger = "start"
	OnEvent  Trigger = "event"
	OnSweep  Trigger = "sweep"  // the sweep found something different
	OnTimer  Trigger = "timer"  // something that was to wait is due
	OnSpec   Trigger = "spec"   // the spec's files changed
	OnSignal Trigger = "signal" // SIGHUP
)

// A Drift is one setting that somebody has changed since rdmatune wrote it.
type Drift struct {
	Address string    `json:"address"` // of the target, as in a plan
	Setting string    `json:"setting"` // attribute, with its index
	Wrote   string    `json:"wrote"`   // what rdmatune had left
	Found   string    `json:"found"`
	Writer  string    `json:"writer"` // who did it, as far as is known: `pid 812 "irqbalance"`, or the likely cause
	Known   bool      `json:"known"`  // the kernel named the writer
	When    time.Time `json:"when"`   // of the event, or when it was found
	// Ruling is what was decided: "heal", "wait", "contested", "no consent".
	Ruling string `json:"ruling"`
	// Healed is how long after When the setting read right again; 0 when it does not yet.
	Healed time.Duration `json:"healed_ns,omitempty"`

	subject subject
}

// A Pass is what one look at the node found and did.
type Pass struct {
	Trigger  Trigger       `json:"trigger"`
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took_ns"`
	Planned  time.Duration `json:"planned_ns"`       // how much of it was looking and planning
	Events   int           `json:"events"`           // that led to it
	Drifts   []Drift       `json:"drifts,omitempty"` // seen for the first time
	Heals    []Drift       `json:"heals,omitempty"`  // that read right again, also those of earlier passes
	Changed  int           `json:"changed"`          // settings written, drift and others
	Failures []string      `json:"failures,omitempty"`
	// Switches are the connections' that the pass ordered.
	Switches []experiment.Switch `json:"switches,omitempty"`
	// RolledBack are the workloads that are as they were before the pass.
	RolledBack []string `json:"rolled_back,omitempty"`
	// Experiment is the record of what was changed, "" for nothing.
	Experiment string `json:"experiment,omitempty"`
	// Err is why the pass as a whole could not be made, "" for none.
	Err string `json:"error,omitempty"`
}

// A Held is a setting that is not healed now, and why.
type Held struct {
	Address  string    `json:"address"`
	Setting  string    `json:"setting"`
	Reason   string    `json:"reason"`
	Rewrites int       `json:"rewrites"`         // by others within the window
	Writer   string    `json:"writer,omitempty"` // the last one
	Until    time.Time `json:"until,omitzero"`   // zero of a contested one: until the spec changes, a SIGHUP, or a quiet hour
}

// A Workload is what is in force for one.
type Workload struct {
	Address     string `json:"address"`
	Hint        *int64 `json:"hint"`   // bytes, that processes find at their start; nil: none
	Wanted      *int64 `json:"wanted"` // that the spec wants; nil: it has none
	Generation  uint64 `json:"generation"`
	Settings    int    `json:"settings"`    // managed
	Processes   int    `json:"processes"`   // of the workload's, pinned or on the transport
	Connections int    `json:"connections"` // on the transport
}

// SpecStatus is which spec is kept.
type SpecStatus struct {
	Root   string    `json:"root"`
	Digest string    `json:"digest"`
	Commit string    `json:"commit,omitempty"`
	Loaded time.Time `json:"loaded,omitzero"` // from its files; zero: not known
	Copy   bool      `json:"copy,omitempty"`  // the files were invalid at the start, and it comes from the copy in the state directory
	// Invalid is what is wrong with the files as they are now, "" for nothing: the last
	// good spec is kept meanwhile.
	Invalid string `json:"invalid,omitempty"`
}

// A Status is what a running daemon says of itself.
type Status struct {
	FormatVersion string     `json:"format_version"`
	Version       string     `json:"version"`
	PID           int        `json:"pid"`
	BootID        string     `json:"boot_id"`
	Started       time.Time  `json:"started"`
	DryRun        bool       `json:"dry_run"` // it looks and tells, and changes nothing
	Spec          SpecStatus `json:"spec"`
	// Healthy is false while Problems has what keeps the node from being as wanted, or the
	// daemon from knowing.
	Healthy    bool           `json:"healthy"`
	Problems   []string       `json:"problems,omitempty"`
	Sources    []watch.Status `json:"sources"`
	Workloads  []Workload     `json:"workloads"`
	Contested  []Held         `json:"contested"`
	Waiting    []Held         `json:"waiting"`
	RolledBack []Held         `json:"rolled_back"`          // settings that are as they were, by a guard or since a write was refused
	Left       []Held         `json:"left"`                 // settings that must not be made, or were tried once
	Guards     []Debt         `json:"guards"`               // those without a good verdict
	Notes      []string       `json:"notes,omitempty"`      // what the plan has to say, such as what the node does not have; at most 50
	Irqbalance string         `json:"irqbalance,omitempty"` // what was agreed with it, or that there is none
	// IrqbalanceAgreed is false while it may move interrupts that rdmatune places.
	IrqbalanceAgreed bool     `json:"irqbalance_agreed"`
	Others           []string `json:"others,omitempty"` // daemons that may tune the same (tuned, power-profiles-daemon)
	Passes           uint64   `json:"passes"`
	Sweeps           uint64   `json:"sweeps"`
	Drifts           uint64   `json:"drifts"`
	Heals            uint64   `json:"heals"`
	LastPass         *Pass    `json:"last_pass,omitempty"` // with the first 20 of its drifts, heals, failures and switches
	Recent           []Drift  `json:"recent,omitempty"`    // the last drifts, newest first, at most 20
}
