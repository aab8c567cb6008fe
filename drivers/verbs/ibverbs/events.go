package ibverbs

import (
	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

// events takes a device's asynchronous events. They are taken even when nobody
// reads them: the library waits with destroying what has one.
type events struct {
	*waiter
	out  verbs.EventQueue
	done chan struct{} // closed when the goroutine is gone
}

func newEvents(ctx ibv.Context) (*events, error) {
	w, err := newWaiter(ctx.AsyncFD(), "asynchronous events")
	if err != nil {
		return nil, err
	}
	e := &events{w, verbs.NewEventQueue(), make(chan struct{})}
	go e.loop(ctx)
	return e, nil
}

func (e *events) loop(ctx ibv.Context) {
	defer close(e.done)
	defer close(e.out)
	for {
		var ev verbs.Event
		var known bool
		var failed error
		err := e.raw.Read(func(uintptr) bool {
			kind, number, ok, err := ctx.TakeAsync()
			ev = verbs.Event{Kind: verbs.EventKind(kind)}
			switch ev.Kind {
			case verbs.EventPortActive, verbs.EventPortError, verbs.EventGIDChange:
				ev.Port = uint8(number)
			default:
				ev.QPN = number
			}
			known, failed = ok && ev.Kind.Known(), err
			return ok || err != nil
		})
		if err != nil || failed != nil {
			return // closed, or the device is gone
		}
		if known {
			e.out.Put(ev)
		}
	}
}

// close ends the goroutine; the device must still be open.
func (e *events) close() error {
	err := e.shutdown()
	<-e.done
	return err
}
