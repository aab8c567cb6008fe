package transport

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// A near provider's queue pairs reach each other within the call that posts: what is
// measured on it is the transport's own work, without a device and without C.
type near struct {
	verbs.Provider
	mu  sync.Mutex
	qps map[uint32]*nearQP // guarded by mu
}

func (*near) Name() string { return "near" }

func (p *near) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return nearDevice{d, p}, err
}

type nearDevice struct {
	verbs.Device
	p *near
}

func (d nearDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return nearPD{pd, d.p}, err
}

func (nearDevice) NewCompChannel() (verbs.CompChannel, error) {
	return &nearChannel{make(chan struct{}, 1), make(chan struct{})}, nil
}

func (nearDevice) NewCQ(n int, ch verbs.CompChannel, _ int) (verbs.CQ, error) {
	return &nearCQ{ch: ch.(*nearChannel), n: n}, nil
}

type nearChannel struct{ event, shut chan struct{} }

func (c *nearChannel) Wait() error {
	select {
	case <-c.event:
		return nil
	case <-c.shut:
		return os.ErrClosed
	}
}
func (c *nearChannel) Shutdown() error { close(c.shut); return nil }
func (*nearChannel) Close() error      { return nil }

type nearCQ struct {
	ch    *nearChannel
	n     int
	mu    sync.Mutex
	wcs   []verbs.WC // guarded by mu
	armed bool       // guarded by mu
}

func (q *nearCQ) add(wc verbs.WC) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wcs = append(q.wcs, wc)
	if q.armed {
		q.armed = false
		nudge(q.ch.event)
	}
}

func (q *nearCQ) Poll(wc []verbs.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(wc, q.wcs)
	q.wcs = append(q.wcs[:0], q.wcs[n:]...)
	return n, nil
}
func (q *nearCQ) Spin(wc []verbs.WC, _ int) (int, error) { return q.Poll(wc) }
func (q *nearCQ) ReqNotify(bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = true
	return nil
}
func (*nearCQ) Moderate(int, int) error { return nil }
func (q *nearCQ) Cap() int              { return q.n }
func (*nearCQ) Close() error            { return nil }

type nearPD struct {
	verbs.PD
	p *near
}

func (p nearPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	p.p.mu.Lock()
	defer p.p.mu.Unlock()
	q := &nearQP{p: p.p, num: uint32(len(p.p.qps) + 1), attr: a}
	p.p.qps[q.num] = q
	return q, nil
}

type nearQP struct {
	p    *near
	num  uint32
	attr verbs.QPInitAttr
	peer *nearQP

	mu    sync.Mutex
	recvs []verbs.RecvWR // guarded by mu
}

func (q *nearQP) Num() uint32      { return q.num }
func (q *nearQP) Cap() verbs.QPCap { return q.attr.Cap }
func (q *nearQP) Local(uint8, int) (verbs.Endpoint, error) {
	return verbs.Endpoint{QPN: q.num, Service: 1, GID: verbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}}, nil
}
func (*nearQP) Init(uint8) error { return nil }
func (q *nearQP) Connect(a verbs.ConnectAttr) error {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.peer = q.p.qps[a.Remote.QPN]
	return nil
}
func (*nearQP) Fail() error          { return nil }
func (*nearQP) State() verbs.QPState { return verbs.QPRTS }
func (*nearQP) Close() error         { return nil }

func (q *nearQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recvs = append(q.recvs, wrs...)
	return len(wrs), nil
}

func (q *nearQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for _, w := range wrs {
		q.peer.mu.Lock()
		r := q.peer.recvs[0]
		q.peer.recvs = slices.Delete(q.peer.recvs, 0, 1)
		q.peer.mu.Unlock()
		q.peer.attr.RecvCQ.(*nearCQ).add(verbs.WC{ID: r.ID, ByteLen: copy(r.Buf, w.Buf), Recv: true, QPN: q.peer.num, Imm: w.Imm, HasImm: w.HasImm})
		if w.Signaled {
			q.attr.SendCQ.(*nearCQ).add(verbs.WC{ID: w.ID, QPN: q.num})
		}
	}
	return len(wrs), nil
}

// BenchmarkPath is the transport's own part of a half round trip of 8 bytes on a
// low-latency lane.
func BenchmarkPath(b *testing.B) {
	p := &near{Provider: soft.Provider{}, qps: map[uint32]*nearQP{}}
	var ends [2]*Transport
	for i := range ends {
		tr, err := openProvider(b.Context(), Options{Device: "soft0", Mirror: true}, p)
		if err != nil {
			b.Fatal(err)
		}
		defer tr.Close()
		ends[i] = tr
	}
	l, err := ends[0].Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	hint := int64(64 << 10)
	type accepted struct {
		c   *Conn
		err error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := l.Accept(b.Context())
		got <- accepted{c, err}
	}()
	a, err := ends[1].DialFixed(b.Context(), l.Addr().String(), Settings{Size: &hint})
	if err != nil {
		b.Fatal(err)
	}
	s := <-got
	if s.err != nil {
		b.Fatal(s.err)
	}
	buf := make([]byte, 8)
	one := func(from, to *Conn) {
		if err := from.Send(b.Context(), buf); err != nil {
			b.Fatal(err)
		}
		if _, err := to.Recv(b.Context(), buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		one(a, s.c)
		one(s.c, a)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half")
}
