package soft

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

type armed uint8

const (
	disarmed armed = iota
	armedSolicited
	armedAny
)

// moderation is when a CQ announces completions.
type moderation struct {
	count  int // completions per event, 0 = every one
	period time.Duration
}

type cq struct {
	dev *device
	ch  *compChannel

	mu         sync.Mutex
	ring       []verbs.WC // guarded by mu, as are the rest
	head, n    int
	overflow   bool
	arm        armed
	moderation            // as set
	effective  moderation // as done: differs on a device that ignores settings
	since      int        // completions since the last event
	timer      *time.Timer
	users      int // queue pairs
}

// push adds a completion; false means that the queue overflowed.
func (q *cq) push(wc verbs.WC, solicited bool) bool {
	q.mu.Lock()
	if q.overflow || q.n == len(q.ring) {
		first := !q.overflow
		q.overflow = true
		q.signal()
		q.mu.Unlock()
		if first {
			q.dev.emit(verbs.Event{Kind: verbs.EventCQError})
		}
		return false
	}
	at := q.n
	q.n++
	if q.dev.mode.Shuffle {
		at = q.shufflePlace(wc.QPN, at)
	}
	q.ring[(q.head+at)%len(q.ring)] = wc
	q.since++
	solicited = solicited || wc.Status != verbs.StatusSuccess
	if q.arm == armedAny || q.arm == armedSolicited && solicited {
		q.moderate()
	}
	q.mu.Unlock()
	return true
}

// shufflePlace makes room for a completion of qpn at a random place that is
// behind the last one of the same queue pair, and returns the place.
func (q *cq) shufflePlace(qpn uint32, end int) int {
	at := end
	for at > 0 {
		prev := q.ring[(q.head+at-1)%len(q.ring)]
		if prev.QPN == qpn || rand.IntN(2) == 0 {
			break
		}
		q.ring[(q.head+at)%len(q.ring)] = prev
		at--
	}
	return at
}

// moderate announces the completion now, or later as Moderate asked.
func (q *cq) moderate() {
	if q.effective.count <= 1 || q.since >= q.effective.count {
		q.signal()
		return
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(q.effective.period, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.timer = nil
			if q.arm != disarmed {
				q.signal()
			}
		})
	}
}

// signal puts an event on the channel and disarms.
func (q *cq) signal() {
	q.arm = disarmed
	q.since = 0
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if q.ch != nil {
		q.ch.post()
	}
}

func (q *cq) Poll(wc []verbs.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := min(len(wc), q.n)
	for i := range k {
		wc[i] = q.ring[q.head]
		q.head = (q.head + 1) % len(q.ring)
	}
	q.n -= k
	if k == 0 && q.overflow {
		return 0, fmt.Errorf("soft: completion queue of %d overflowed: %w", len(q.ring), syscall.EOVERFLOW)
	}
	return k, nil
}

func (q *cq) Spin(wc []verbs.WC, polls int) (int, error) {
	for {
		n, err := q.Poll(wc)
		if polls--; n > 0 || err != nil || polls <= 0 {
			return n, err
		}
		runtime.Gosched()
	}
}

func (q *cq) ReqNotify(solicitedOnly bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if solicitedOnly && q.arm == disarmed {
		q.arm = armedSolicited
	} else if !solicitedOnly {
		q.arm = armedAny
	}
	return nil
}

func (q *cq) Moderate(count, periodUsec int) error {
	if count < 0 || count > 1<<16 || periodUsec < 0 || periodUsec > 1<<16 {
		return fmt.Errorf("soft: moderate cq by %d completions or %d us: %w", count, periodUsec, syscall.EINVAL)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moderation = moderation{count, time.Duration(periodUsec) * time.Microsecond}
	if !q.dev.mode.Ignore {
		q.effective = q.moderation
	}
	return nil
}

// Moderation reads back what c, a CQ of a soft device, has been set to; ok is false
// for another provider's.
func Moderation(c verbs.CQ) (count, periodUsec int, ok bool) {
	q, ok := c.(*cq)
	if !ok {
		return 0, 0, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, int(q.period / time.Microsecond), true
}

func (q *cq) Cap() int { return len(q.ring) }

func (q *cq) use(n int) {
	q.mu.Lock()
	q.users += n
	q.mu.Unlock()
}

func (q *cq) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.users > 0 {
		return fmt.Errorf("soft: destroy cq of %d queue pairs: %w", q.users, syscall.EBUSY)
	}
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	return nil
}

type compChannel struct {
	wake chan struct{}
	once sync.Once
	done chan struct{}
}

func (c *compChannel) post() {
	select {
	case c.wake <- struct{}{}:
	default: // an event that nobody took yet says the same
	}
}

func (c *compChannel) Wait() error {
	select {
	case <-c.done:
		return os.ErrClosed
	default:
	}
	select {
	case <-c.wake:
		return nil
	case <-c.done:
		return os.ErrClosed
	}
}

func (c *compChannel) Shutdown() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

func (c *compChannel) Close() error { return c.Shutdown() }
