package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/param"
)

// A Mode is the kind of traffic.
type Mode string

// Modes.
const (
	// RoundTrips sends one message at a time on each connection and times it until its
	// answer is there.
	RoundTrips Mode = "round_trip"
	// Mixed is RoundTrips with the sizes drawn at random by their weights.
	Mixed Mode = "mixed"
	// Streams sends as many messages as the connection takes, one way.
	Streams Mode = "stream"
	// BothWays is Streams in both directions at once.
	BothWays Mode = "both_ways"
)

// Streaming reports whether m measures bandwidth.
func (m Mode) Streaming() bool { return m == Streams || m == BothWays }

// Options say what a client does.
type Options struct {
	Sizes []int64 // bytes, MinSize to MaxSize, at most MaxSizes
	Mode  Mode    // "": RoundTrips
	// Weights are how often each of Sizes is drawn with Mixed, in any unit.
	Weights []float64
	// Either Duration or Count is given. Duration is the time of all sizes and arms
	// together, shared in turns, so that what happens on the way is seen by each. Count
	// is the number of messages of each size and arm after their warm-up, on all
	// connections together; with Mixed, of all sizes together.
	Duration time.Duration
	Count    int
	// Warmup messages after each change of size or arm are checked but not timed; nil:
	// DefaultWarmup. With Duration, warm-up ends at the latest after a quarter of the
	// turn.
	Warmup *int
	// Rounds is in how many turns a count is shared; 0: one for a single arm, else
	// DefaultRounds, so that the arms alternate and a machine that drifts favours none.
	Rounds int
	// Rate is the messages per second that each connection sends at most; 0: no bound.
	// A message that is due while the one before is under way is timed from when it was
	// due, so that a stall counts for every message that it delayed.
	Rate float64
	// Burst is how many messages of round trips are sent at once before their answers are
	// waited for, as a layer's worth of control messages is; 0 and 1: one at a time. Each
	// is timed from its own send.
	Burst int
	// InFlight is how many messages of a stream are under way at once on each
	// connection, of at most MaxSize bytes together; 0: DefaultInFlight.
	InFlight int
	// Stall is how long an answer may take; 0: DefaultStall.
	Stall time.Duration
	// Workload and Device are for the report and the server's; Simulated labels it.
	Workload, Device string
	Simulated        bool
	// Alloc returns the memory of messages, such as registered memory; nil: make.
	Alloc Allocator
	// Progress is called when the connection is up and after every turn; nil: nobody is.
	Progress func(Progress)
}

// A Progress says how far a client is.
type Progress struct {
	Series  string        // of the turn that ended
	Size    int64         // bytes; 0 at the start
	N       int64         // timed messages of that size and series so far
	Elapsed time.Duration // since the start
}

// An Allocator returns n bytes and what gives them back.
type Allocator func(n int) (b []byte, free func(), err error)

func makeMemory(n int) ([]byte, func(), error) { return make([]byte, n), func() {}, nil }

// Defaults.
const (
	// DefaultWarmup is the number of messages after each change of size that are checked
	// but not timed.
	DefaultWarmup = 100
	// DefaultRounds is in how many turns several arms share a count.
	DefaultRounds = 10
	// DefaultInFlight keeps a 100 Gb/s link busy with 64 KiB messages over 80 µs.
	DefaultInFlight = 16
	// DefaultStall is longer than the drain timeout that a switch usually has.
	DefaultStall = 30 * time.Second
)

// MaxWeight is above all weights, so that their sum is a number.
const MaxWeight = 1e18

// A rate below MinRate has no message in the longest duration; none above MaxRate can be
// told from no bound.
const (
	MinRate = 1e-3
	MaxRate = 1e9
)

// grace is how long a message that is under way may still take after an interrupt.
const grace = 3 * time.Second

// Errors of a run that ended early. Match them with errors.Is.
var (
	// ErrStalled: an answer did not come in time.
	ErrStalled = errors.New("no answer in time")
	// ErrRefused: the server does not serve this client.
	ErrRefused = errors.New("refused by the server")
)

