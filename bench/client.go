package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/measure"
)

// Options say what a client does.
type Options struct {
	Sizes []int64 // bytes, MinSize to MaxSize, at most MaxSizes
	// Either Duration or Count is given. Duration is the time of all sizes together,
	// shared in rounds, so that what happens on the way is seen by each size. Count is
	// the number of messages of each size after its warm-up.
	Duration time.Duration
	Count    int
	// Warmup messages after each change of size are checked but not timed; nil:
	// DefaultWarmup. With Duration, warm-up ends at the latest after a quarter of the
	// time that a round has for the size.
	Warmup *int
	// Stall is how long an answer may take; 0: DefaultStall.
	Stall time.Duration
	// Workload and Device are for the report and the server's; Simulated labels it.
	Workload, Device string
	Simulated        bool
	// Progress is called when the connection is up and after every block of messages;
	// nil: nobody is.
	Progress func(Progress)
}

// A Progress says how far a client is.
type Progress struct {
	Size    int64         // bytes, of the block that ended; 0 at the start
	N       int64         // timed messages of that size so far
	Elapsed time.Duration // since the start
}

// DefaultStall is longer than the drain timeout that a switch usually has.
const DefaultStall = 30 * time.Second

// grace is how long a message that is under way may still take after an interrupt.
const grace = 3 * time.Second

// Errors of a run that ended early. Match them with errors.Is.
var (
	// ErrStalled: an answer did not come in time.
	ErrStalled = errors.New("no answer in time")
	// ErrRefused: the server does not serve this client.
	ErrRefused = errors.New("refused by the server")
)

func (o *Options) check() error {
	switch {
	case (o.Duration > 0) == (o.Count > 0):
		return errors.New("give either a duration or a count, above 0")
	case *o.Warmup < 0 || *o.Warmup > MaxWarmup:
		return fmt.Errorf("warm-up of %d messages; give 0 to %d", *o.Warmup, MaxWarmup)
	}
	return checkSizes(o.Sizes)
}

// checkSizes holds the limits that both ends keep.
func checkSizes(sizes []int64) error {
	if len(sizes) == 0 || len(sizes) > MaxSizes {
		return fmt.Errorf("%d message sizes given; give 1 to %d", len(sizes), MaxSizes)
	}
	for i, s := range sizes {
		if s < MinSize || s > MaxSize {
			return fmt.Errorf("message size of %d bytes; give %d (number and checksum) to %d", s, MinSize, MaxSize)
		}
		if slices.Contains(sizes[:i], s) {
			return fmt.Errorf("message size of %d bytes given twice", s)
		}
	}
	return nil
}

// Client runs o over c and leaves c open. When ctx ends, the message under way is
// finished, and what was measured is a whole report with no error. On an error the
// report has what was measured before it.
func Client(ctx context.Context, c Conn, o Options) (Report, error) {
	if o.Warmup == nil {
		n := DefaultWarmup
		o.Warmup = &n
	}
	if o.Stall <= 0 {
		o.Stall = DefaultStall
	}
	if err := o.check(); err != nil {
		return Report{}, err
	}
	r := newRun(c, o)
	var stop func()
	r.ctx, stop = r.connContext(ctx)
	defer stop()
	err := r.all()
	if cause := context.Cause(r.ctx); err != nil && cause != nil {
		err = cause // what ended the context says more than that it ended
	}
	return r.report(), err
}

// A run is one client at work. All but the atomics belong to its goroutine.
type run struct {
	conn  Conn
	o     Options
	start time.Time
	// ctx is the connection's, not the caller's: an interrupt must not tear the
	// message that is under way.
	ctx   context.Context
	codec codec
	peer  string // the server's device
	out   []byte
	in    []byte
	next  uint64 // number of the next message sent
	acct  *account
	sent  []uint64
	hist  []*measure.Histogram

	unknown  uint64
	counts   []Counts // the server's, nil until they came
	stopping atomic.Bool
	moves    atomic.Uint64 // rises with every answer; the watchdog looks at it
}

