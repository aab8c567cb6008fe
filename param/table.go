package param

import (
	"fmt"
	"strconv"
	"time"
)

// A Unit says what an integer value counts.
type Unit uint8

// Units.
const (
	UnitNone  Unit = iota
	UnitBytes      // printed with KiB, MiB, GiB where exact
	UnitKHz        // printed as MHz where exact
	UnitUsec       // microseconds
	UnitMsec       // milliseconds, printed as a Go duration
	UnitCPUs       // a canonical kernel CPU list
)

// A Row holds the facts of one parameter.
type Row struct {
	ID      ID
	Kind    Kind
	Attr    string // attribute in the spec's block, and in the plan's before and after
	Unit    Unit
	Min     int64 // bounds of an integer value, inclusive; Max 0 = not an integer
	Max     int64
	Disrupt Disruption
	Doc     string
}

// MaxHint is the largest hint: the largest message that a reliable connection can
// carry, 2^31 bytes (InfiniBand Architecture Specification, volume 1, section 9.7.2).
const MaxHint = 1 << 31

// Table has one row per parameter, in the order in which a plan shows them.
var Table = []Row{
	{PinCPUs, Pinning, "cpus", UnitCPUs, 0, 0, None, "CPUs that the matched processes' threads may run on."},
	{Governor, Frequency, "governor", UnitNone, 0, 0, None, "cpufreq governor of the policy."},
	{MinKHz, Frequency, "min_khz", UnitKHz, 1, 100_000_000, None, "Lower limit of the policy's frequency."},
	{MaxKHz, Frequency, "max_khz", UnitKHz, 1, 100_000_000, None, "Upper limit of the policy's frequency."},
	{EnergyPreference, Frequency, "energy_preference", UnitNone, 0, 0, None, "Energy performance preference of the policy."},
	{Turbo, Frequency, "turbo", UnitNone, 0, 0, None, "Turbo frequencies, of all CPUs of the machine."},
	{CStateLatency, Frequency, "cstate_max_latency", UnitNone, 0, 0, None, "Longest wake-up from idle that the CPU may take; 0us allows no idle state."},
	{DMAMaxLatency, DMALatency, "max_latency", UnitNone, 0, 0, None, "Longest wake-up from idle of all CPUs, while a daemon holds it; 0us allows no idle state."},
	{IRQCPUs, IRQ, "cpus", UnitCPUs, 0, 0, None, "CPUs that may take the interrupt, as requested (smp_affinity_list)."},
	{AdaptiveRX, Coalescing, "adaptive_rx", UnitNone, 0, 0, None, "Adaptive receive coalescing of the netdev's channels."},
	{AdaptiveTX, Coalescing, "adaptive_tx", UnitNone, 0, 0, None, "Adaptive transmit coalescing of the netdev's channels."},
	{RXUsecs, Coalescing, "rx_usecs", UnitUsec, 0, 1<<32 - 1, None, "Delay from a received packet to its interrupt."},
	{RXFrames, Coalescing, "rx_frames", UnitNone, 0, 1<<32 - 1, None, "Received packets until an interrupt."},
	{TXUsecs, Coalescing, "tx_usecs", UnitUsec, 0, 1<<32 - 1, None, "Delay from a sent packet to its interrupt."},
	{TXFrames, Coalescing, "tx_frames", UnitNone, 0, 1<<32 - 1, None, "Sent packets until an interrupt."},
	{HintSize, Hint, "size", UnitBytes, 0, MaxHint, Pause, "Typical message size of the workload; picks the path. 0 = explicitly none."},
	{HintLanes, Hint, "lanes", UnitNone, 0, 0, Pause, "One lane for all sizes (single), or a bandwidth lane beside the low-latency one (dual)."},
	{HintCompletion, Hint, "completion", UnitNone, 0, 0, None, "How the low-latency lane waits: adaptive, busy or event."},
	{HintOrdered, Hint, "ordered", UnitNone, 0, 0, Pause, "Whether messages of both lanes are delivered in one order."},
	{HintEagerMax, Hint, "eager_max", UnitBytes, 0, MaxHint, Pause, "Largest message that is copied into registered buffers."},
	{HintOverride, Hint, "override", UnitNone, 0, 0, None, "Whether the hint stands against what the program or its environment says."},
	{DrainTimeout, Hint, "drain_timeout", UnitMsec, 1, 3_600_000, None, "Longest wait for the old lanes to drain before a switch is aborted."},
	{Cooldown, Hint, "cooldown", UnitMsec, 0, 30 * 24 * 3_600_000, None, "Shortest time between two switches of one connection."},
}

// Lookup returns the row of id.
func Lookup(id ID) (Row, bool) {
	for _, r := range Table {
		if r.ID == id {
			return r, true
		}
	}
	return Row{}, false
}

// Format returns v as a person reads it, in the unit of id.
func Format(id ID, v Value) string {
	r, _ := Lookup(id)
	n, isInt := v.AsInt()
	if !isInt {
		if s, ok := v.AsText(); ok && s == "" {
			return "(none)"
		}
		return v.String()
	}
	switch r.Unit {
	case UnitBytes:
		return FormatBytes(n)
	case UnitKHz:
		if n%1000 == 0 {
			return strconv.FormatInt(n/1000, 10) + " MHz"
		}
		return strconv.FormatInt(n, 10) + " kHz"
	case UnitUsec:
		return strconv.FormatInt(n, 10) + " us"
	case UnitMsec:
		return FormatDuration(time.Duration(n) * time.Millisecond)
	}
	return v.String()
}

// FormatDuration returns d as ParseDuration reads it: whole in the largest unit that
// divides it.
func FormatDuration(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if d != 0 && d%u.size == 0 {
			return fmt.Sprintf("%d%s", d/u.size, u.name)
		}
	}
	if d == 0 {
		return "0s"
	}
	return d.String()
}

// FormatBytes returns n with the largest binary unit that divides it.
func FormatBytes(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
