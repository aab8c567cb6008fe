package serve

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rdmatune/rdmatune/reconcile"
)

// newRegistry returns a registry of what passes add up to, what a status says, and this
// process's memory, descriptors, CPU time and goroutines.
func newRegistry(status func() reconcile.Status) (*prometheus.Registry, *counted) {
	r := prometheus.NewRegistry()
	r.MustRegister(state{status}, process{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "go_goroutines", Help: "Goroutines of the daemon; that they grow without end is a bug."},
		func() float64 { return float64(runtime.NumGoroutine()) }))
	return r, newCounted(r)
}

// A process is the collector of what this process uses, without its network counters: they
// are read from /proc/PID/net/netstat, which counts the traffic of the whole network
// namespace, the host's that is.
type process struct{ all prometheus.Collector }

// hosts reports whether a metric is said to be the process's and is the host's. A
// description tells its name only in the text that begins so.
func hosts(d *prometheus.Desc) bool {
	return strings.HasPrefix(d.String(), `Desc{fqName: "process_network_`)
}

// Describe implements prometheus.Collector.
func (p process) Describe(ch chan<- *prometheus.Desc) {
	each(p.all.Describe, func(d *prometheus.Desc) {
		if !hosts(d) {
			ch <- d
		}
	})
}

// Collect implements prometheus.Collector.
func (p process) Collect(ch chan<- prometheus.Metric) {
	each(p.all.Collect, func(m prometheus.Metric) {
		if !hosts(m.Desc()) {
			ch <- m
		}
	})
}

// each calls do with all that produce sends.
func each[T any](produce func(chan<- T), do func(T)) {
	ch := make(chan T)
	go func() {
		defer close(ch)
		produce(ch)
	}()
	for v := range ch {
		do(v)
	}
}
