package spec

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/rdmatune/rdmatune/param"
)

// defaultGuardCount is how many messages a guard measures: enough for a P99.
const defaultGuardCount = 1000

// p99Messages is the least messages of which a 99th percentile is another than the longest.
const p99Messages = 100

// guards are the guard blocks of an instance, by name, as far as their values are known.
func (in *instance) guards() []Guard {
	group := in.workload.body.blocks["guard"]
	if group == nil {
		return nil
	}
	var out []Guard
	for _, name := range sortedKeys(group.blocks) {
		path := "guard." + name + "."
		known := true
		value := func(attr string) (v cty.Value, ok bool) {
			v, ok = in.values[path+attr]
			known = known && (!ok || v.IsKnown())
			return v, ok && known
		}
		text := func(attr string) string {
			if v, ok := value(attr); ok {
				return v.AsString()
			}
			return ""
		}
		number := func(attr string) int64 {
			v, ok := value(attr)
			if !ok {
				return 0
			}
			n, _ := v.AsBigFloat().Int64()
			return n
		}
		limit := func(attr string) time.Duration {
			d, _ := param.ParseDuration(text(attr)) // "" is no limit; the parser of the argument has accepted the rest
			return d
		}
		g := Guard{
			Name: name, Kind: cmp.Or(text("kind"), "round_trip"), Peer: text("peer"), Warn: text("on_breach") == "warn",
			Size: number("size"), BandwidthMin: number("bandwidth_min"), Count: int(cmp.Or(number("count"), defaultGuardCount)),
			P50Max: limit("p50_max"), P99Max: limit("p99_max"), Range: group.blocks[name].rng,
		}
		if known {
			out = append(out, g)
		}
	}
	return out
}

// checkGuards refuses guards that nothing could breach, or that could not be measured. It
// takes no node to know that.
func (e *evaluator) checkGuards(in *instance) {
	for _, g := range in.guards() {
		e.checkGuard(in, g)
	}
}

func (e *evaluator) checkGuard(in *instance, g Guard) {
	say := func(severity hcl.DiagnosticSeverity, rng hcl.Range, summary, format string, args ...any) {
		e.add(&hcl.Diagnostic{Severity: severity, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: rng.Ptr()})
	}
	place := func(attr string) hcl.Range { return in.place("guard." + g.Name + "." + attr) }
	_, device := in.values["device"]
	stream := g.Kind == "stream"
	switch {
	case g.P50Max == 0 && g.P99Max == 0 && g.BandwidthMin == 0:
		say(hcl.DiagError, g.Range, "Guard without a limit", "Nothing could breach the guard %q. Give p50_max, p99_max or, for a stream, bandwidth_min.", g.Name)
	case stream && (g.P50Max > 0 || g.P99Max > 0):
		say(hcl.DiagError, g.Range, "Wrong limit", "A stream has a bandwidth, not a latency: give bandwidth_min, or measure with kind = \"round_trip\".")
	case !stream && g.BandwidthMin > 0:
		say(hcl.DiagError, place("bandwidth_min"), "Wrong limit", "Bandwidth is measured by a guard of its own, with kind = \"stream\".")
	case g.Kind == "completion" && g.Peer != "":
		say(hcl.DiagError, place("peer"), "Peer without a use", "A guard of kind \"completion\" is measured on the workload's own connections.")
	case g.Kind == "completion" && in.workload.body.blocks["hint"] == nil:
		say(hcl.DiagError, g.Range, "Nothing to measure", "A guard of kind \"completion\" is about the connections that a hint block manages, and the workload has none.")
	case g.Kind != "completion" && g.Peer == "":
		say(hcl.DiagWarning, g.Range, "Guard without a peer", "The guard %q needs the address of an rdmatune bench serve (peer = \"host:7471\"). Without it, it is never measured, and every apply that changes something ends with 1.", g.Name)
	case g.Kind != "completion" && !device:
		say(hcl.DiagError, g.Range, "No device", "The guard %q measures on the workload's device, and it has none. Name one with device = \"...\".", g.Name)
	case g.P99Max > 0 && g.Count < p99Messages:
		say(hcl.DiagError, place("count"), "Too few messages", "A 99th percentile of %d messages says nothing; measure at least %d.", g.Count, p99Messages)
	}
}

// messageSize is a size that a message of the benchmark can have.
func messageSize(v cty.Value) (cty.Value, string, error) {
	out, notice, err := hintSize(v)
	if err != nil {
		return out, notice, err
	}
	if n, _ := out.AsBigFloat().Int64(); n < 8 || n > 64<<20 {
		return out, notice, fmt.Errorf("a message of %s cannot be measured; give 8B to 64MiB", param.FormatBytes(n))
	}
	return out, notice, nil
}

// sampleCount is a number of messages.
func sampleCount(v cty.Value) (cty.Value, string, error) {
	n, err := integer(v, 1, 10_000_000)
	if err != nil {
		return v, "", err
	}
	return cty.NumberIntVal(n), "", nil
}

// rate is a whole number of bytes or bits per second.
var rate = regexp.MustCompile(`^([0-9]{1,15}) ?(B|KiB|MiB|GiB|Mbit|Gbit)/s$`)

// rateUnits are the bytes per second of a unit of rate.
var rateUnits = map[string]float64{
	"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8,
}

// ParseBandwidth parses a whole number with a unit and returns bytes per second.
func ParseBandwidth(s string) (int64, error) {
	if m := rate.FindStringSubmatch(s); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if total := float64(n) * rateUnits[m[2]]; err == nil && total >= 1 && total < 1e15 {
			return int64(total), nil
		}
	}
	return 0, fmt.Errorf("a bandwidth such as \"800MiB/s\" or \"90Gbit/s\" is required, found %.60q", s)
}

// bandwidth is a string with a unit; the canonical value is bytes per second.
func bandwidth(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.String {
		return v, "", fmt.Errorf("a bandwidth such as \"800MiB/s\" or \"90Gbit/s\" is required, found %s", describe(v))
	}
	n, err := ParseBandwidth(v.AsString())
	return cty.NumberIntVal(n), "", err
}

// peer is a host and a port.
func peer(v cty.Value) (cty.Value, string, error) {
	if v.Type() == cty.String {
		host, port, err := net.SplitHostPort(v.AsString())
		if n, portErr := strconv.ParseUint(port, 10, 16); err == nil && portErr == nil && n > 0 && host != "" {
			return v, "", nil
		}
	}
	return v, "", fmt.Errorf("a host and a port such as \"10.9.0.1:7471\" are required, found %s", describe(v))
}
