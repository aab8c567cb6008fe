package transport

import (
	"errors"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// A failing provider's device fails at one step of being opened, and counts what is open.
type failing struct {
	verbs.Provider
	at   string
	open map[string]int
}

var errFails = errors.New("it fails")

func (p failing) Open(name string) (verbs.Device, error) {
	if p.at == "open" {
		return (*failingDevice)(nil), errFails // as providers do that return what they have
	}
	d, err := p.Provider.Open(name)
	p.open["device"]++
	return &failingDevice{d, p}, err
}

type failingDevice struct {
	verbs.Device
	p failing
}

func (d *failingDevice) Close() error { d.p.open["device"]--; return d.Device.Close() }

func (d *failingDevice) Port(n uint8) (verbs.PortAttr, error) {
	a, err := d.Device.Port(n)
	switch d.p.at {
	case "port":
		return a, errFails
	case "active":
		a.Active = false
	}
	return a, err
}

func (d *failingDevice) AllocPD() (verbs.PD, error) {
	if d.p.at == "pd" {
		return nil, errFails
	}
	pd, err := d.Device.AllocPD()
	d.p.open["pd"]++
	return failingPD{pd, d.p}, err
}

func (d *failingDevice) NewCompChannel() (verbs.CompChannel, error) {
	if d.p.at == "channel" {
		return nil, errFails
	}
	ch, err := d.Device.NewCompChannel()
	d.p.open["channel"]++
	return failingChannel{ch, d.p}, err
}

func (d *failingDevice) NewCQ(n int, ch verbs.CompChannel, vector int) (verbs.CQ, error) {
	if d.p.at == "cq" {
		return nil, errFails
	}
	cq, err := d.Device.NewCQ(n, ch.(failingChannel).CompChannel, vector)
	d.p.open["cq"]++
	return failingCQ{cq, d.p}, err
}

type failingPD struct {
	verbs.PD
	p failing
}

func (p failingPD) Close() error { p.p.open["pd"]--; return p.PD.Close() }

func (p failingPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	if p.p.at == "qp" {
		return nil, errFails
	}
	a.SendCQ, a.RecvCQ = a.SendCQ.(failingCQ).CQ, a.RecvCQ.(failingCQ).CQ
	return p.PD.CreateQP(a)
}

type failingChannel struct {
	verbs.CompChannel
	p failing
}

func (c failingChannel) Close() error { c.p.open["channel"]--; return c.CompChannel.Close() }

type failingCQ struct {
	verbs.CQ
	p failing
}

func (q failingCQ) ReqNotify(solicited bool) error {
	if q.p.at == "arm" {
		return errFails
	}
	return q.CQ.ReqNotify(solicited)
}

func (q failingCQ) Close() error { q.p.open["cq"]--; return q.CQ.Close() }

// TestDeviceFails at every step of Open: with an error, and nothing stays open.
func TestDeviceFails(t *testing.T) {
	for _, at := range []string{"open", "port", "active", "pd", "channel", "cq", "arm", "qp", "never"} {
		t.Run(at, func(t *testing.T) {
			p := failing{soft.Provider{}, at, map[string]int{}}
			tr, err := openProvider(t.Context(), Options{Device: "soft0", CacheDir: t.TempDir()}, p)
			switch {
			case at == "never" && err != nil:
				t.Fatal(err)
			case at == "never":
				err = tr.Close()
				if err != nil {
					t.Error(err)
				}
			case err == nil || at != "active" && !errors.Is(err, errFails):
				t.Errorf("error %v", err)
			}
			for what, n := range p.open {
				if n != 0 {
					t.Errorf("%d of %s stay open", n, what)
				}
			}
		})
	}
	for _, device := range []string{"nope", "soft", ""} {
		if tr, err := Open(t.Context(), Options{Device: device}); err == nil {
			t.Errorf("device %q was opened: %v", device, tr.Close())
		}
	}
}
