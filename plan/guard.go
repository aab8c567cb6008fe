package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/param"
)

// Limits says what g allows, for a person.
func (g Guard) Limits() string {
	var parts []string
	if g.P50Max > 0 {
		parts = append(parts, "p50 at most "+g.P50Max.String())
	}
	if g.P99Max > 0 {
		parts = append(parts, "p99 at most "+g.P99Max.String())
	}
	if g.BandwidthMin > 0 {
		parts = append(parts, fmt.Sprintf("at least %.1f MiB/s", float64(g.BandwidthMin)/(1<<20)))
	}
	return strings.Join(parts, ", ")
}

// Address is the guard's full address.
func (g Guard) Address() string { return fmt.Sprintf("workload.%s.guard[%q]", g.Workload, g.Name) }

// frozenGuard reports whether a guard's address is of a workload that is frozen as a whole.
func (in Input) frozenGuard(address string) bool {
	for p := range in.Frozen {
		if p.Kind == "" && strings.HasPrefix(address, fmt.Sprintf("workload.%s.guard[", p.Workload)) {
			return true
		}
	}
	return false
}

// GuardsDue are the guards to be measured after the plan's changes: those of workloads
// that it changes something of, and those that were due before and have no verdict since,
// or one that undid nothing.
func (p *Plan) GuardsDue() []Guard {
	changed := map[string]bool{}
	for _, c := range p.Changes {
		if c.Action != param.Restore {
			changed[c.Workload] = true
		}
	}
	var out []Guard
	for _, g := range p.Guards {
		if changed[g.Workload] || slices.Contains(p.Base.Unmeasured, g.Address()) {
			out = append(out, g)
		}
	}
	return out
}

// guardNotes says what will be measured after the plan's changes.
func (p *Plan) guardNotes() []Note {
	var out []Note
	for _, g := range p.GuardsDue() {
		what := fmt.Sprintf("%s of %s: %s", strings.ReplaceAll(g.Kind, "_", " "), param.FormatBytes(g.Size), g.Limits())
		switch {
		case g.Peer != "":
			what += ", against " + g.Peer
		case g.Kind == "completion":
			what += ", on the live connections"
		default:
			what += ", but it has no peer to be measured against"
		}
		if g.Warn {
			what += "; a breach is only reported"
		} else {
			what += "; a breach rolls the workload back"
		}
		out = append(out, Note{g.Address(), what})
	}
	return out
}
