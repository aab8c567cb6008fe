package spec

import (
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Version is the language and tool version that required_version is held against. The
// linker sets it for a build of another one (-X); nothing else may.
var Version = "0.1.0"

// An attribute of the language. value turns the evaluated expression into what
// the rest of the package works with and says what is wrong with it.
type attribute struct {
	name     string
	required bool
	value    parser
	typ      string // for the reference: what may be written
	def      string // for the reference: what stands when it is not written
	doc      string
	// later, when not empty, says that the attribute is part of the language but not
	// of this version.
	later string
}

// A block of the language.
type block struct {
	name   string
	labels []string
	attrs  []attribute
	blocks []*block
	// many allows the block more than once in its parent.
	many    bool
	doc     string
	example string // for the reference: as it stands in a file
	later   string
}

// laterVersion is the detail of a diagnostic for what the language has but this
// version does not.
const laterVersion = "It is part of the language but not in this version of rdmatune. Remove it, or use a later version."

var settingsBlock = &block{
	name: "rdmatune", doc: "Settings of the spec itself.",
	attrs: []attribute{
		{name: "required_version", value: textValue, typ: "version constraint", doc: "Versions of rdmatune that may read the spec, as in \">= 0.1.0\"."},
	},
}

var variableBlock = &block{
	name: "variable", labels: []string{"name"}, many: true,
	doc: "A value that is given from outside, as `var.NAME`.",
	attrs: []attribute{
		{name: "type", typ: "type", def: "any", doc: "`string`, `number`, `bool`, `list(...)`, `set(...)`, `map(...)`, `object({...})`, `tuple([...])`; not in quotes."},
		{name: "default", typ: "value of the type", def: "none: a value must be given", doc: "A constant."},
		{name: "description", typ: "string", doc: "For people."},
	},
}

var localsBlock = &block{
	name: "locals", many: true, doc: "Values with names, each as `local.NAME`. Any number of blocks, each with any number of arguments.",
	attrs: []attribute{{name: "NAME", typ: "any value", doc: "Any expression: also of variables, other local values and `node`, but not of a workload."}},
}

var reconcileBlock = &block{
	name: "reconcile", doc: "How `rdmatune reconcile` keeps the node. At most one in a spec.",
	example: `reconcile {
  sweep            = "30s"
  contested_after  = 5
  contested_window = "10m"
  on_stop          = "restore"
}`,
	attrs: []attribute{
		{name: "sweep", value: durationWithin(time.Second, time.Hour), typ: "duration", def: "`\"30s\"`", doc: "Between two looks at what raises no event, from 1s to 1h."},
		{name: "contested_after", value: countWithin(1, 1000), typ: "number", def: "5", doc: "Rewrites by others within `contested_window` that make a setting contested: it is reported and left to them, and tried again after an hour. A rewrite is one look that finds another value than the one that rdmatune wrote; however often it was written until it is healed, it counts once. With 5, four are healed and the fifth is not. Resets by the kernel itself are counted apart, and it takes four times as many."},
		{name: "contested_window", value: durationWithin(time.Second, 24*time.Hour), typ: "duration", def: "`\"10m\"`", doc: "From 1s to 24h."},
		{name: "on_stop", value: oneOf("leave", "restore"), typ: "`\"leave\"`, `\"restore\"`", def: "`\"leave\"`", doc: "What a clean stop does to the tuning."},
		{name: "link_bounce", value: oneOf("never", "allow"), typ: "`\"never\"`, `\"allow\"`", def: "`\"never\"`", doc: "Whether a change may take a link down for a moment. The link of the default route, and of whoever is logged in, is never taken down."},
		{name: "keep_experiments", value: countWithin(1, 1_000_000), typ: "number", def: "1000", doc: "How many records of its own the daemon keeps in the experiment database: the newest. Those of `apply`, `tune` and `bench` are never removed by it."},
		{name: "irqbalance", value: oneOf("negotiate", "ignore"), typ: "`\"negotiate\"`, `\"ignore\"`", def: "`\"negotiate\"`", doc: "Whether irqbalance is asked, through its socket, to leave the managed interrupts alone."},
	},
}

var workloadBlock = &block{
	name: "workload", labels: []string{"name"}, many: true,
	doc: "What one set of processes should have.",
	attrs: []attribute{
		{name: "description", value: textValue, typ: "string", doc: "For people."},
		{name: "device", value: textValue, typ: "string", doc: "RDMA device; its netdevs, NUMA node and interrupts follow from it."},
		{name: "on_failure", value: oneOf("rollback", "continue"), typ: "`\"rollback\"`, `\"continue\"`", def: "`\"rollback\"`", doc: "What a refused write does to the workload's other changes."},
	},
	blocks: []*block{
		{
			name: "match", doc: "Which processes the workload is about: all conditions must hold; texts are globs.",
			attrs: []attribute{
				{name: "comm", value: glob, typ: "glob", doc: "Command name, as in /proc/PID/comm."},
				{name: "exe", value: glob, typ: "glob", doc: "Path of the executable."},
				{name: "cmdline", value: glob, typ: "glob", doc: "Arguments joined by one space."},
				{name: "cgroup", value: glob, typ: "glob", doc: "Control group path."},
				{name: "user", value: glob, typ: "glob", doc: "User name or number."},
				{name: "env", value: globMap, typ: "map of globs", doc: "Environment variables."},
			},
		},
		{
			name: "cpu_pinning", doc: "CPUs of the processes' threads.",
			attrs: []attribute{
				{name: "cpus", required: true, value: cpuList, typ: "CPU list", doc: "CPUs that the threads may run on."},
				{name: "threads", value: oneOf("unpinned", "all"), typ: "`\"unpinned\"`, `\"all\"`", def: "`\"unpinned\"`", doc: "`\"unpinned\"` leaves threads alone that a library pinned by itself."},
			},
		},
		{
			name: "frequency_lock", doc: "One frequency for the whole cores of the pinned CPUs.",
			attrs: []attribute{
				{name: "frequency", required: true, value: frequency, typ: "frequency, `\"base\"`, `\"max\"`, `\"min\"`", doc: "As in \"2600MHz\", or \"base\", \"max\", \"min\"."},
				{name: "cpus", value: cpuList, typ: "CPU list", def: "those of `cpu_pinning`", doc: "CPUs whose cores are locked; by default cpu_pinning's."},
				{name: "governor", value: textValue, typ: "string", def: "left alone", doc: "cpufreq governor."},
				{name: "energy_preference", value: textValue, typ: "string", def: "left alone", doc: "Energy performance preference; the governor `performance` fixes it."},
				{name: "turbo", value: boolValue, typ: "bool", def: "left alone", doc: "Turbo frequencies, of all CPUs of the machine."},
				{name: "cstate_max_latency", value: latency, typ: "duration", def: "left alone", doc: "Longest wake-up from idle of the locked CPUs; `\"0us\"` allows no idle state."},
			},
		},
		{
			name: "cpu_dma_latency", doc: "The wake-up from idle of all CPUs of the machine (`/dev/cpu_dma_latency`). The kernel keeps the bound only while a process holds it: `rdmatune reconcile` does, and for a plan without it the block is pending. `cstate_max_latency` of `frequency_lock` is the same for the locked CPUs alone, and stays.",
			attrs: []attribute{
				{name: "max_latency", required: true, value: latency, typ: "duration", doc: "Longest wake-up that any CPU may take, in whole microseconds; `\"0us\"` allows no idle state."},
			},
		},
		{
			name: "irq_affinity", doc: "CPUs of the device's interrupts. They are the NIC's: of several workloads on one device a single one needs the block, and it counts for all (see Sharing a NIC or a NUMA node).",
			attrs: []attribute{
				{name: "cpus", required: true, value: cpuList, typ: "CPU list", doc: "CPUs that may take the interrupts."},
				{name: "strategy", value: oneOf("spread", "one_to_one", "single"), typ: "`\"spread\"`, `\"one_to_one\"`, `\"single\"`", def: "`\"spread\"`", doc: "How vectors are laid over the CPUs: one CPU each in turn; one CPU of its own for each; all on the first."},
			},
		},
		{
			name: "coalescing", doc: "Interrupt coalescing of the device's netdevs.",
			attrs: []attribute{
				{name: "adaptive_rx", value: boolValue, typ: "bool", def: "left alone", doc: "Adaptive receive coalescing."},
				{name: "adaptive_tx", value: boolValue, typ: "bool", def: "left alone", doc: "Adaptive transmit coalescing."},
				{name: "rx_usecs", value: count32, typ: "number", def: "left alone", doc: "Microseconds from a received packet to its interrupt."},
				{name: "rx_frames", value: count32, typ: "number", def: "left alone", doc: "Received packets until an interrupt."},
				{name: "tx_usecs", value: count32, typ: "number", def: "left alone", doc: "Microseconds from a sent packet to its interrupt."},
				{name: "tx_frames", value: count32, typ: "number", def: "left alone", doc: "Sent packets until an interrupt."},
			},
		},
		{name: "rdma_moderation", later: laterVersion, attrs: []attribute{{name: "adaptive", value: boolValue}}},
		{
			name: "hint", doc: "What the transport is told about message sizes.",
			attrs: []attribute{
				{name: "size", required: true, value: hintSize, typ: "size", doc: "Messages of at most this size are low latency; 0 = explicitly none."},
				{name: "lanes", value: oneOf("single", "dual"), typ: "`\"single\"`, `\"dual\"`", def: "`\"single\"`", doc: "One queue pair for all sizes, or a second one for messages above `size`: more memory and a queue pair more per connection, and large messages keep their bandwidth."},
				{name: "completion", value: oneOf("adaptive", "busy", "event"), typ: "`\"adaptive\"`, `\"busy\"`, `\"event\"`", def: "`\"adaptive\"`", doc: "How the low-latency lane waits: spin, then an event; spin; an event. Goroutines of a process that spin leave it one of its CPUs: those beyond that are woken by them."},
				{name: "ordered", value: boolValue, typ: "bool", def: "`true`", doc: "Deliver the messages of both lanes in one order. `false` lets small ones pass large ones, which a program must expect; it needs `lanes = \"dual\"`."},
				{name: "eager_max", value: hintSize, typ: "size", def: "the transport's own", doc: "Largest message that is copied into registered buffers."},
				{name: "override", value: boolValue, typ: "bool", def: "`true`", doc: "Whether apply's hint stands against the program's own and its environment's."},
				{name: "on_failure", value: oneOf("continue", "rollback"), typ: "`\"continue\"`, `\"rollback\"`", def: "`\"continue\"`", doc: "\"rollback\": switch all connections or none."},
			},
			blocks: []*block{{
				name: "switch", doc: "How connections change over.",
				attrs: []attribute{
					{name: "drain_timeout", value: duration, typ: "duration", def: "`\"2s\"`", doc: "Longest wait for the old lanes to drain."},
					{name: "cooldown", value: duration, typ: "duration", def: "`\"0s\"`", doc: "Shortest time between two switches of one connection."},
				},
			}},
		},
		{
			name: "guard", labels: []string{"name"}, many: true,
			doc: "A limit that is measured after every apply that changed something of the workload. What could not be measured never passes.",
			example: `workload "rpc" {
  device = "mlx5_0"
  hint {
    size = "4KiB"
  }

  guard "tail" {
    size      = "8B"
    p99_max   = "20us"
    peer      = "10.9.0.1:7471"
    on_breach = "rollback"
  }
}`,
			attrs: []attribute{
				{name: "size", required: true, value: messageSize, typ: "size", doc: "Size of the messages that are measured."},
				{name: "kind", value: oneOf("round_trip", "completion", "stream"), typ: "`\"round_trip\"`, `\"completion\"`, `\"stream\"`", def: "`\"round_trip\"`", doc: "`round_trip` and `stream` (bandwidth) are measured against `peer`; `completion` is the time from a message's post to its completion on the workload's own live connections, of all sizes that go the same way."},
				{name: "p50_max", value: latency, typ: "duration", def: "no limit", doc: "Longest median, at most 1s."},
				{name: "p99_max", value: latency, typ: "duration", def: "no limit", doc: "Longest 99th percentile, at most 1s; it takes a `count` of at least 100."},
				{name: "bandwidth_min", value: bandwidth, typ: "bandwidth", def: "no limit", doc: "Lowest bandwidth of a `stream`, as in \"800MiB/s\" or \"90Gbit/s\"."},
				{name: "peer", value: peer, typ: "host:port", doc: "Where `rdmatune bench serve` answers."},
				{name: "count", value: sampleCount, typ: "number", def: "1000", doc: "Messages that are measured, after 100 that are not; at most 10000000."},
				{name: "on_breach", value: oneOf("rollback", "warn"), typ: "`\"rollback\"`, `\"warn\"`", def: "`\"rollback\"`", doc: "What a breach does to the workload's changes."},
			},
		},
	},
}

// forEach is an argument of a workload that decides how many there are; it is not
// part of self, so it stands beside the table.
const forEach = "for_each"

// bodySchema is the HCL schema of b's body.
func (b *block) bodySchema() *hcl.BodySchema {
	s := &hcl.BodySchema{}
	for _, a := range b.attrs {
		s.Attributes = append(s.Attributes, hcl.AttributeSchema{Name: a.name, Required: a.required})
	}
	for _, sub := range b.blocks {
		s.Blocks = append(s.Blocks, hcl.BlockHeaderSchema{Type: sub.name, LabelNames: sub.labels})
	}
	return s
}

func (b *block) attr(name string) (attribute, bool) {
	for _, a := range b.attrs {
		if a.name == name {
			return a, true
		}
	}
	return attribute{}, false
}

func (b *block) sub(name string) *block {
	for _, s := range b.blocks {
		if s.name == name {
			return s
		}
	}
	return nil
}
