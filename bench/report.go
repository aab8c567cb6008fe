package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/measure"
)

// FormatVersion is the version of the report's JSON: the minor number rises when a
// field is added, the major one when a field changes its meaning or goes.
const FormatVersion = "1.2"

// A Report is what one client's run found.
type Report struct {
	Workload string // as the client was told
	Device   string // of the client
	// PeerDevice is what the server calls its own: text from elsewhere.
	PeerDevice string
	Simulated  bool // a simulated node's device carried the messages
	Mode       Mode
	Warmup     int
	InFlight   int // messages of a stream under way at once
	Rate       float64
	Burst      int // messages that were sent at once
	Conns      int // of each arm
	Series     []Series
	Sizes      []Size // by arm, then as the sizes were given
	// Unknown counts messages whose fate is not known, because the run ended while
	// they were under way: at most one of each connection.
	Unknown uint64
	// Interrupted says that the run was to be longer.
	Interrupted bool
	// Complete says that the server's counts are in Sizes; they are not when the
	// connection broke.
	Complete bool
	// Experiment is the id under which the run is on record; the caller fills it in.
	Experiment string
	// Switches are the connection's path switches during the run; the caller, who has
	// the connection, fills them in.
	Switches []control.Switch
}

// A Series is one arm of a run.
type Series struct {
	Name    string            `json:"name"`
	Hint    *int64            `json:"hint"` // bytes; nil: none
	Profile map[string]string `json:"profile,omitempty"`
}

// A Size is what was found for one size on one arm.
type Size struct {
	Series string // name of the arm
	Tier   string // by which its connections carry the size; "" where that is not known
	Size   int64  // bytes
	// Sent are the messages that an end sent by itself, which answers are not: the
	// client's, and where a stream goes both ways the server's as well.
	Sent uint64
	Counts
	// Latency has the timed messages: neither warm-up nor damaged. Empty in a stream.
	Latency  *measure.Histogram
	Worst    []measure.Sample
	Timeline []Point
	// Sends are empty but in bursts.
	Sends Sends
	// Messages and Took are of the timed part of a stream.
	Messages int64
	Bytes    int64
	Took     time.Duration
	Counters
}

// Bandwidth is the payload in bytes per second, both directions together, 0 for round
// trips.
func (s Size) Bandwidth() int64 {
	if s.Took <= 0 {
		return 0
	}
	return int64(float64(s.Bytes) / s.Took.Seconds())
}

// OK reports whether every message of every size arrived once, in order and whole.
func (r Report) OK() bool { return r.intact() && r.Complete && r.Unknown == 0 }

// intact reports whether nothing was seen to be wrong.
func (r Report) intact() bool {
	return !slices.ContainsFunc(r.Sizes, func(s Size) bool { return !s.Counts.OK() })
}

// Measured reports whether any message was timed.
func (r Report) Measured() bool {
	return slices.ContainsFunc(r.Sizes, func(s Size) bool { return s.Messages > 0 || s.Latency != nil && s.Latency.N() > 0 })
}

// CutShort reports whether err, with which the run ended, is but the end of the wait
// after an interrupt. A server that does not answer any more, as one that is stopped does
// not, makes nothing wrong of what was measured before.
func (r Report) CutShort(err error) bool {
	return r.Interrupted && r.intact() && errors.Is(err, context.Canceled)
}

// Notes say what a reader of the numbers must know.
func (r Report) Notes() []string {
	var notes []string
	if r.Warmup == 0 {
		notes = append(notes, "cold: no message was sent before the first timed one")
	}
	switch r.Mode {
	case Mixed:
		notes = append(notes, "sizes were mixed")
	case BothWays:
		notes = append(notes, "bandwidth is of both directions together")
	}
	if r.Conns > 1 {
		notes = append(notes, fmt.Sprintf("%d connections at once for each series", r.Conns))
	}
	if r.Burst > 1 {
		notes = append(notes, fmt.Sprintf("bursts of %d messages", r.Burst))
	}
	if r.Rate > 0 {
		notes = append(notes, fmt.Sprintf("at most %g messages per second on each connection", r.Rate))
	}
	return notes
}

// report collects what was found so far.
func (c *client) report() Report {
	first := c.arms[0].runs[0]
	rep := Report{
		Workload: c.o.Workload, Device: c.o.Device, PeerDevice: first.peer, Simulated: c.o.Simulated, Mode: c.o.Mode,
		Warmup: *c.o.Warmup, Rate: c.o.Rate, Burst: c.o.Burst, Conns: len(c.arms[0].runs), Complete: true,
		Interrupted: c.stopping.Load(),
	}
	if c.o.Mode.Streaming() {
		rep.InFlight = c.o.InFlight
	}
	for _, a := range c.arms {
		rep.Series = append(rep.Series, Series{a.Name, a.Hint, a.Profile})
		for i, size := range c.o.Sizes {
			f := a.sizes[i]
			s := Size{
				Series: a.Name, Size: size, Latency: f.hist, Worst: f.worst.Samples(), Timeline: f.line.points, Sends: f.sends,
				Bytes: f.bytes, Took: f.took, Counters: f.counters,
			}
			if a.Tier != nil {
				s.Tier = a.Tier(size)
			}
			if c.o.Mode.Streaming() {
				s.Messages = f.line.n()
			}
			for _, r := range a.runs {
				s.Sent += r.sent[i]
				s.Counts = s.Counts.Add(r.acct.sizes[i])
				if r.counts != nil {
					s.Counts = s.Counts.Add(r.counts[i])
				}
			}
			rep.Sizes = append(rep.Sizes, s)
		}
		for _, r := range a.runs {
			rep.Unknown += r.unknown
			rep.Complete = rep.Complete && r.counts != nil
		}
	}
	return rep
}

