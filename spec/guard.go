package spec

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/rdmatune/rdmatune/param"
)

// defaultGuardCount is how many messages a guard measures: enough for a P99.
const defaultGuardCount = 1000

// guards resolves the guard blocks of the workload.
func (r *resolver) guards() []Guard {
	group := r.in.workload.body.blocks["guard"]
	if group == nil {
		return nil
	}
	var out []Guard
	for _, name := range sortedKeys(group.blocks) {
		path := "guard." + name + "."
		g := Guard{Name: name, Kind: r.text(path + "kind"), Peer: r.text(path + "peer"), Count: defaultGuardCount,
			Warn: r.text(path+"on_breach") == "warn", Range: group.blocks[name].rng}
		if g.Kind == "" {
			g.Kind = "round_trip"
		}
		number := func(attr string) int64 {
			v, ok := r.in.values[path+attr]
			if !ok {
				return 0
			}
			n, _ := v.AsBigFloat().Int64()
			return n
		}
		g.Size, g.BandwidthMin = number("size"), number("bandwidth_min")
		limit := func(attr string) time.Duration {
			d, _ := param.ParseDuration(r.text(path + attr)) // "" is no limit; the parser of the argument has accepted the rest
			return d
		}
		g.P50Max, g.P99Max = limit("p50_max"), limit("p99_max")
		if n := number("count"); n > 0 {
			g.Count = int(n)
		}
		r.checkGuard(g, path)
		out = append(out, g)
	}
	return out
}

// checkGuard refuses a guard that nothing could breach, or that could not be measured.
func (r *resolver) checkGuard(g Guard, path string) {
	stream := g.Kind == "stream"
	switch {
	case g.P50Max == 0 && g.P99Max == 0 && g.BandwidthMin == 0:
		r.errorAt(g.Range, "Guard without a limit", "Nothing could breach the guard %q. Give p50_max, p99_max or, for a stream, bandwidth_min.", g.Name)
	case stream && (g.P50Max > 0 || g.P99Max > 0):
		r.errorAt(g.Range, "Wrong limit", "A stream has a bandwidth, not a latency: give bandwidth_min, or measure with kind = \"round_trip\".")
	case !stream && g.BandwidthMin > 0:
		r.errorAt(r.place(path+"bandwidth_min"), "Wrong limit", "Bandwidth is measured by a guard of its own, with kind = \"stream\".")
	case g.Kind == "completion" && g.Peer != "":
		r.errorAt(r.place(path+"peer"), "Peer without a use", "A guard of kind \"completion\" is measured on the workload's own connections.")
	case g.Kind == "completion" && !r.has("hint"):
		r.errorAt(g.Range, "Nothing to measure", "A guard of kind \"completion\" is about the connections that a hint block manages, and the workload has none.")
	case g.Kind != "completion" && g.Peer == "":
		r.warnAt(g.Range, "Guard without a peer", "The guard %q needs the address of an rdmatune bench serve (peer = \"host:7471\"). Without it, it is never measured, and every apply that changes something ends with 1.", g.Name)
	case g.Kind != "completion" && r.text("device") == "":
		r.errorAt(g.Range, "No device", "The guard %q measures on the workload's device, and it has none. Name one with device = \"...\".", g.Name)
	case g.P99Max > 0 && g.Count < 100:
		r.errorAt(r.place(path+"count"), "Too few messages", "A 99th percentile of %d messages says nothing; measure at least 100.", g.Count)
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
