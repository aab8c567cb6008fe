package serve

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

// A counted is what adds up over the passes. Labels have few values, whatever a node has:
// kinds, rulings and outcomes, never an address or a process.
type counted struct {
	passes   *prometheus.CounterVec
	errors   prometheus.Counter
	changes  prometheus.Counter
	failures prometheus.Counter
	drifts   *prometheus.CounterVec
	heals    *prometheus.CounterVec
	switches *prometheus.CounterVec
	took     prometheus.Histogram
	planned  prometheus.Histogram
	healed   prometheus.Histogram
	paused   prometheus.Histogram
}

// Bounds of the histograms, in seconds. A pass takes milliseconds on a small node; drift by
// a writer is to be healed within a second, the kernel's own within two; a switch pauses
// for as long as its old lanes drain.
var (
	passSeconds  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	healSeconds  = []float64{.01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 300, 1800}
	pauseSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
)

func newCounted(r prometheus.Registerer) *counted {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	c := &counted{
		passes:   vector("rdmatune_passes_total", "Looks at the node, by why they were made.", "trigger"),
		errors:   counter("rdmatune_pass_errors_total", "Looks at the node that could not be made."),
		changes:  counter("rdmatune_changes_total", "Settings that were written."),
		failures: counter("rdmatune_failures_total", "Settings that could not be written."),
		drifts:   vector("rdmatune_drifts_total", "Managed settings found changed by others, by what was decided.", "kind", "ruling"),
		heals:    vector("rdmatune_heals_total", "Changed settings that read right again.", "kind"),
		switches: vector("rdmatune_switches_total", "Switches of connections that were ordered, by how they ended.", "outcome"),
		took:     histogram("rdmatune_pass_duration_seconds", "Time of a look at the node with what it led to.", passSeconds),
		planned:  histogram("rdmatune_plan_duration_seconds", "Part of a look at the node that was reading and planning.", passSeconds),
		healed:   histogram("rdmatune_heal_duration_seconds", "Time from a change by others to the setting reading right again.", healSeconds),
		paused:   histogram("rdmatune_switch_pause_seconds", "Time in which a switching connection held its requests.", pauseSeconds),
	}
	// Those that alarms are made of are there before anything happens.
	for _, t := range triggers {
		c.passes.WithLabelValues(t)
	}
	return c
}

// other stands for a label's value that is not among those known.
const other = "other"

var (
	triggers = []string{string(reconcile.AtStart), string(reconcile.OnEvent), string(reconcile.OnSweep), string(reconcile.OnTimer),
		string(reconcile.OnSpec), string(reconcile.OnSignal)}
	rulings  = []string{string(reconcile.Heal), string(reconcile.Wait), string(reconcile.Contested), string(reconcile.NoConsent), string(reconcile.Once), string(reconcile.Rejected)}
	outcomes = []string{control.Switched, control.InPlace, control.Aborted, control.Refused, control.Deferred, control.Gone}
	sources  = []string{string(watch.Writes), string(watch.Kernel), string(watch.Links), string(watch.Ethtool), string(watch.Processes),
		string(watch.Spec), string(watch.Transports)}
)

func oneOf(known []string, v string) string {
	if slices.Contains(known, v) {
		return v
	}
	return other
}

// kindOf returns the kind in an address: workload.NAME["KEY"].KIND["TARGET"].
func kindOf(address string) string {
	rest, ok := strings.CutPrefix(address, "workload.")
	end := strings.IndexAny(rest, ".[")
	if !ok || end < 0 {
		return other
	}
	rest = rest[end:]
	if key, ok := strings.CutPrefix(rest, "["); ok {
		quoted, err := strconv.QuotedPrefix(key)
		if err != nil {
			return other
		}
		if rest, ok = strings.CutPrefix(key[len(quoted):], "]"); !ok {
			return other
		}
	}
	kind, ok := strings.CutPrefix(rest, ".")
	if i := strings.IndexByte(kind, '['); i >= 0 {
		kind = kind[:i]
	}
	if !ok || !slices.Contains(param.Kinds(), param.Kind(kind)) {
		return other
	}
	return kind
}

func (c *counted) observe(p reconcile.Pass) {
	c.passes.WithLabelValues(oneOf(triggers, string(p.Trigger))).Inc()
	if p.Err != "" {
		c.errors.Inc()
	}
	c.took.Observe(p.Took.Seconds())
	c.planned.Observe(p.Planned.Seconds())
	c.changes.Add(float64(max(p.Changed, 0)))
	c.failures.Add(float64(len(p.Failures)))
	for _, d := range p.Drifts {
		c.drifts.WithLabelValues(kindOf(d.Address), oneOf(rulings, d.Ruling)).Inc()
	}
	for _, d := range p.Heals {
		c.heals.WithLabelValues(kindOf(d.Address)).Inc()
		c.healed.Observe(d.Healed.Seconds())
	}
	for _, s := range p.Switches {
		c.switches.WithLabelValues(oneOf(outcomes, s.Outcome)).Inc()
		if s.Outcome == control.Switched {
			c.paused.Observe(s.Pause.Seconds())
		}
	}
}

