package watch

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// drain takes all that waits.
func drain(q *queue) (all []string) {
	for {
		e, ok := q.take()
		if !ok {
			return all
		}
		all = append(all, fmt.Sprint(e.Source, " ", e.What, " ", e.Subject))
	}
}

func TestQueueMerges(t *testing.T) {
	q := newQueue()
	for range 1000 {
		q.put(Kernel, "change", "/a")
		q.put(Kernel, "change", "/b")
		q.put(Kernel, "add", "/a")
	}
	if got, want := fmt.Sprint(drain(q)), "[uevents change /a uevents change /b uevents add /a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	q.put(Kernel, "change", "/a") // what was taken may come again
	if got, want := fmt.Sprint(drain(q)), "[uevents change /a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if st := q.statuses()[1]; st.Events != 3001 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func TestQueueIsBounded(t *testing.T) {
	q := newQueue()
	for i := range 2 * maxWaiting {
		q.put(Kernel, "change", fmt.Sprint("/", i))
	}
	q.put(Links, "up", "eth0")
	got := drain(q)
	if len(got) != maxWaiting+2 || got[1] != "links up eth0" || got[len(got)-1] != "uevents lost " {
		t.Errorf("%d events, the second %q, the last %q", len(got), got[1], got[len(got)-1])
	}
	if st := q.statuses()[1]; st.Events != 2*maxWaiting || st.Lost != maxWaiting {
		t.Errorf("%+v", st)
	}
	q.drop(Writes)
	q.drop(Writes)
	if got, want := fmt.Sprint(drain(q)), "[writes lost ]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestQueueTakesTurns(t *testing.T) {
	q := newQueue()
	for i := range 3 {
		q.put(Processes, "exec", fmt.Sprint(i))
		q.put(Spec, "change", fmt.Sprint(i))
	}
	want := "[processes exec 0 spec change 0 processes exec 1 spec change 1 processes exec 2 spec change 2]"
	if got := fmt.Sprint(drain(q)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out, stop := newQueue(), make(chan Event), make(chan struct{})
		go q.pump(out, stop)
		synctest.Wait() // it waits for the first
		began := time.Now()
		q.put(Links, "up", "eth0")
		q.put(Links, "down", "eth0")
		for _, want := range []string{"up", "down"} {
			if e := <-out; e.What != want || !e.When.Equal(began) {
				t.Errorf("%+v, want %s at %v", e, want, began)
			}
		}
		q.put(Links, "up", "eth0")
		synctest.Wait() // it holds one that nobody takes
		close(stop)
		synctest.Wait()
		if _, ok := <-out; ok {
			t.Error("an event after the end")
		}
	})
}

func TestStatuses(t *testing.T) {
	q := newQueue()
	check := func(want string) {
		t.Helper()
		if got := fmt.Sprintf("%t %s", q.statuses()[0].On, q.statuses()[0].Reason); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	q.partly(Writes, errors.New("some"))
	check("false ")
	q.turn(Writes, true, "")
	q.partly(Writes, errors.New("some"))
	check("true some")
	q.partly(Writes, nil)
	check("true ")
	q.turn(Writes, false, "stopped")
	q.partly(Writes, nil)
	check("false stopped")
}
