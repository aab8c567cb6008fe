package serve

import (
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rdmatune/rdmatune/reconcile"
)

// TestHostsCountersAreDropped: of what the library tells of a process only the counters
// that are not the process's are missing, in what is announced as in what is told.
func TestHostsCountersAreDropped(t *testing.T) {
	names := func(g prometheus.Gatherer) map[string]bool {
		t.Helper()
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, f := range families {
			out[f.GetName()] = true
		}
		return out
	}
	theirs := prometheus.NewRegistry()
	theirs.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry, _ := newRegistry(func() reconcile.Status { return reconcile.Status{} })
	ours := names(registry)
	missing := names(theirs)
	maps.DeleteFunc(missing, func(name string, _ bool) bool { return ours[name] })
	want := []string{"process_network_receive_bytes_total", "process_network_transmit_bytes_total"}
	if got := slices.Sorted(maps.Keys(missing)); !slices.Equal(got, want) {
		t.Errorf("without %q, want without %q", got, want)
	}

	count := func(c prometheus.Collector) (n int) {
		each(c.Describe, func(*prometheus.Desc) { n++ })
		return n
	}
	all := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	if got, want := count(process{all}), count(all)-2; got != want {
		t.Errorf("%d descriptions, want %d", got, want)
	}
}