// MarshalJSON writes the report as documented by FormatVersion. A latency without
// samples is null.
func (r Report) MarshalJSON() ([]byte, error) {
	type outliers struct {
		N      int64   `json:"n"`
		Factor float64 `json:"factor"` // their median in multiples of P50
		Every  float64 `json:"every"`  // messages per outlier
	}
	type outlying struct {
		outliers
		Full *int64 `json:"full"` // of these, how many found no room in the queue; null: not known
	}
	// How long calls of Send took.
	type sends struct {
		P50      *float64  `json:"p50_us"`
		P99      *float64  `json:"p99_us"`
		Max      *float64  `json:"max_us"`
		Full     *int64    `json:"full"`        // how many found no room in the queue; null: not known
		FullP50  *float64  `json:"full_p50_us"` // of these alone
		Outliers *outlying `json:"outliers,omitempty"`
	}
	type size struct {
		Series string   `json:"series"`
		Tier   string   `json:"tier,omitempty"`
		Size   int64    `json:"size"`
		N      int64    `json:"n"`
		Sent   uint64   `json:"sent"`
		P50    *float64 `json:"p50_us"`
		P90    *float64 `json:"p90_us"`
		P99    *float64 `json:"p99_us"`  // null below 100 samples
		P999   *float64 `json:"p999_us"` // null below 10,000 samples
		Max    *float64 `json:"max_us"`
		Counts
		Outliers   *outliers        `json:"outliers,omitempty"`
		Send       *sends           `json:"send,omitempty"` // in bursts
		Worst      []measure.Sample `json:"worst,omitempty"`
		Bandwidth  int64            `json:"bandwidth,omitempty"` // bytes per second
		HighWater  int              `json:"high_water"`
		FullEvents uint64           `json:"full_events"`
	}
	sizes := make([]size, len(r.Sizes))
	for i, s := range r.Sizes {
		sum := measure.Summary{N: s.Messages}
		if s.Latency != nil && s.Latency.N() > 0 {
			sum = s.Latency.Summary()
		}
		sizes[i] = size{
			Series: s.Series, Tier: s.Tier, Size: s.Size, N: sum.N, Sent: s.Sent, Counts: s.Counts,
			P50: micros(sum.P50), P90: micros(sum.P90), P99: micros(sum.P99), P999: micros(sum.P999), Max: micros(sum.Max),
			Worst: s.Worst, Bandwidth: s.Bandwidth(), HighWater: s.HighWater, FullEvents: s.FullEvents,
		}
		if s.Latency != nil {
			if o := s.Latency.Outliers(); o.N > 0 {
				sizes[i].Outliers = &outliers{o.N, o.Factor, o.Every}
			}
		}
		if s.Sends.Took != nil {
			sum := s.Sends.Took.Summary()
			out := &sends{P50: micros(sum.P50), P99: micros(sum.P99), Max: micros(sum.Max)}
			var full *int64
			o := s.Sends.Outliers()
			if s.Sends.Full != nil {
				n := s.Sends.Full.N()
				out.Full, out.FullP50, full = &n, micros(s.Sends.Full.Quantile(0.5)), &o.Full
			}
			if o.N > 0 {
				out.Outliers = &outlying{outliers{o.N, o.Factor, o.Every}, full}
			}
			sizes[i].Send = out
		}
	}
	series := r.Series
	if series == nil {
		series = []Series{}
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
		Kind          Mode             `json:"kind"`
		Warmup        int              `json:"warmup"`
		InFlight      int              `json:"in_flight,omitempty"`
		Rate          float64          `json:"rate,omitempty"`
		Burst         int              `json:"burst,omitempty"`
		Connections   int              `json:"connections"`
		Series        []Series         `json:"series"`
		Sizes         []size           `json:"sizes"`
		Unknown       uint64           `json:"unknown"`
		Complete      bool             `json:"complete"`
		Interrupted   bool             `json:"interrupted"`
		Switches      []control.Switch `json:"switches"`
		Experiment    string           `json:"experiment,omitempty"`
	}{
		FormatVersion, r.Workload, r.Device, r.PeerDevice, r.Simulated, r.Mode, r.Warmup, r.InFlight, r.Rate, r.Burst, r.Conns, series,
		sizes, r.Unknown, r.Complete, r.Interrupted, switches, r.Experiment,
	})
}

// micros is d in microseconds, nil when there is nothing to show: no sample has none.
func micros(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	us := float64(d.Nanoseconds()) / 1000
	return &us
}
