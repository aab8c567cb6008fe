// Package watch hears of what happens on a node: who writes to its settings, what the
// kernel changes by itself, which processes start. Each source is a file; what it says
// comes out of one Watcher as Events. An event is a reason to look, never a truth: its
// content is untrusted, it may be late, double or lost, and whoever acts on one reads the
// node first.
package watch

import "time"

// A Source is where an event comes from.
type Source string

// The sources.
const (
	Writes     Source = "writes"     // fanotify: a process wrote to a watched file
	Kernel     Source = "uevents"    // kobject uevents: CPUs, modules, devices, queues
	Links      Source = "links"      // rtnetlink: a netdev changed
	Ethtool    Source = "ethtool"    // the ethtool monitor group: coalescing, channels, rings
	Processes  Source = "processes"  // the process connector: exec, and a process that names itself
	Spec       Source = "spec"       // inotify: files of the spec
	Transports Source = "transports" // inotify: control sockets in the run directory
)

// An Event is one thing that happened.
type Event struct {
	Source Source
	// What happened, one word: "write", "add", "remove", "online", "offline", "bind",
	// "unbind", "move", "change", "up", "down", "exec", "lost". After "lost" the kernel, or this
	// package, has dropped events of the source: anything may have changed.
	What string
	// Subject is what it happened to: a watched file's path, a device's path below /sys, a
	// netdev, an executable.
	Subject string
	// PID is the process that wrote or started, 0 where the kernel does not say;
	// Comm and Command are its name and command line as they were when asked, printable,
	// and empty when it was gone by then.
	PID     int
	Comm    string
	Command string
	When    time.Time
}

// A Status says whether a source works, and why not.
type Status struct {
	Source Source `json:"source"`
	On     bool   `json:"on"`
	Reason string `json:"reason,omitempty"` // why it is off, or hears only a part, and what stands in
	Events uint64 `json:"events"`
	Lost   uint64 `json:"lost"` // how often events were dropped
}
