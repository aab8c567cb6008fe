package over

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
)

// Switching is what switches under load did.
type Switching struct {
	Pauses     []time.Duration // of each switch that held a message: from the first held to its post
	Recoveries []time.Duration // from a switch until P99 was within a tenth of that before all
	Drained    int             // work requests that had to complete, of all switches together
	Wrong      int             // messages lost, received twice or out of order
	Before     []time.Duration // round trips of a connection that is not switched, before
	Beside     []time.Duration // and between the first switch and the last
}

// Sizes of the messages of the load, and how long it runs before the first switch and
// after each.
const (
	loadSize    = 4 << 10
	loadBefore  = 500 * time.Millisecond
	loadBetween = 20 * time.Millisecond
)

// recoveryBlock is how many messages in a row a P99 is taken of.
const recoveryBlock = 100

// An arrival is one message of the load.
type arrival struct{ at, took time.Duration }

// Switch makes n switches, between no hint and one of 64 KiB, of a connection from
// client to l, of another transport of this process, while messages go over it at full speed.
func Switch(ctx context.Context, client *transport.Transport, l *transport.Listener, n int) (_ Switching, err error) {
	var out Switching
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded, beside, accepted, err := pairs(ctx, client, l)
	if err != nil {
		return out, err
	}
	defer func() {
		for _, c := range append(accepted, loaded, beside) {
			err = errors.Join(err, c.Close())
		}
	}()
	start := time.Now()
	var wg sync.WaitGroup
	var errs [4]error
	var arrivals []arrival
	var rounds []arrival
	stop := make(chan struct{})
	var sent, got uint64
	wg.Go(func() { sent, errs[0] = sendLoad(ctx, loaded, start, stop) })
	wg.Go(func() { arrivals, got, out.Wrong, errs[1] = receiveLoad(ctx, accepted[0], start) })
	wg.Go(func() { rounds, errs[2] = pingLoad(ctx, beside, start, stop) })
	wg.Go(func() { errs[3] = echoAll(ctx, accepted[1]) })
	time.Sleep(loadBefore)
	var ends []time.Duration
	first := time.Since(start)
	err = func() error {
		for i := range n {
			size := int64(i+1) % 2 * (64 << 10)
			o := control.Order{ID: "bench", Generation: uint64(i + 1), Workload: "bench", Settings: &transport.Settings{Size: &size}, Force: true, Open: true}
			res, err := client.Order(ctx, o)
			if err != nil {
				return err
			}
			for _, c := range res.Outcomes {
				if c.Switch.Outcome != control.Switched {
					return fmt.Errorf("switch %d: %s: %s", i+1, c.Switch.Outcome, c.Switch.Reason)
				}
				out.Drained += c.Switch.Drained
				if c.Switch.Held > 0 {
					out.Pauses = append(out.Pauses, c.Switch.Pause)
				}
			}
			ends = append(ends, time.Since(start))
			time.Sleep(loadBetween)
		}
		return nil
	}()
	last := time.Since(start)
	time.Sleep(loadBefore)
	close(stop)
	if err != nil {
		cancel()
	}
	wg.Wait()
	if err = errors.Join(append(errs[:], err)...); err != nil {
		return out, err
	}
	out.Wrong += int(sent - min(got, sent))
	for _, r := range rounds {
		switch {
		case r.at < first:
			out.Before = append(out.Before, r.took)
		case r.at < last:
			out.Beside = append(out.Beside, r.took)
		}
	}
	out.Recoveries = recoveries(arrivals, first, ends)
	return out, nil
}

// pairs connects twice: what is switched, and what is not.
func pairs(ctx context.Context, client *transport.Transport, l *transport.Listener) (loaded, beside *transport.Conn, accepted []*transport.Conn, err error) {
	got := make(chan error, 1)
	next := func() error {
		c, err := l.Accept(ctx)
		if err == nil {
			accepted = append(accepted, c)
		}
		return err
	}
	go func() { got <- next() }()
	if loaded, err = client.Dial(ctx, l.Addr().String()); err != nil {
		return nil, nil, nil, err
	}
	if err = <-got; err != nil {
		return nil, nil, nil, err
	}
	go func() { got <- next() }()
	if beside, err = client.DialFixed(ctx, l.Addr().String(), transport.Settings{}); err != nil {
		return nil, nil, nil, err
	}
	err = <-got
	return loaded, beside, accepted, err
}

// sendLoad sends numbered messages with their time until stop, then one of no size.
func sendLoad(ctx context.Context, c *transport.Conn, start time.Time, stop <-chan struct{}) (n uint64, err error) {
	msg := make([]byte, loadSize)
	for {
		select {
		case <-stop:
			return n, c.Send(ctx, nil)
		default:
		}
		binary.LittleEndian.PutUint64(msg, n)
		binary.LittleEndian.PutUint64(msg[8:], uint64(time.Since(start)))
		if err := c.Send(ctx, msg); err != nil {
			return n, err
		}
		n++
	}
}

// receiveLoad receives what sendLoad sends; wrong is how many came twice or out of order.
func receiveLoad(ctx context.Context, c *transport.Conn, start time.Time) (all []arrival, got uint64, wrong int, err error) {
	buf := make([]byte, loadSize)
	for {
		n, err := c.Recv(ctx, buf)
		if err != nil || n == 0 {
			return all, got, wrong, err
		}
		if binary.LittleEndian.Uint64(buf) != got {
			wrong++
		}
		got++
		now := time.Since(start)
		all = append(all, arrival{now, now - time.Duration(binary.LittleEndian.Uint64(buf[8:]))})
	}
}

// pingLoad makes round trips of 8 bytes until stop, then sends a message of no size.
func pingLoad(ctx context.Context, c *transport.Conn, start time.Time, stop <-chan struct{}) (all []arrival, err error) {
	var buf [8]byte
	for {
		select {
		case <-stop:
			return all, c.Send(ctx, nil)
		default:
		}
		at := time.Since(start)
		if err := c.Send(ctx, buf[:]); err != nil {
			return all, err
		}
		if _, err := c.Recv(ctx, buf[:]); err != nil {
			return all, err
		}
		all = append(all, arrival{at, time.Since(start) - at})
	}
}

// echoAll sends back what comes until a message of no size.
func echoAll(ctx context.Context, c *transport.Conn) error {
	var buf [8]byte
	for {
		n, err := c.Recv(ctx, buf[:])
		if err != nil || n == 0 {
			return err
		}
		if err := c.Send(ctx, buf[:n]); err != nil {
			return err
		}
	}
}

// recoveries returns how long after each end of a switch the messages in a row began
// whose P99 was within a tenth of that of all before first. A switch after which the
// next came sooner has none.
func recoveries(all []arrival, first time.Duration, ends []time.Duration) []time.Duration {
	var before, out []time.Duration
	for _, a := range all {
		if a.at < first {
			before = append(before, a.took)
		}
	}
	if len(before) == 0 {
		return nil
	}
	limit := p99(before) + p99(before)/10
	for i, end := range ends {
		from, _ := slices.BinarySearchFunc(all, end, func(a arrival, t time.Duration) int { return int(a.at - t) })
		for at := from; at+recoveryBlock <= len(all); at += recoveryBlock / 4 {
			if i+1 < len(ends) && all[at].at > ends[i+1] {
				break
			}
			block := make([]time.Duration, recoveryBlock)
			for k := range block {
				block[k] = all[at+k].took
			}
			if p99(block) <= limit {
				out = append(out, all[at].at-end)
				break
			}
		}
	}
	return out
}

func p99(v []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(v))
	return s[min(len(s)-1, len(s)*99/100)]
}
