package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// frequency resolves a frequency_lock to the cpufreq policies of the whole cores of
// its CPUs: SMT siblings share a clock, so half a core cannot be locked.
func (r *resolver) frequency(w *Want, _ *node.RDMA) {
	path := "frequency_lock.cpus"
	if _, own := r.in.values[path]; !own {
		path = "cpu_pinning.cpus"
		if _, pinned := r.in.values[path]; !pinned {
			r.errorAt(w.Range, "No CPUs to lock", "The workload has no cpu_pinning, whose CPUs a frequency_lock follows. Add one, or give cpus here.")
			return
		}
	}
	cpus, ok := r.cpus(path)
	if !ok {
		return
	}
	if len(r.facts.Cpufreq) == 0 {
		w.Unavailable = cmp.Or(r.facts.Why["cpufreq"], "this node has no cpufreq")
		return
	}
	cores := cpulist.New()
	for _, c := range cpus.List() {
		cores = cores.Union(coreOf(r.facts, c))
	}
	left := cores.Intersection(set(r.facts.CPUs.Online))
	faults := map[fault]*faulty{}
	var order []fault
	for _, p := range r.facts.Cpufreq {
		own := set(p.CPUs).Intersection(cores)
		if own.IsEmpty() {
			continue
		}
		left = left.Difference(own)
		t, bad := r.policy(p)
		if bad == nil {
			w.Targets = append(w.Targets, t)
			continue
		}
		if faults[*bad] == nil {
			faults[*bad] = &faulty{policy: p.Policy, cpus: cpulist.New()}
			order = append(order, *bad)
		}
		faults[*bad].cpus = faults[*bad].cpus.Union(own)
	}
	if turbo, ok := r.in.values["frequency_lock.turbo"]; ok {
		w.Targets = append(w.Targets, TargetWant{Name: "turbo", Settings: []Setting{{
			Setting: param.Setting{ID: param.Turbo, Value: param.Bool(turbo.True())}, Range: r.place("frequency_lock.turbo")}}})
	}
	if limit := r.text("frequency_lock.cstate_max_latency"); limit != "" {
		for _, c := range cores.Intersection(set(r.facts.CPUs.Online)).List() {
			w.Targets = append(w.Targets, TargetWant{Name: fmt.Sprintf("cpu%d", c), Settings: []Setting{{
				Setting: param.Setting{ID: param.CStateLatency, Value: param.Text(limit)}, Range: r.place("frequency_lock.cstate_max_latency")}}})
		}
	}
	for _, f := range order {
		r.errorAt(f.rng, f.summary, "CPU %s %s Found on the node, under /sys/devices/system/cpu/cpufreq/%s: %s.",
			cpulist.Format(faults[f].cpus), f.detail, faults[f].policy, f.evidence)
	}
	if !left.IsEmpty() {
		r.errorAt(r.place(path), "No cpufreq policy", "CPU %s has no cpufreq policy on this node.", cpulist.Format(left))
	}
}

// A fault is why a policy cannot hold what is asked. Policies with the same fault
// are reported as one, with all their CPUs.
type fault struct {
	rng                       hcl.Range
	summary, detail, evidence string
}

type faulty struct {
	policy string // the first one
	cpus   cpulist.Set
}