// A state is a collector of what a status says now.
type state struct{ status func() reconcile.Status }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	buildInfo     = desc("rdmatune_build_info", "The version that runs.", "version")
	healthy       = desc("rdmatune_healthy", "1 while nothing keeps the node from being as the spec wants it.")
	dryRun        = desc("rdmatune_dry_run", "1 when nothing is changed.")
	specInfo      = desc("rdmatune_spec_info", "The spec that is kept.", "digest", "commit")
	specValid     = desc("rdmatune_spec_valid", "0 while the spec's files are invalid and the last good spec is kept.")
	specLoaded    = desc("rdmatune_spec_loaded_timestamp_seconds", "When the spec that is kept was loaded.")
	irqbalance    = desc("rdmatune_irqbalance_agreed", "0 while irqbalance may move interrupts that rdmatune places.")
	rivals        = desc("rdmatune_other_daemons", "Running daemons that may tune the same, irqbalance included.")
	sweeps        = desc("rdmatune_sweeps_total", "Sweeps over all managed settings.")
	contested     = desc("rdmatune_contested_settings", "Settings that were given up since others keep rewriting them.", "kind")
	waiting       = desc("rdmatune_waiting_settings", "Settings that are not healed yet.", "kind")
	rolledBack    = desc("rdmatune_rolled_back_settings", "Settings that are as they were, since a guard was breached or a write refused, and are not tried again by themselves.", "kind")
	left          = desc("rdmatune_left_settings", "Settings that are left alone since they may not be made, or were tried once.", "kind")
	unmeasured    = desc("rdmatune_unmeasured_guards", "Guards of what is in force that have no verdict, or are breached with nothing left to undo.")
	hintBytes     = desc("rdmatune_workload_hint_bytes", "The hint that processes of a workload find at their start, where there is one.", "workload")
	wantedBytes   = desc("rdmatune_workload_wanted_hint_bytes", "The hint that the spec wants for a workload, where it does.", "workload")
	generation    = desc("rdmatune_workload_generation", "What the connections of a workload follow.", "workload")
	managed       = desc("rdmatune_workload_settings", "Managed settings of a workload.", "workload")
	processes     = desc("rdmatune_workload_processes", "Processes of a workload.", "workload")
	connections   = desc("rdmatune_workload_connections", "Connections of a workload on rdmatune's transport.", "workload")
	sourceUp      = desc("rdmatune_source_up", "0 when events of a source are not heard and the sweep stands in.", "source")
	sourceEvents  = desc("rdmatune_source_events_total", "Events of a source.", "source")
	sourceLosses  = desc("rdmatune_source_losses_total", "How often events of a source were dropped.", "source")
	allOfAStatus  = []*prometheus.Desc{buildInfo, healthy, dryRun, specInfo, specValid, specLoaded, irqbalance, rivals, sweeps, contested, waiting, rolledBack, left, unmeasured, hintBytes, wantedBytes, generation, managed, processes, connections, sourceUp, sourceEvents, sourceLosses}
	maxWorkloads  = 1000 // that are told of; a spec's for_each has no bound of its own
	maxLabelBytes = 200
)

// Describe implements prometheus.Collector.
func (state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allOfAStatus {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c state) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(buildInfo, 1, label(s.Version))
	gauge(healthy, truth(s.Healthy))
	gauge(dryRun, truth(s.DryRun))
	gauge(specInfo, 1, label(s.Spec.Digest), label(s.Spec.Commit))
	gauge(specValid, truth(s.Spec.Invalid == ""))
	gauge(specLoaded, seconds(s.Spec.Loaded))
	gauge(irqbalance, truth(s.IrqbalanceAgreed))
	gauge(rivals, float64(len(s.Others)))
	counter(sweeps, s.Sweeps)
	byKind := func(d *prometheus.Desc, list []reconcile.Held) {
		n := map[string]int{}
		for _, h := range list {
			n[kindOf(h.Address)]++
		}
		for _, k := range param.Kinds() {
			gauge(d, float64(n[string(k)]), string(k))
		}
		if n[other] > 0 {
			gauge(d, float64(n[other]), other)
		}
	}
	byKind(contested, s.Contested)
	byKind(waiting, s.Waiting)
	byKind(rolledBack, s.RolledBack)
	byKind(left, s.Left)
	gauge(unmeasured, float64(len(s.Guards)))
	told := map[string]bool{}
	for _, w := range s.Workloads[:min(len(s.Workloads), maxWorkloads)] {
		name := label(w.Address)
		if told[name] {
			continue // cut to the same text as another
		}
		told[name] = true
		if w.Hint != nil {
			gauge(hintBytes, float64(*w.Hint), name)
		}
		if w.Wanted != nil {
			gauge(wantedBytes, float64(*w.Wanted), name)
		}
		gauge(generation, float64(w.Generation), name)
		gauge(managed, float64(w.Settings), name)
		gauge(processes, float64(w.Processes), name)
		gauge(connections, float64(w.Connections), name)
	}
	heard := map[string]bool{}
	for _, src := range s.Sources {
		name := oneOf(sources, string(src.Source))
		if heard[name] {
			continue
		}
		heard[name] = true
		gauge(sourceUp, truth(src.On), name)
		counter(sourceEvents, src.Events, name)
		counter(sourceLosses, src.Lost, name)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a time as Prometheus has it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// label makes a text fit for a label: valid UTF-8, and not long.
func label(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxLabelBytes)], "") }
