package reconcile

import (
	"context"
	"log/slog"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile/watch"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// Config is what a loop works with. Node, Drivers, BootID, Owner, Load, Watcher and
// Describe are needed.
type Config struct {
	Node    *node.Node
	Drivers drivers.Set
	BootID  string
	Version string
	// Owner is written into the node's lock while a pass holds it.
	Owner state.Owner
	// Load reads the spec, which is not nil also with errors; what it says is wrong keeps the
	// last good one.
	Load func() (*spec.Spec, hcl.Diagnostics)
	// Attended: somebody sees it start, and can mend a spec that is invalid. Else a daemon
	// that has something to keep waits for it to become valid.
	Attended bool
	// Replace takes the node over from another spec.
	Replace bool
	// DryRun looks, judges and tells, and changes nothing.
	DryRun  bool
	Watcher *watch.Watcher
	// Before is called under the lock before each look; nil does nothing.
	Before func(ctx context.Context) error
	// Describe fills in the record of a run as far as it is known before it.
	Describe func(kind experiment.Kind, sp *spec.Spec, doc *state.Document, facts *node.Facts) experiment.Experiment
	// Switches reports the switches of a workload's generation; nil reports none.
	Switches func(ctx context.Context, workload string, generation uint64) []experiment.Switch
	// Meter returns what measures the guards of a plan that is about to be made; nil can
	// measure none.
	Meter func(ctx context.Context, p *plan.Plan, facts *node.Facts) func(context.Context, plan.Guard) (apply.Measurement, error)
	// Negotiate makes irqbalance leave the interrupts with these numbers alone and says
	// what was agreed; with none it takes that back. Nil does nothing.
	Negotiate func(ctx context.Context, irqs []int) (string, error)
	// Leave is called before Run returns and waits for what irqbalance still has to answer:
	// some versions end when nobody hears them. Nil waits for nothing.
	Leave func(ctx context.Context) error
	// Rivals names other programs that may tune the same; nil knows none.
	Rivals func() []string
	// Matches reports whether one of the processes may be a workload's; nil takes any.
	Matches func(sp *spec.Resolved, pids []int) bool
	// Sound says why the daemon must not go on, such as a lock that it has lost; nil is never.
	// It is asked with every sweep.
	Sound func() error
	// OnBegin is called when it is decided which spec is kept, before the first look; nil is
	// not called.
	OnBegin func()
	// OnPass hears of every pass, OnAlive many times a minute while the loop is sound, from
	// several goroutines.
	OnPass  func(Pass)
	OnAlive func()
	// OnReload is called before a signal makes the loop read the spec anew, and what it
	// returns afterwards.
	OnReload func() (done func())
	Log      *slog.Logger
}