func newRun(c Conn, o Options) *run {
	largest := slices.Max(o.Sizes)
	r := &run{
		conn: c, o: o, start: time.Now(),
		codec: codec{send: toServer, recv: toClient},
		out:   make([]byte, largest),
		in:    make([]byte, max(largest, maxControl)),
		acct:  newAccount(len(o.Sizes)),
		sent:  make([]uint64, len(o.Sizes)),
		hist:  make([]*measure.Histogram, len(o.Sizes)),
	}
	fill(r.out)
	for i := range r.hist {
		r.hist[i] = measure.New()
	}
	return r
}

// connContext returns the context of everything on the connection, which outlives
// parent by grace, and what ends it.
func (r *run) connContext(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	unhook := context.AfterFunc(parent, func() {
		r.stopping.Store(true)
		time.AfterFunc(grace, func() { cancel(context.Cause(parent)) })
	})
	unwatch := watch(&r.moves, r.o.Stall, func() { cancel(fmt.Errorf("%w (%v)", ErrStalled, r.o.Stall)) })
	return ctx, func() {
		unhook()
		unwatch()
		cancel(nil)
	}
}

func (r *run) all() error {
	if err := r.hello(); err != nil {
		return err
	}
	r.progress(0, 0)
	var err error
	if r.o.Count > 0 {
		err = r.counted()
	} else {
		err = r.timed()
	}
	if err != nil {
		return err
	}
	return r.finish()
}

func (r *run) hello() error {
	err := r.sendControl(controlMsg{
		Kind: kindHello, Version: version, Workload: r.o.Workload, Device: r.o.Device, Sizes: r.o.Sizes,
	})
	if err != nil {
		return err
	}
	n, err := r.conn.Recv(r.ctx, r.in)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	m, err := r.codec.decode(r.in[:n], kindWelcome)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if m.Error != "" {
		return fmt.Errorf("%w: %.200q", ErrRefused, m.Error)
	}
	if m.Version != version {
		return fmt.Errorf("the server speaks version %d, this client %d", m.Version, version)
	}
	if len(m.Device) > maxName {
		return fmt.Errorf("the server's device has a name of %d bytes", len(m.Device))
	}
	r.peer = m.Device
	r.moves.Add(1)
	return nil
}

// counted sends exactly Count timed messages of each size.
func (r *run) counted() error {
	for i := range r.o.Sizes {
		if err := r.block(i, *r.o.Warmup, r.o.Count, time.Time{}); err != nil || r.stopping.Load() {
			return err
		}
	}
	return nil
}

// A size's turn is a twentieth of its share of the time, within these bounds: long
// enough for its warm-up not to be most of it, and short enough for every size to
// have one before and after whatever happens on the way.
const (
	minTurn = 100 * time.Millisecond
	maxTurn = time.Second
)

// timed shares Duration evenly: in each turn, a size gets the time left divided by
// the turns left, so that a slow size does not make the run longer.
func (r *run) timed() error {
	share := r.o.Duration / time.Duration(len(r.o.Sizes))
	turns := len(r.o.Sizes) * int(max(share/min(max(share/20, minTurn), maxTurn), 1))
	end := time.Now().Add(r.o.Duration)
	for turn := range turns {
		now := time.Now()
		if turn >= len(r.o.Sizes) && !now.Before(end) {
			break // every size has had a turn
		}
		until := now.Add(end.Sub(now) / time.Duration(turns-turn))
		warmup := *r.o.Warmup
		if turn > 0 && len(r.o.Sizes) == 1 {
			warmup = 0 // the size does not change
		}
		if err := r.block(turn%len(r.o.Sizes), warmup, 0, until); err != nil || r.stopping.Load() {
			return err
		}
	}
	return nil
}