// policy resolves one policy: the frequency in kHz within what it can hold, and the
// governor among those that it offers.
func (r *resolver) policy(p node.Policy) (TargetWant, *fault) {
	rng := r.place("frequency_lock.frequency")
	asked := r.text("frequency_lock.frequency")
	var khz *int64
	file := ""
	switch asked {
	case "base":
		khz, file = p.BaseKHz, "base_frequency"
	case "max":
		khz, file = p.HardwareMaxKHz, "cpuinfo_max_freq"
	case "min":
		khz, file = p.HardwareMinKHz, "cpuinfo_min_freq"
	default:
		n, err := param.ParseFrequency(asked)
		if err != nil { // the parser of the argument has accepted it
			return TargetWant{}, &fault{rng, "Invalid frequency", sentence(err.Error()), "nothing"}
		}
		khz = &n
	}
	if khz == nil {
		return TargetWant{}, &fault{rng, "Frequency not known", fmt.Sprintf("has no known %q frequency. Give a number instead.", asked),
			file + " is absent or unreadable"}
	}
	if p.HardwareMinKHz != nil && *khz < *p.HardwareMinKHz || p.HardwareMaxKHz != nil && *khz > *p.HardwareMaxKHz {
		return TargetWant{}, &fault{rng, "Frequency out of range", fmt.Sprintf("cannot run at %s.", mhz(khz)),
			fmt.Sprintf("cpuinfo_min_freq = %s, cpuinfo_max_freq = %s", mhz(p.HardwareMinKHz), mhz(p.HardwareMaxKHz))}
	}
	if len(p.AvailableKHz) > 0 && !slices.Contains(p.AvailableKHz, *khz) {
		near := nearest(p.AvailableKHz, *khz)
		return TargetWant{}, &fault{rng, "Frequency not available", fmt.Sprintf("cannot hold %s; the nearest that it can is %s.", mhz(khz), mhz(&near)),
			"scaling_available_frequencies = " + strings.Trim(fmt.Sprint(p.AvailableKHz), "[]")}
	}
	if ps := r.facts.PState; ps != nil && ps.MaxPerfPct != nil && p.HardwareMaxKHz != nil && *khz > *p.HardwareMaxKHz/100*int64(*ps.MaxPerfPct) {
		r.warnAt(rng, "A second limit below the lock", "intel_pstate limits all CPUs to %d%% of their highest frequency, which is below %s: the policies will say that they are locked, and run slower. Found on the node: /sys/devices/system/cpu/intel_pstate/max_perf_pct = %d.",
			*ps.MaxPerfPct, mhz(khz), *ps.MaxPerfPct)
	}
	turbo, given := r.in.values["frequency_lock.turbo"]
	off := given && turbo.False()
	if ps := r.facts.PState; ps != nil && ps.NoTurbo != nil && !given {
		off = *ps.NoTurbo
	}
	if off && p.BaseKHz != nil && *khz > *p.BaseKHz {
		r.warnAt(rng, "A second limit below the lock", "Turbo is off, and %s is above the base frequency of %s: the policies will say that they are locked, and run at that. Lock %s, or have turbo = true.",
			mhz(khz), mhz(p.BaseKHz), mhz(p.BaseKHz))
	}
	t := TargetWant{Name: p.Policy}
	if g := r.text("frequency_lock.governor"); g != "" {
		rng := r.place("frequency_lock.governor")
		if len(p.Governors) > 0 && !slices.Contains(p.Governors, g) {
			return TargetWant{}, &fault{rng, "No such governor", fmt.Sprintf("has no governor %q%s.", g, suggest(g, p.Governors)),
				"scaling_available_governors = " + strings.Join(p.Governors, " ")}
		}
		t.Settings = append(t.Settings, Setting{Setting: param.Setting{ID: param.Governor, Value: param.Text(g)}, Range: rng})
	}
	if e := r.text("frequency_lock.energy_preference"); e != "" {
		rng := r.place("frequency_lock.energy_preference")
		if len(p.EnergyPreferences) > 0 && !slices.Contains(p.EnergyPreferences, e) {
			return TargetWant{}, &fault{rng, "No such energy preference", fmt.Sprintf("has no energy preference %q%s.", e, suggest(e, p.EnergyPreferences)),
				"energy_performance_available_preferences = " + strings.Join(p.EnergyPreferences, " ")}
		}
		if g := r.text("frequency_lock.governor"); g == "performance" && e != "performance" && deref(p.Driver) == "intel_pstate" {
			return TargetWant{}, &fault{rng, "Energy preference fixed by the governor", fmt.Sprintf("cannot have the energy preference %q under the governor performance, which fixes it to performance.", e),
				"scaling_driver = intel_pstate"}
		}
		t.Settings = append(t.Settings, Setting{Setting: param.Setting{ID: param.EnergyPreference, Value: param.Text(e)}, Range: rng})
	}
	for _, id := range []param.ID{param.MinKHz, param.MaxKHz} {
		t.Settings = append(t.Settings, Setting{Setting: param.Setting{ID: id, Value: param.Int(*khz)}, Range: rng})
	}
	return t, nil
}

func mhz(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return param.Format(param.MinKHz, param.Int(*n))
}

func nearest(of []int64, to int64) int64 {
	best := of[0]
	for _, v := range of {
		if abs(v-to) < abs(best-to) {
			best = v
		}
	}
	return best
}

func abs(n int64) int64 { return max(n, -n) }
