package transport

import (
	"sync/atomic"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// counts is what is open, and how many queue pairs were ever made.
type counts struct{ qps, mrs, madeQPs atomic.Int64 }

// A counting provider counts queue pairs and memory regions.
type counting struct {
	verbs.Provider
	attr *verbs.DeviceAttr // instead of the device's own
	n    *counts
}

func (p counting) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return countingDevice{d, p}, err
}

type countingDevice struct {
	verbs.Device
	p counting
}

func (d countingDevice) Attr() verbs.DeviceAttr {
	if d.p.attr != nil {
		return *d.p.attr
	}
	return d.Device.Attr()
}

func (d countingDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return countingPD{pd, d.p.n}, err
}

type countingPD struct {
	verbs.PD
	n *counts
}

func (p countingPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	q, err := p.PD.CreateQP(a)
	if err != nil {
		return nil, err
	}
	p.n.madeQPs.Add(1)
	p.n.qps.Add(1)
	return &countingQP{QP: q, n: p.n}, nil
}

func (p countingPD) RegMR(b []byte, a verbs.Access) (verbs.MR, error) {
	m, err := p.PD.RegMR(b, a)
	if err != nil {
		return nil, err
	}
	p.n.mrs.Add(1)
	return &countingMR{MR: m, n: p.n}, nil
}

type countingQP struct {
	verbs.QP
	n *counts
}

func (q *countingQP) Close() error {
	q.n.qps.Add(-1)
	return q.QP.Close()
}

type countingMR struct {
	verbs.MR
	n *counts
}

func (m *countingMR) Close() error {
	m.n.mrs.Add(-1)
	return m.MR.Close()
}

// A wrapping provider puts what wrap makes of them in place of queue pairs.
type wrapping struct {
	verbs.Provider
	wrap func(verbs.QP) verbs.QP
	more int // times as many sends as they are asked for fit in; 0 is 1
}

func (p wrapping) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return wrappingDevice{d, p}, err
}

type wrappingDevice struct {
	verbs.Device
	p wrapping
}

func (d wrappingDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return wrappingPD{pd, d.p}, err
}

type wrappingPD struct {
	verbs.PD
	p wrapping
}

func (p wrappingPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	a.Cap.SendWR *= max(p.p.more, 1)
	q, err := p.PD.CreateQP(a)
	if err != nil {
		return nil, err
	}
	return p.p.wrap(q), nil
}

// openOn opens a transport on a provider of the test's own.
func openOn(t *testing.T, o Options, p verbs.Provider) *Transport {
	t.Helper()
	t.Setenv(EnvHint, "")
	t.Setenv(EnvWorkload, "")
	o.Device = "soft0"
	tr, err := openProvider(t.Context(), o, p)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
