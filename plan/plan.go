// Package plan compares what a spec wants with what a node has and what rdmatune
// did to it before, and yields the ordered changes between them. It is pure: the
// same inputs give the same plan, and nothing is read or written.
package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// Input is all that a plan depends on.
type Input struct {
	// Spec is what is wanted; with no workloads (destroy) everything is restored.
	Spec *spec.Resolved
	// Observed is what was found for each workload and kind of the spec.
	Observed []param.Observation
	// Remembered are targets that the state knows and no observation covers, as they
	// are now; those that are gone are missing here.
	Remembered []param.Observed
	// Unreadable says of remembered targets why they could not be read.
	Unreadable map[param.Target]error
	State      *state.Document
	BootID     string
	// Online and Present are CPUs; empty where they are not known. The kernel cuts a
	// thread's affinity to those that are online.
	Online, Present cpulist.Set
	// Force restores originals also where somebody else has changed the value.
	Force bool
	// Destroy says that there is no spec: everything is restored.
	Destroy bool
	// Frozen are parts of the spec of which nothing is known now: what the state remembers of
	// them is neither changed nor restored.
	Frozen map[spec.Part]bool
	// Notes are said in the plan, such as what earlier measurements showed.
	Notes []Note
	// Live is what was seen of the processes of workloads with a hint.
	Live []Live
}

// Without returns in without some parts of its spec: they are frozen.
func (in Input) Without(parts []spec.Part) Input {
	in.Frozen = maps.Clone(in.Frozen)
	if in.Frozen == nil {
		in.Frozen = map[spec.Part]bool{}
	}
	for _, p := range parts {
		in.Frozen[p] = true
	}
	if in.Spec == nil {
		return in
	}
	rest := *in.Spec
	rest.Workloads = nil
	for _, w := range in.Spec.Workloads {
		if in.Frozen[spec.Part{Workload: w.Address}] {
			continue
		}
		w.Wants = slices.DeleteFunc(slices.Clone(w.Wants), func(want spec.Want) bool { return in.Frozen[spec.Part{Workload: w.Address, Kind: want.Kind}] })
		rest.Workloads = append(rest.Workloads, w)
	}
	in.Spec = &rest
	return in
}

// frozen reports whether one of the workloads that want a setting of a kind cannot be
// judged now.
func (in Input) frozen(workloads []string, kind param.Kind) bool {
	return slices.ContainsFunc(workloads, func(w string) bool {
		return in.Frozen[spec.Part{Workload: w}] || in.Frozen[spec.Part{Workload: w, Kind: kind}]
	})
}

// A Plan is what is to be done, in order.
type Plan struct {
	Changes []Change
	// Pending is decided but cannot happen now. It is never a change.
	Pending []Note
	// Deferred says that something of Pending will be possible after a while, without
	// anything else having to happen.
	Deferred bool
	// Notes are what a person should know: what is not available here, what is left alone.
	Notes []Note
	Diags hcl.Diagnostics

	// Broken is what the errors among Diags are about.
	Broken []spec.Part

	// Policies tells how each workload wants failures handled.
	Policies map[string]Policy
	// Digests are of what the spec says of each workload: its settings and its guards.
	Digests map[string]string
	// Orders accompany the changes of a target to its driver.
	Orders map[param.Target]param.Order
	// Generations are the workloads' generations after the plan.
	Generations map[string]state.Generation
	// Base is the state with all that follows without any write: who wants what,
	// values that were right already, targets that are gone.
	Base   *state.Document
	BootID string
	// Destroy: the plan is one of restoring everything.
	Destroy bool
	// Unreadable are managed settings whose value cannot be read now: their originals
	// are kept, and whoever shows or applies the plan ends with an error.
	Unreadable []Note
	// Live is what was seen beside the plan.
	Live []Live
	// Guards are measured after an apply that changed something of their workload.
	Guards []Guard
	// LeftAlone counts the settings that a restore leaves to whoever has changed them.
	LeftAlone int
}

// A Change is a param.Change with what only the plan knows of it.
type Change struct {
	param.Change
	// Drift: apply had left New, and somebody else has changed it.
	Drift bool
}

// A Note is said of one address.
type Note struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
}

// A Guard is a limit on what is measured after an apply.
type Guard struct {
	Workload string
	Device   string
	Name     string
	Kind     string // round_trip, completion or stream
	Size     int64  // bytes
	Count    int    // messages
	Peer     string // host:port of a bench serve
	// Limits; 0 is none.
	P50Max, P99Max time.Duration
	BandwidthMin   int64 // bytes per second
	Warn           bool  // a breach undoes nothing
	Origin         string
}

// A Policy is how a workload wants failures handled.
type Policy struct {
	Continue  bool // on_failure = "continue"
	AllOrNone bool // hint's on_failure = "rollback"
}

// A Summary counts targets by what happens to them.
type Summary struct {
	Change  int `json:"change"`
	Replace int `json:"replace"`
	Restore int `json:"restore"`
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// OnlyDrift reports whether every change puts back what an earlier apply had left.
func (p *Plan) OnlyDrift() bool {
	for _, c := range p.Changes {
		if !c.Drift {
			return false
		}
	}
	return len(p.Changes) > 0
}

// Errored reports whether the plan can be looked at but not applied.
func (p *Plan) Errored() bool { return p.Diags.HasErrors() }

// Summary counts the plan's targets.
func (p *Plan) Summary() Summary {
	var s Summary
	for _, g := range p.groups() {
		switch g.action {
		case param.Update:
			s.Change++
		case param.Replace:
			s.Replace++
		case param.Restore:
			s.Restore++
		}
	}
	return s
}

// Address is the full address of a target of a workload.
func Address(workload string, t param.Target) string {
	base := "workload." + workload + "." + string(t.Kind)
	if t.Kind == param.Hint && isPublished(t) {
		return base
	}
	return base + "[\"" + t.Name + "\"]"
}

// publishedPrefix starts the name of the target that future processes of a
// workload will read their hint from.
const publishedPrefix = "published/"

// Published is the target that future processes of a workload read their hint from.
func Published(workload string) param.Target {
	return param.Target{Kind: param.Hint, Name: publishedPrefix + workload}
}

func isPublished(t param.Target) bool {
	return len(t.Name) > len(publishedPrefix) && t.Name[:len(publishedPrefix)] == publishedPrefix
}

// A group is the changes of one target.
type group struct {
	workload string
	target   param.Target
	action   param.Action
	changes  []Change
}

// groups returns the changes by target, in plan order.
func (p *Plan) groups() []group {
	var out []group
	for _, c := range p.Changes {
		if n := len(out); n > 0 && out[n-1].target.Key() == c.Target.Key() && out[n-1].workload == c.Workload {
			g := &out[n-1]
			g.changes = append(g.changes, c)
			if c.Action == param.Replace {
				g.action = param.Replace
			}
			continue
		}
		out = append(out, group{c.Workload, c.Target, c.Action, []Change{c}})
	}
	return out
}