// settle fills in the defaults and checks.
func (o *Options) settle(arms int) error {
	if o.Warmup == nil {
		n := DefaultWarmup
		o.Warmup = &n
	}
	if o.Stall <= 0 {
		o.Stall = DefaultStall
	}
	if o.Mode == "" {
		o.Mode = RoundTrips
	}
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	o.Burst = max(o.Burst, 1)
	if o.Rounds == 0 {
		o.Rounds = 1
		if arms > 1 {
			o.Rounds = DefaultRounds
			if o.Count > 0 { // no turn in which more messages warm up than are timed
				o.Rounds = min(o.Rounds, max(o.Count/max(*o.Warmup, 1), 1))
			}
		}
	}
	if o.Count > 0 {
		o.Rounds = min(o.Rounds, o.Count)
	}
	if o.Alloc == nil {
		o.Alloc = makeMemory
	}
	if err := o.check(); err != nil {
		return err
	}
	o.InFlight = min(o.InFlight, MostInFlight(o.Sizes))
	return nil
}

func (o *Options) check() error {
	switch {
	case (o.Duration > 0) == (o.Count > 0):
		return errors.New("give either a duration or a count, above 0")
	case *o.Warmup < 0 || *o.Warmup > MaxWarmup:
		return fmt.Errorf("warm-up of %d messages; give 0 to %d", *o.Warmup, MaxWarmup)
	case o.Rounds < 1 || o.Rounds > MaxRounds:
		return fmt.Errorf("%d rounds; give 1 to %d", o.Rounds, MaxRounds)
	case o.InFlight < 1 || o.InFlight > MaxInFlight:
		return fmt.Errorf("%d messages in flight; give 1 to %d", o.InFlight, MaxInFlight)
	case o.Rate != 0 && !(o.Rate >= MinRate && o.Rate <= MaxRate):
		return fmt.Errorf("a rate of %g messages per second; give 0, or %g to %g", o.Rate, MinRate, MaxRate)
	case o.Burst > MaxBurst:
		return fmt.Errorf("a burst of %d messages; give at most %d", o.Burst, MaxBurst)
	case o.Burst > 1 && (o.Mode.Streaming() || o.Rate > 0):
		return errors.New("a burst is for round trips without a rate")
	case o.Rate > 0 && o.Mode.Streaming():
		return errors.New("a stream goes as fast as it can: a rate is for round trips")
	case (o.Mode == Mixed) != (len(o.Weights) > 0) || o.Mode == Mixed && len(o.Weights) != len(o.Sizes):
		return errors.New("mixed traffic needs a weight for each size, and no other traffic takes any")
	}
	switch o.Mode {
	case RoundTrips, Mixed, Streams, BothWays:
	default:
		return fmt.Errorf("mode %q", o.Mode)
	}
	for _, w := range o.Weights {
		if !(w > 0 && w < MaxWeight) {
			return fmt.Errorf("a weight of %g; it must be above 0 and below %g", w, MaxWeight)
		}
	}
	return CheckSizes(o.Sizes)
}

// MostInFlight is how many messages of a stream may be under way at once on a connection:
// for all of its sizes, which pass CheckSizes, since the server has one memory for them.
func MostInFlight(sizes []int64) int {
	return min(max(MaxSize/int(slices.Max(sizes)), 1), MaxInFlight)
}

// CheckSizes holds the limits of message sizes, which both ends keep.
func CheckSizes(sizes []int64) error {
	if len(sizes) == 0 || len(sizes) > MaxSizes {
		return fmt.Errorf("%d message sizes given; give 1 to %d", len(sizes), MaxSizes)
	}
	for i, s := range sizes {
		if s < MinSize || s > MaxSize {
			return fmt.Errorf("a message has %s (number and checksum) to %s, not %s",
				param.FormatBytes(MinSize), param.FormatBytes(MaxSize), param.FormatBytes(s))
		}
		if slices.Contains(sizes[:i], s) {
			return fmt.Errorf("%s is there twice", param.FormatBytes(s))
		}
	}
	return nil
}
