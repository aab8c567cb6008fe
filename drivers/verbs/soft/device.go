package soft

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// Limits of the device.
const (
	maxQPWR   = 16384
	maxCQE    = 1<<17 - 1
	maxInline = 256
	minInline = 16 // granted also when less is asked for, as rxe does
	maxMsg    = 1 << 30
)

// Provider serves soft devices.
type Provider struct {
	// AnyName opens a device of any name, not only soft0: for simulated nodes.
	AnyName bool
	// Shuffle lets completions of different queue pairs on one CQ arrive in any
	// order, as hardware may.
	Shuffle bool
	// Moderation lets every CQ start out moderated by count and time, as on devices
	// that moderate by default: an event comes for 16 completions or after 50 us,
	// unless CQ.Moderate says otherwise. Without it a CQ starts unmoderated; CQ.Moderate
	// is granted and honoured in both.
	Moderation bool
	// Ignore makes a device that grants settings, reads them back right and does
	// nothing with them, as behind some hypervisors: CQ.Moderate is taken, the function
	// Moderation tells what was set, and events come as if it never had been.
	Ignore bool
}

// What Provider.Moderation starts with.
const (
	defaultCount  = 16
	defaultPeriod = 50 * time.Microsecond
)

// Name is "soft".
func (Provider) Name() string { return "soft" }

// Devices lists soft0.
func (Provider) Devices() ([]string, error) { return []string{"soft0"}, nil }

// Open opens a device.
func (p Provider) Open(name string) (verbs.Device, error) {
	if name != "soft0" && !p.AnyName {
		return nil, fmt.Errorf("soft: no device %q (there is soft0): %w", name, syscall.ENODEV)
	}
	return &device{
		name: name, mode: p, events: verbs.NewEventQueue(),
		listeners: map[netip.Addr]*listener{},
		qps:       map[uint32]*qp{},
		nextQPN:   rand.Uint32N(1<<23) + 2,
	}, nil
}

type device struct {
	name string
	mode Provider

	mu        sync.Mutex
	listeners map[netip.Addr]*listener // guarded by mu
	qps       map[uint32]*qp           // guarded by mu
	nextQPN   uint32                   // guarded by mu
	nextKey   uint32                   // guarded by mu
	closed    bool                     // guarded by mu
	events    verbs.EventQueue         // guarded by mu: its writing side
}

func (d *device) Name() string { return d.name }

func (d *device) Attr() verbs.DeviceAttr {
	return verbs.DeviceAttr{Firmware: "soft", MaxQPWR: maxQPWR, MaxSGE: 1, MaxCQE: maxCQE, CompVectors: 1,
		Moderation: true, DMABufWhy: noDMABuf}
}

func (d *device) Port(port uint8) (verbs.PortAttr, error) {
	if port != 1 {
		return verbs.PortAttr{}, fmt.Errorf("%s: port %d: %w", d.name, port, syscall.EINVAL)
	}
	return verbs.PortAttr{Active: true, ActiveMTU: 4096, Ethernet: true}, nil
}

// GIDs lists 127.0.0.1 first, then the machine's other IPv4 addresses.
func (d *device) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	if _, err := d.Port(port); err != nil {
		return nil, err
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("%s: addresses: %w", d.name, err)
	}
	list := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	for _, a := range addrs {
		ipn, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(ipn.IP.To4())
		if ok && !ip.IsLoopback() {
			list = append(list, ip)
		}
	}
	out := make([]verbs.GIDEntry, len(list))
	for i, a := range list {
		out[i] = verbs.GIDEntry{Index: i, GID: a.As16(), RoCEv2: true}
	}
	return out, nil
}

func (d *device) AllocPD() (verbs.PD, error) {
	return &pd{dev: d, mrs: map[uint32]*mr{}}, nil
}

func (d *device) NewCompChannel() (verbs.CompChannel, error) {
	return &compChannel{wake: make(chan struct{}, 1), done: make(chan struct{})}, nil
}

func (d *device) NewCQ(cqe int, ch verbs.CompChannel, vector int) (verbs.CQ, error) {
	if cqe < 1 || cqe > maxCQE || vector != 0 {
		return nil, fmt.Errorf("%s: create cq of %d on vector %d: %w", d.name, cqe, vector, syscall.EINVAL)
	}
	q := &cq{dev: d, ring: make([]verbs.WC, roundCap(cqe))}
	if d.mode.Moderation {
		q.count, q.period = defaultCount, defaultPeriod
	}
	q.effective = q.moderation
	if ch != nil {
		c, ok := ch.(*compChannel)
		if !ok {
			return nil, fmt.Errorf("%s: create cq: channel of another provider: %w", d.name, syscall.EINVAL)
		}
		q.ch = c
	}
	return q, nil
}

// Close stops listening. Queue pairs must have been closed.
func (d *device) Close() error {
	d.mu.Lock()
	if n := len(d.qps); n > 0 {
		d.mu.Unlock()
		return fmt.Errorf("%s: close with %d queue pairs: %w", d.name, n, syscall.EBUSY)
	}
	if !d.closed {
		d.closed = true
		close(d.events)
	}
	ls := d.listeners
	d.listeners = nil
	d.mu.Unlock()
	for _, l := range ls {
		l.close()
	}
	return nil
}

func (d *device) Events() <-chan verbs.Event { return d.events }

// emit announces an event to whoever reads them.
func (d *device) emit(e verbs.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.events.Put(e)
	}
}

// Emit makes a soft device announce e, for tests of what its users do then; false
// for a device of another provider.
func Emit(dev verbs.Device, e verbs.Event) bool {
	d, ok := dev.(*device)
	if ok {
		d.emit(e)
	}
	return ok
}

// roundCap returns the 2^n-1 at or above n, as rxe grants.
func roundCap(n int) int {
	if n < 1 {
		n = 1
	}
	return 1<<bits.Len(uint(n)) - 1
}
