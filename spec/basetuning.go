package spec

import (
	"slices"

	"github.com/rdmatune/rdmatune/param"
)

// BaseTuning are the blocks without which a hint's gain is lost again.
var BaseTuning = []param.Kind{param.Pinning, param.Frequency, param.IRQ}

// Tuned returns the blocks of base tuning that w has on this node. The interrupts of its
// device are a NIC's, not a workload's: they count whichever workload places them.
func (r *Resolved) Tuned(w *Workload) []param.Kind {
	has := func(w *Workload, kind param.Kind) bool {
		return slices.ContainsFunc(w.Wants, func(want Want) bool { return want.Kind == kind && want.Unavailable == "" })
	}
	var out []param.Kind
	for _, kind := range BaseTuning {
		shared := kind == param.IRQ && w.Device != "" && slices.ContainsFunc(r.Workloads, func(other Workload) bool {
			return other.Device == w.Device && has(&other, kind)
		})
		if shared || has(w, kind) {
			out = append(out, kind)
		}
	}
	return out
}
