package watch

import (
	"slices"
	"sync"
	"time"
)

// sources are all of them, in the order of the constants.
var sources = [...]Source{Writes, Kernel, Links, Ethtool, Processes, Spec, Transports}

// maxWaiting is how many events of one source wait for the reader. Beyond that they are
// dropped and the reader is told once. A reader that is that late looks at the whole node
// anyway.
const maxWaiting = 1024

// A key is what makes an event the repeat of one that still waits.
type key struct {
	what, subject string
	pid           int
}

type entry struct {
	key   key
	event Event
}

// A line is one source's events that wait, and its status.
type line struct {
	waiting []entry
	keys    map[key]struct{} // of waiting
	lost    bool             // a "lost" waits behind them
	status  Status
}

// A queue takes events from the sources, each by one goroutine, and gives them to one
// reader. The sources take turns, so that a storm of one does not delay the others.
type queue struct {
	ready chan struct{} // holds a token while something may wait

	mu    sync.Mutex
	lines [len(sources)]line // guarded by mu
	next  int                // whose turn it is; guarded by mu
}

func newQueue() *queue {
	q := &queue{ready: make(chan struct{}, 1)}
	for i, s := range sources {
		q.lines[i] = line{keys: map[key]struct{}{}, status: Status{Source: s}}
	}
	return q
}

// line returns that of s, which is one of sources. The caller holds q.mu.
func (q *queue) line(s Source) *line { return &q.lines[slices.Index(sources[:], s)] }

// wants says that an event was heard, and whether it is worth finding out more about: not
// when the same still waits, nor when there is no room.
func (q *queue) wants(s Source, k key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(s)
	l.status.Events++
	if _, ok := l.keys[k]; ok {
		return false
	}
	if len(l.waiting) >= maxWaiting {
		q.lose(l)
		return false
	}
	return true
}

// add appends an event that wants has asked for.
func (q *queue) add(k key, e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(e.Source)
	l.keys[k] = struct{}{}
	l.waiting = append(l.waiting, entry{k, e})
	q.wake()
}

// put is wants and add for an event about which there is no more to find out.
func (q *queue) put(s Source, what, subject string) {
	k := key{what, subject, 0}
	if q.wants(s, k) {
		q.add(k, Event{Source: s, What: what, Subject: subject, When: time.Now()})
	}
}

// drop says that events of s were dropped before they came here.
func (q *queue) drop(s Source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lose(q.line(s))
}

// lose makes the reader hear of a loss, once until it has. The caller holds q.mu.
func (q *queue) lose(l *line) {
	l.status.Lost++
	l.lost = true
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns the next event, if one waits.
func (q *queue) take() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range q.lines {
		l := &q.lines[q.next]
		q.next = (q.next + 1) % len(q.lines)
		if len(l.waiting) > 0 {
			first := l.waiting[0]
			l.waiting[0] = entry{} // its texts go with it
			l.waiting = l.waiting[1:]
			delete(l.keys, first.key)
			return first.event, true
		}
		if l.lost {
			l.lost = false
			return Event{Source: l.status.Source, What: "lost", When: time.Now()}, true
		}
	}
	return Event{}, false
}

// pump hands events to out until stop is closed, and closes out.
func (q *queue) pump(out chan<- Event, stop <-chan struct{}) {
	defer close(out)
	for {
		e, ok := q.take()
		if !ok {
			select {
			case <-q.ready:
				continue
			case <-stop:
				return
			}
		}
		select {
		case out <- e:
		case <-stop:
			return
		}
	}
}

// turn sets whether s is heard, and why not.
func (q *queue) turn(s Source, on bool, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(s)
	l.status.On, l.status.Reason = on, reason
}

// partly sets why s, if it is on, hears only a part; nil: it hears all.
func (q *queue) partly(s Source, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.line(s); l.status.On {
		l.status.Reason = ""
		if err != nil {
			l.status.Reason = err.Error()
		}
	}
}

func (q *queue) statuses() []Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Status, len(q.lines))
	for i := range q.lines {
		all[i] = q.lines[i].status
	}
	return all
}
