package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/param"
)

// FormatVersion is the version of the report's JSON: the minor number rises when a
// field is added, the major one when a field changes its meaning or goes.
const FormatVersion = "1.0"

// RoundTrip is the kind of all latencies here: from before the send of a message to
// after the receipt of its answer.
const RoundTrip = "round_trip"

// A Report is what one client's run found.
type Report struct {
	Workload string // as the client was told
	Device   string // of the client
	// PeerDevice is what the server calls its own: text from elsewhere.
	PeerDevice string
	Simulated  bool // a simulated node's device carried the messages
	Warmup     int
	Sizes      []Size
	// Unknown counts messages whose fate is not known, because the run ended while
	// they were under way: 0 or 1.
	Unknown uint64
	// Complete says that the server's counts are in Sizes; they are not when the
	// connection broke.
	Complete bool
	// Experiment is the id under which the run is on record; the caller fills it in.
	Experiment string
	// Switches are the connection's path switches during the run; the caller, who has
	// the connection, fills them in.
	Switches []control.Switch
}

// A Size is what was found for one size.
type Size struct {
	Size int64 // bytes
	Sent uint64
	Counts
	Latency *measure.Histogram // of timed messages: neither warm-up nor damaged
}

// OK reports whether every message of every size arrived once, in order and whole.
func (r Report) OK() bool {
	for _, s := range r.Sizes {
		if !s.Counts.OK() {
			return false
		}
	}
	return r.Complete && r.Unknown == 0
}

// MarshalJSON writes the report as documented by FormatVersion. A latency without
// samples is null.
func (r Report) MarshalJSON() ([]byte, error) {
	type size struct {
		Size int64    `json:"size"`
		N    int64    `json:"n"`
		Sent uint64   `json:"sent"`
		P50  *float64 `json:"p50_us"`
		P99  *float64 `json:"p99_us"`
		Max  *float64 `json:"max_us"`
		Counts
	}
	sizes := make([]size, len(r.Sizes))
	for i, s := range r.Sizes {
		sum := s.Latency.Summary()
		sizes[i] = size{
			Size: s.Size, N: sum.N, Sent: s.Sent, Counts: s.Counts,
			P50: micros(sum.N, sum.P50), P99: micros(sum.N, sum.P99), Max: micros(sum.N, sum.Max),
		}
	}
	switches := r.Switches
	if switches == nil {
		switches = []control.Switch{}
	}
	return json.Marshal(struct {
		FormatVersion string           `json:"format_version"`
		Workload      string           `json:"workload"`
		Device        string           `json:"device"`
		PeerDevice    string           `json:"peer_device"`
		Simulated     bool             `json:"simulated"`
		Kind          string           `json:"kind"`
		Warmup        int              `json:"warmup"`
		Sizes         []size           `json:"sizes"`
		Unknown       uint64           `json:"unknown"`
		Complete      bool             `json:"complete"`
		Switches      []control.Switch `json:"switches"`
		Experiment    string           `json:"experiment,omitempty"`
	}{FormatVersion, r.Workload, r.Device, r.PeerDevice, r.Simulated, RoundTrip, r.Warmup, sizes, r.Unknown, r.Complete, switches, r.Experiment})
}

func micros(n int64, d time.Duration) *float64 {
	if n == 0 {
		return nil
	}
	us := float64(d.Nanoseconds()) / 1000
	return &us
}

// WriteText writes the report as a table for a person.
func (r Report) WriteText(w io.Writer) error {
	label := "round trip, microseconds"
	if r.Simulated {
		label += ", simulated device"
	}
	if _, err := fmt.Fprintf(w, "%s on %s (%s; %d warm-up messages per change of size not timed)\n\n",
		orNone(r.Workload), orNone(r.Device), label, r.Warmup); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "SIZE\tN\tP50\tP99\tMAX\tLOST\tDUPLICATED\tREORDERED\tCORRUPTED\t")
	for _, s := range r.Sizes {
		sum := s.Latency.Summary()
		p50, p99, most := "-", "-", "-"
		if sum.N > 0 {
			p50, p99, most = text(sum.P50), text(sum.P99), text(sum.Max)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t\n", param.FormatBytes(s.Size), sum.N,
			p50, p99, most, s.Lost, s.Duplicated, s.Reordered, s.Corrupted)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Unknown > 0 {
		if _, err := fmt.Fprintf(w, "\n%d message was under way when the run ended: its fate is not known.\n", r.Unknown); err != nil {
			return err
		}
	}
	if !r.Complete {
		if _, err := fmt.Fprintln(w, "\nThe server's own counts are missing: the connection broke before they came."); err != nil {
			return err
		}
	}
	for _, s := range r.Switches {
		if _, err := fmt.Fprintf(w, "\nSwitch to generation %d: %s; %d messages held, %d drained, pause %s us.\n",
			s.Generation, s.Outcome, s.Held, s.Drained, text(s.Pause)); err != nil {
			return err
		}
	}
	if r.Experiment != "" {
		if _, err := fmt.Fprintf(w, "\nExperiment %s.\n", r.Experiment); err != nil {
			return err
		}
	}
	return nil
}

func text(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Nanoseconds())/1000) }

func orNone(s string) string {
	if s == "" {
		return "(no name)"
	}
	return s
}
