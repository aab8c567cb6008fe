package transport

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// A short provider's device has no more queue pairs or memory while it is told so.
type short struct {
	verbs.Provider
	qps, mrs *atomic.Bool
}

func (p short) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return shortDevice{d, p}, err
}

type shortDevice struct {
	verbs.Device
	p short
}

func (d shortDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return shortPD{pd, d.p}, err
}

type shortPD struct {
	verbs.PD
	p short
}

func (p shortPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	// Those of the first lane of a set still come, so that a set is left half made.
	if p.p.qps.Load() && a.Cap.SendWR > lowLatencyDepth+controlSlots {
		return nil, syscall.ENOMEM
	}
	return p.PD.CreateQP(a)
}

func (p shortPD) RegMR(b []byte, a verbs.Access) (verbs.MR, error) {
	if p.p.mrs.Load() {
		return nil, syscall.ENOMEM
	}
	return p.PD.RegMR(b, a)
}

// openShort opens a transport whose device runs short when qps or mrs say so.
func openShort(t *testing.T) (tr *Transport, p short) {
	p = short{soft.Provider{}, &atomic.Bool{}, &atomic.Bool{}}
	tr = openOn(t, Options{Hint: bytesPtr(1024)}, p)
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close transport: %v", err)
		}
	})
	return tr, p
}

// TestRefusedSwitch lets either end run short of queue pairs half way through making
// its lanes: the switch is off, the connection goes on, and nothing is left.
func TestRefusedSwitch(t *testing.T) {
	for _, opener := range []bool{true, false} {
		a, pa := openShort(t)
		b, pb := openShort(t)
		patient(t, b)
		ca, cb := connect(t, a, b)
		before := resources(t, a, b).lanes
		want := control.Refused
		if opener {
			pa.qps.Store(true)
			want = control.Aborted
		} else {
			pb.qps.Store(true)
			// b follows two lanes as well: its own second one is what it cannot make.
			settle(t, b, 2, hinted(2048, true, true))
		}
		to := hinted(2048, true, true)
		to.DrainTimeoutMS = &slow
		res, err := a.Order(t.Context(), control.Order{ID: "t", Generation: 1, Workload: "w", Settings: &to, Open: true})
		if err != nil || res.Outcomes[0].Outcome != want || !strings.Contains(res.Outcomes[0].Reason, "queue pair") {
			t.Errorf("opener short %t: %+v, %v", opener, res.Outcomes, err)
		}
		exchange(t, ca, cb, []byte("goes on"), make([]byte, 10))
		exchange(t, cb, ca, make([]byte, 50_000), make([]byte, 50_000))
		eventually(t, "nothing is left of it", func() bool { return resources(t, a, b).lanes == before })
		if i, j := ca.Info(), cb.Info(); i.Epoch != firstEpoch || j.Epoch != firstEpoch {
			t.Errorf("epochs %d and %d", i.Epoch, j.Epoch)
		}
		pa.qps.Store(false)
		pb.qps.Store(false)
		switchTo(t, a, 2, hinted(2048, true, true))
	}
}

// TestNoMemoryToRegister lets a rendezvous find no memory that it may register.
func TestNoMemoryToRegister(t *testing.T) {
	a, pa := openShort(t)
	b, pb := openShort(t)
	ca, cb := connect(t, a, b)
	big := bytes.Repeat([]byte("x"), 50_000)
	pa.mrs.Store(true)
	if err := ca.Send(t.Context(), big); !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "ulimit -l") {
		t.Errorf("send: %v", err)
	}
	pa.mrs.Store(false)
	pb.mrs.Store(true)
	sent := make(chan error, 1)
	go func() { sent <- ca.Send(t.Context(), big) }()
	buf := make([]byte, len(big))
	if _, err := cb.Recv(t.Context(), buf); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("receive: %v", err)
	}
	pb.mrs.Store(false)
	if n, err := cb.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:n], big) {
		t.Errorf("the message is gone: %d bytes, %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestCompletionModes exchanges messages of each tier in each mode, with and without
// polling in the poller's place, on one lane and on two.
func TestCompletionModes(t *testing.T) {
	for _, mode := range []completion{completionAdaptive, completionBusy, completionEvent} {
		for _, dual := range []bool{false, true} {
			a, b := openSoft(t, Options{}, soft.Provider{Shuffle: true}), openSoft(t, Options{}, soft.Provider{})
			a.spins, b.spins = true, true
			to := hinted(1024, dual, true)
			to.Completion = ptrTo(string(mode))
			settle(t, a, 1, to)
			settle(t, b, 1, to)
			ca, cb := connect(t, a, b)
			buf := make([]byte, 1<<20)
			for i := range 60 {
				for _, size := range []int{8, 1000, 5000, 1 << 20}[:4-min(i%20, 1)] {
					msg := bytes.Repeat([]byte{byte(i)}, size)
					exchange(t, ca, cb, msg, buf)
					exchange(t, cb, ca, msg, buf)
				}
			}
			for k, l := range ca.Info().Lanes {
				if want := map[int]completion{0: mode, 1: completionEvent}[k]; l.Completion != string(want) {
					t.Errorf("lane %d waits by %s, want %s", k, l.Completion, want)
				}
			}
		}
	}
}
