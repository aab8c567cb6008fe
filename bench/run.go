package bench

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A run is the client's work on one connection. All but the atomics belong to one
// goroutine at a time.
type run struct {
	conn Conn
	o    *Options
	// ctx is the connection's, not the caller's: an interrupt must not tear the
	// message that is under way.
	ctx      context.Context
	stopping *atomic.Bool   // the caller wants the end
	moves    *atomic.Uint64 // rises with every answer; the watchdog looks at it

	codec codec
	peer  string   // the server's device
	out   [][]byte // messages being sent; a round trip uses the first
	in    [][]byte
	next  uint64 // number of the next message sent
	acct  *account
	sent  []uint64 // by size, with what the server sends by itself

	due  time.Time // when the next message is due, with a rate
	free func()    // gives the memory back
	// full is how often a Send found no room so far; always 0 where nobody counts.
	full func() uint64

	unknown uint64
	counts  []Counts // the server's, nil until they came
}

func newRun(c Conn, o *Options) (*run, error) {
	r := &run{
		conn: c, o: o, codec: codec{send: toServer, recv: toClient},
		acct: newAccount(len(o.Sizes)), sent: make([]uint64, len(o.Sizes)),
	}
	lanes := 1
	if o.Mode.Streaming() {
		lanes = o.InFlight
	}
	largest := int(slices.Max(o.Sizes))
	out, freeOut, err := buffers(o.Alloc, lanes, largest)
	if err != nil {
		return nil, err
	}
	for _, b := range out {
		fill(b)
	}
	in, freeIn, err := buffers(o.Alloc, lanes, max(largest, maxControl))
	if err != nil {
		freeOut()
		return nil, err
	}
	r.out, r.in, r.free = out, in, func() { freeOut(); freeIn() }
	r.full = func() uint64 { return 0 }
	if f, ok := c.(fullCounter); ok {
		r.full = f.FullEvents
	}
	return r, nil
}

// buffers allocates n buffers of size bytes, as parts of one.
func buffers(alloc Allocator, n, size int) ([][]byte, func(), error) {
	// Each begins on a cache line of its own.
	stride := (size + 63) &^ 63
	all, free, err := alloc(n * stride)
	if err != nil {
		return nil, nil, fmt.Errorf("%d buffers of %d bytes: %w", n, size, err)
	}
	out := make([][]byte, n)
	for i := range out {
		out[i] = all[i*stride : i*stride+size : i*stride+size]
	}
	return out, free, nil
}

func (r *run) hello() error {
	err := r.sendControl(controlMsg{
		Kind: kindHello, Version: version, Workload: r.o.Workload, Device: r.o.Device, Sizes: r.o.Sizes,
		InFlight: len(r.out),
	})
	if err != nil {
		return err
	}
	n, err := r.conn.Recv(r.ctx, r.in[0])
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	m, err := r.codec.decode(r.in[0][:n], kindWelcome)
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

// A turn is one stretch of messages of one size.
type turn struct {
	index  int // of the size; with Mixed, that of the first message
	warmup int
	count  int       // timed messages; 0: until the deadline, at least one
	until  time.Time // the deadline, or zero
	// after keeps the load up, untimed, until it is closed: the turn's other connections
	// are still being timed. Nil: they are not.
	after <-chan struct{}
	// draw picks the size of the next message of mixed traffic; nil: always index.
	draw func() int
	// timed is told of every timed message.
	timed func(index int, now time.Time, took time.Duration)
	// sent is told of the Send of every timed message of a burst.
	sent func(index int, s send)
	// done is called when what is timed is over.
	done func()
}

// roundTrips sends the messages of a turn: the warm-up, then the timed ones.
func (r *run) roundTrips(t turn) error {
	mode := RoundTrips
	if t.draw != nil {
		mode = Mixed
	} else {
		t.draw = func() int { return t.index }
	}
	finished := false
	finish := func() {
		if !finished {
			finished = true
			t.done()
		}
	}
	defer finish()
	r.acct.at = t.index
	if err := r.sendControl(controlMsg{Kind: kindBlock, Mode: mode, Index: t.index, Next: r.next}); err != nil {
		return err
	}
	r.due = time.Time{}
	warm := t.until.Add(-time.Until(t.until) * 3 / 4) // the latest end of warm-up by time
	for range t.warmup {
		now, _, err := r.roundTrip(t.draw())
		if err != nil || r.stopping.Load() {
			return err
		}
		if t.count == 0 && now.After(warm) {
			break
		}
	}
	if r.o.Burst > 1 {
		err := r.bursts(t)
		finish()
		return err
	}
	for done := 1; !r.stopping.Load(); done++ {
		index := t.draw()
		now, took, err := r.roundTrip(index)
		if err != nil {
			return err
		}
		if took > 0 { // a damaged answer has no latency
			t.timed(index, now, took)
		}
		if t.count > 0 && done == t.count || t.count == 0 && !now.Before(t.until) {
			break
		}
	}
	finish()
	for t.after != nil && !r.stopping.Load() {
		select {
		case <-t.after:
			return nil
		default:
		}
		if _, _, err := r.roundTrip(t.draw()); err != nil {
			return err
		}
	}
	return nil
}

// roundTrip sends one message and waits for a new answer. It returns when that came,
// and how long it took: 0 when the answer was damaged. It allocates nothing.
func (r *run) roundTrip(index int) (now time.Time, took time.Duration, err error) {
	size := r.o.Sizes[index]
	msg := r.out[0][:size]
	r.codec.seal(msg, r.next)
	r.next = after(r.next)
	r.sent[index]++
	r.acct.at = index
	start := r.pace()
	if err := r.conn.Send(r.ctx, msg); err != nil {
		r.unknown++
		return start, 0, fmt.Errorf("send message of %d bytes: %w", size, err)
	}
	for {
		n, err := r.conn.Recv(r.ctx, r.in[0])
		now = time.Now()
		if err != nil {
			r.unknown++
			return now, 0, fmt.Errorf("receive answer of %d bytes: %w", size, err)
		}
		number, ok := r.codec.open(r.in[0][:n], r.acct.next)
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

// pace waits until the next message is due and returns the time from which it counts.
func (r *run) pace() time.Time {
	now := time.Now()
	if r.o.Rate == 0 {
		return now
	}
	if r.due.IsZero() {
		r.due = now
	}
	due := r.due
	r.due = due.Add(time.Duration(float64(time.Second) / r.o.Rate))
	if wait := due.Sub(now); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.ctx.Done():
		}
		return time.Now()
	}
	return due
}

// finish asks the server for its account and settles the client's: the server says
// how many answers it sent.
func (r *run) finish() error {
	if err := r.sendControl(controlMsg{Kind: kindFinish, Next: r.next}); err != nil {
		return err
	}
	for {
		n, err := r.conn.Recv(r.ctx, r.in[0])
		if err != nil {
			return fmt.Errorf("fetch the server's counts: %w", err)
		}
		msg := r.in[0][:n]
		if !r.codec.isControl(msg) { // a late repetition of an answer
			if number, ok := r.codec.open(msg, r.acct.next); ok {
				r.acct.receive(number)
			} else {
				r.acct.sizes[r.acct.at].Corrupted++
			}
			continue
		}
		m, err := r.codec.decode(msg, kindResult)
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