// block sends messages of one size: the warm-up, then count timed ones when count is
// above 0, else timed ones until the deadline, at least one.
func (r *run) block(index, warmup, count int, until time.Time) error {
	r.acct.at = index
	if err := r.sendControl(controlMsg{Kind: kindBlock, Index: index, Next: r.next}); err != nil {
		return err
	}
	warm := until.Add(-time.Until(until) * 3 / 4) // the latest end of warm-up by time
	for range warmup {
		now, _, err := r.roundTrip(index)
		if err != nil || r.stopping.Load() {
			return err
		}
		if count == 0 && now.After(warm) {
			break
		}
	}
	for done := 1; !r.stopping.Load(); done++ {
		now, took, err := r.roundTrip(index)
		if err != nil {
			return err
		}
		if took > 0 { // a damaged answer has no latency
			r.hist[index].Record(took)
		}
		if count > 0 && done == count || count == 0 && !now.Before(until) {
			break
		}
	}
	r.progress(r.o.Sizes[index], r.hist[index].N())
	return nil
}

// roundTrip sends one message and waits for a new answer. It returns when that came,
// and how long it took: 0 when the answer was damaged. It allocates nothing.
func (r *run) roundTrip(index int) (now time.Time, took time.Duration, err error) {
	size := r.o.Sizes[index]
	msg := r.out[:size]
	r.codec.seal(msg, r.next)
	r.next = after(r.next)
	r.sent[index]++
	start := time.Now()
	if err := r.conn.Send(r.ctx, msg); err != nil {
		r.unknown++
		return start, 0, fmt.Errorf("send message of %d bytes: %w", size, err)
	}
	for {
		n, err := r.conn.Recv(r.ctx, r.in)
		now = time.Now()
		if err != nil {
			r.unknown++
			return now, 0, fmt.Errorf("receive answer of %d bytes: %w", size, err)
		}
		number, ok := r.codec.open(r.in[:n], r.acct.next)
		if !ok || int64(n) != size {
			r.acct.corrupted()
			r.moves.Add(1)
			return now, 0, nil
		}
		if r.acct.receive(number) {
			r.moves.Add(1)
			return now, max(now.Sub(start), 1), nil
		}
	}
}

// finish asks the server for its account and settles the client's: the server says
// how many answers it sent.
func (r *run) finish() error {
	if err := r.sendControl(controlMsg{Kind: kindFinish, Next: r.next}); err != nil {
		return err
	}
	for {
		n, err := r.conn.Recv(r.ctx, r.in)
		if err != nil {
			return fmt.Errorf("fetch the server's counts: %w", err)
		}
		if !r.codec.isControl(r.in[:n]) { // a late repetition of an answer
			if number, ok := r.codec.open(r.in[:n], r.acct.next); ok {
				r.acct.receive(number)
			} else {
				r.acct.sizes[r.acct.at].Corrupted++
			}
			continue
		}
		m, err := r.codec.decode(r.in[:n], kindResult)
		if err != nil {
			return fmt.Errorf("fetch the server's counts: %w", err)
		}
		if len(m.Counts) != len(r.o.Sizes) {
			return fmt.Errorf("the server counted %d sizes, not %d", len(m.Counts), len(r.o.Sizes))
		}
		r.acct.skipTo(m.Next)
		r.counts = m.Counts
		return nil
	}
}

func (r *run) sendControl(m controlMsg) error {
	msg, err := r.codec.encode(m)
	if err != nil {
		return err
	}
	if err := r.conn.Send(r.ctx, msg); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

func (r *run) progress(size, n int64) {
	if r.o.Progress != nil {
		r.o.Progress(Progress{Size: size, N: n, Elapsed: time.Since(r.start)})
	}
}

func (r *run) report() Report {
	rep := Report{
		Workload: r.o.Workload, Device: r.o.Device, PeerDevice: r.peer, Simulated: r.o.Simulated,
		Warmup: *r.o.Warmup, Unknown: r.unknown, Complete: r.counts != nil,
	}
	for i, size := range r.o.Sizes {
		s := Size{Size: size, Sent: r.sent[i], Counts: r.acct.sizes[i], Latency: r.hist[i]}
		if r.counts != nil {
			s.Counts = s.Counts.Add(r.counts[i])
		}
		rep.Sizes = append(rep.Sizes, s)
	}
	return rep
}
