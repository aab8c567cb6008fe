package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A Config says what to listen to.
type Config struct {
	// Local is whether the node is this machine. Of a captured or simulated one only Spec
	// and Transports can be heard; the other sources are off and say why.
	Local bool
	// Spec holds files and directories, followed through every symbolic link on their way.
	Spec []string
	// RunDir is the run directory; the control sockets of transports are in a directory of
	// it. Neither needs to exist yet. Empty: transports are not heard.
	RunDir string
	// Self is the process whose writes are not events: the caller's own, to be sure.
	Self int
}

// A Watcher hears the sources that the process may open, until it is closed.
type Watcher struct {
	q     *queue
	out   chan Event
	files *Files
	spec  *tree // nil when it is off

	processes *socket // nil when it is off

	stop    chan struct{}
	tidy    func() bool // forgets about the context
	once    sync.Once
	opened  []source
	running sync.WaitGroup
	err     error // of Close
}

// A source is one that was opened.
type source interface {
	// run puts what it hears into the queue until it is closed; then its error is
	// os.ErrClosed. stop is closed at that time too.
	run(stop <-chan struct{}) error
	close() error
}

// openers say how each source is opened, and what stands in when that fails. A source that
// comes with an error hears only a part.
var openers = []struct {
	source  Source
	local   bool // heard of this machine alone
	open    func(w *Watcher, c Config) (source, error)
	without string
}{
	{Writes, true, openWrites, "the sweep finds changed files later, without their writer"},
	{Kernel, true, openUevents, "the sweep finds changed devices later"},
	{Links, true, openLinks, "the sweep finds changed links later"},
	{Ethtool, true, openEthtool, "the sweep finds changed coalescing later"},
	{Processes, true, openProcesses, "the sweep finds new processes later"},
	{Spec, false, openSpec, "the sweep reads the spec again"},
	{Transports, false, openTransports, "the sweep finds new transports later"},
}

// New opens what the process may open. What it may not open is off and says why; that is
// no error. The sockets are of the network namespace of the calling thread. When ctx ends,
// the watcher is closed.
func New(ctx context.Context, c Config) (*Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &Watcher{q: newQueue(), out: make(chan Event), stop: make(chan struct{})}
	w.files = newFiles(c.Local)
	for _, o := range openers {
		if o.local && !c.Local {
			w.q.turn(o.source, false, "the node is not this machine")
			continue
		}
		s, err := o.open(w, c)
		reason := ""
		if err != nil {
			reason = fmt.Sprintf("%v; %s", err, o.without)
		}
		w.q.turn(o.source, s != nil, reason)
		if s == nil {
			continue
		}
		w.opened = append(w.opened, s)
		w.running.Go(func() {
			// Its own end is the only one expected; any other is told, and the sweep remains.
			if err := s.run(w.stop); !errors.Is(err, os.ErrClosed) {
				w.q.drop(o.source)
				w.q.turn(o.source, false, fmt.Sprintf("stopped: %v; %s", err, o.without))
			}
		})
	}
	w.running.Go(func() { w.q.pump(w.out, w.stop) })
	w.tidy = context.AfterFunc(ctx, func() { _ = w.Close() }) // the caller's own Close has the error
	return w, nil
}

// Events returns where events come out, for one reader; it is closed with the watcher.
// Events that the reader has not taken are kept up to a bound, exact repeats of them once.
func (w *Watcher) Events() <-chan Event { return w.out }

// Statuses returns those of all sources, in the order of the constants.
func (w *Watcher) Statuses() []Status { return w.q.statuses() }

// Files returns the files whose writers are heard.
func (w *Watcher) Files() *Files { return w.files }

// SetSpec says which files and directories are the spec from now on. The error is about
// directories that could not be watched; the rest is.
func (w *Watcher) SetSpec(paths []string) error {
	if w.spec == nil {
		return nil // off, and its status says so
	}
	err := w.spec.set(paths)
	w.q.partly(Spec, err)
	return err
}

// Close ends all listening, waits for it, and closes all descriptors. It may be called
// again.
func (w *Watcher) Close() error {
	w.once.Do(func() {
		w.tidy()
		close(w.stop)
		var errs []error
		for _, s := range w.opened {
			errs = append(errs, s.close())
		}
		w.running.Wait()
		errs = append(errs, w.files.close())
		w.err = errors.Join(errs...)
	})
	return w.err
}

// How long a source waits after it has emptied its descriptor and before it listens again.
// The first event of a storm is heard at once; what comes after it is merged or queued by
// the kernel meanwhile. So a storm of writes costs at most a hundred wakes a second, one of
// the kernel's own changes twenty, and process starts, which never end on most nodes and of
// which few matter, five.
const (
	gather          = 10 * time.Millisecond
	gatherKernel    = 50 * time.Millisecond
	gatherProcesses = 200 * time.Millisecond
)

// pause waits that long, or until stop is closed.
func pause(d time.Duration, stop <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-stop:
	}
}
