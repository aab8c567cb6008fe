package bench

import (
	"fmt"
	"time"

	"github.com/rdmatune/rdmatune/measure"
)

// A burst is several messages of a round trip under way at once. One goroutine sends
// them while the run's own receives the answers: with few credits, neither could finish
// before the other begins.
type burst struct {
	sizes []int       // indices of the sizes, in the order of sending
	start []time.Time // when each was sent; the sender's until it has sent all
	sends []send      // as start
	sent  chan error  // the sender's word for a burst
	begin chan int    // messages of the next burst; closed in the end
}

// A send is what a call of Send went through.
type send struct {
	took time.Duration
	full bool // it found no room in the queue
}

// Sends are the timed calls of Send of one size on one arm, in bursts.
type Sends struct {
	Took *measure.Histogram
	// Full are those of Took that found no room in the queue; nil where the connection
	// does not tell.
	Full *measure.Histogram
}

func (s *Sends) record(one send, tells bool) {
	if s.Took == nil {
		s.Took = measure.New()
	}
	if s.Full == nil && tells {
		s.Full = measure.New()
	}
	s.Took.Record(one.took)
	if one.full {
		s.Full.Record(one.took)
	}
}

// An Outlying says how many calls of Send took far longer than most, and how many of
// these found no room.
type Outlying struct {
	measure.Outliers
	Full int64
}

// Outliers finds the calls that took at least measure.OutlierFactor times P50.
func (s *Sends) Outliers() Outlying {
	out := Outlying{Outliers: s.Took.Outliers()}
	if s.Full != nil {
		out.Full = s.Full.NFrom(measure.OutlierFactor * s.Took.Quantile(0.5))
	}
	return out
}

// bursts sends the timed messages of a turn, burst after burst.
func (r *run) bursts(t turn) error {
	b := &burst{
		sizes: make([]int, r.o.Burst), start: make([]time.Time, r.o.Burst), sends: make([]send, r.o.Burst), sent: make(chan error, 1), begin: make(chan int),
	}
	go r.sendBursts(b)
	defer close(b.begin)
	done := 0
	// After the timed bursts others may keep the load up for connections that are not
	// through; they are not timed.
	for timing := true; !r.stopping.Load(); {
		n := r.o.Burst
		if timing && t.count > 0 {
			n = min(n, t.count-done)
		}
		for i := range n {
			b.sizes[i] = t.draw()
		}
		b.begin <- n
		if err := r.receiveBurst(b, n, t, timing); err != nil {
			return err
		}
		done += n
		if timing && (t.count > 0 && done >= t.count || t.count == 0 && !time.Now().Before(t.until)) {
			timing = false
			t.done()
			t.done = func() {}
			if t.after == nil {
				return nil
			}
		}
		if !timing {
			select {
			case <-t.after:
				return nil
			default:
			}
		}
	}
	return nil
}

// sendBursts is the sender.
func (r *run) sendBursts(b *burst) {
	for n := range b.begin {
		var err error
		for i := 0; i < n && err == nil; i++ {
			size := r.o.Sizes[b.sizes[i]]
			msg := r.out[0][:size]
			r.codec.seal(msg, r.next)
			r.next = after(r.next)
			r.sent[b.sizes[i]]++
			full := r.full()
			b.start[i] = time.Now()
			err = r.conn.Send(r.ctx, msg)
			b.sends[i] = send{max(time.Since(b.start[i]), 1), r.full() != full}
			if err != nil {
				err = fmt.Errorf("send message of %d bytes: %w", size, err)
			}
		}
		b.sent <- err
	}
}

// receiveBurst receives the answers of n messages, and times them once all are there:
// until then their starts are the sender's.
func (r *run) receiveBurst(b *burst, n int, t turn, timed bool) error {
	arrived := make([]time.Time, 0, n)
	whole := make([]bool, 0, n)
	c := codec{recv: r.codec.recv} // the sender has the run's
	for len(arrived) < n {
		got, err := r.conn.Recv(r.ctx, r.in[0])
		now := time.Now()
		if err != nil {
			r.unknown += uint64(n - len(arrived))
			<-b.sent
			return fmt.Errorf("receive answer: %w", err)
		}
		i := len(arrived)
		r.acct.at = b.sizes[i]
		number, ok := c.open(r.in[0][:got], r.acct.next)
		ok = ok && int64(got) == r.o.Sizes[b.sizes[i]]
		if !ok {
			r.acct.corrupted()
		} else if !r.acct.receive(number) {
			continue // a repetition
		}
		r.moves.Add(1)
		arrived, whole = append(arrived, now), append(whole, ok)
	}
	if err := <-b.sent; err != nil {
		return err
	}
	for i, now := range arrived {
		if timed && whole[i] {
			t.timed(b.sizes[i], now, max(now.Sub(b.start[i]), 1))
			t.sent(b.sizes[i], b.sends[i])
		}
	}
	return nil
}
