package spec

import (
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// A Reconcile is how rdmatune reconcile keeps the node.
type Reconcile struct {
	Sweep time.Duration // between two looks at what raises no event
	// ContestedAfter is how often others may rewrite a setting within Window before it is
	// left to them.
	ContestedAfter  int
	Window          time.Duration
	RestoreOnStop   bool // on_stop = "restore"
	AllowLinkBounce bool // link_bounce = "allow"
	Irqbalance      bool // irqbalance = "negotiate"
	// Experiments is how many of its own the daemon keeps, the newest.
	Experiments int
}

// DefaultReconcile is what a spec has that says nothing of it.
var DefaultReconcile = Reconcile{Sweep: 30 * time.Second, ContestedAfter: 5, Window: 10 * time.Minute, Irqbalance: true, Experiments: 1000}

// readReconcile reads the evaluated block.
func readReconcile(in *instance) Reconcile {
	out := DefaultReconcile
	number := func(name string) (int64, bool) {
		v, ok := in.values[name]
		if !ok || !v.IsKnown() {
			return 0, false
		}
		n, _ := v.AsBigFloat().Int64()
		return n, true
	}
	is := func(name, word string, into *bool) {
		if v, ok := in.values[name]; ok && v.IsKnown() {
			*into = v.AsString() == word
		}
	}
	if ms, ok := number("sweep"); ok {
		out.Sweep = time.Duration(ms) * time.Millisecond
	}
	if ms, ok := number("contested_window"); ok {
		out.Window = time.Duration(ms) * time.Millisecond
	}
	if n, ok := number("contested_after"); ok {
		out.ContestedAfter = int(n)
	}
	if n, ok := number("keep_experiments"); ok {
		out.Experiments = int(n)
	}
	is("on_stop", "restore", &out.RestoreOnStop)
	is("link_bounce", "allow", &out.AllowLinkBounce)
	is("irqbalance", "negotiate", &out.Irqbalance)
	return out
}

// durationWithin is duration with bounds, inclusive.
func durationWithin(low, high time.Duration) parser {
	return func(v cty.Value) (cty.Value, string, error) {
		ms, notice, err := duration(v)
		if err != nil {
			return ms, notice, err
		}
		n, _ := ms.AsBigFloat().Int64()
		if d := time.Duration(n) * time.Millisecond; d < low || d > high {
			return ms, "", fmt.Errorf("a duration from %v to %v is required, found %v", low, high, d)
		}
		return ms, notice, nil
	}
}

// countWithin is a whole number with bounds, inclusive.
func countWithin(low, high int64) parser {
	return func(v cty.Value) (cty.Value, string, error) {
		if v.Type() != cty.Number {
			return v, "", fmt.Errorf("a whole number is required, found %s", describe(v))
		}
		_, err := integer(v, low, high)
		return v, "", err
	}
}
