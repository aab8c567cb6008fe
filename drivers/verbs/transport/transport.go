package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/switchover"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
	"github.com/rdmatune/rdmatune/internal/rundir"
)

// Options say how Open sets a transport up.
type Options struct {
	// Device is the RDMA device ("mlx5_0", "rxe0", "soft0").
	Device string
	// Soft serves any device name with the soft provider: the device belongs to a
	// simulated node.
	Soft bool
	// Workload names the workload that this process belongs to; "" takes
	// RDMATUNE_WORKLOAD, which may be unset.
	Workload string
	// RunDir is rdmatune's run directory, where the control socket is served and the
	// published hint is read; "" takes RDMATUNE_RUN_DIR, else /run/rdmatune, and goes on
	// without where that cannot be used, with a line in the log.
	RunDir string
	// Private serves no control socket and reads no published hint: rdmatune does not see
	// this process. The same is true of a Soft device without a RunDir.
	Private bool
	// Hint is what the program itself says of its message sizes, in bytes, 0 to MaxHint.
	// Nil: nothing.
	Hint *int64
	// Mirror lets a dialer of DialFixed say what accepted connections send by.
	Mirror bool
	// Logger gets one line at start and one per switch; nil discards.
	Logger *slog.Logger
	// CacheDir keeps what was found out about devices by trying; "" is devices/ in a
	// RunDir that belongs to root, else nothing is kept.
	CacheDir string
	// DeadTime bounds how long a dead peer, or a dead path to it, stays unnoticed while
	// the program waits; 0 is 10 seconds, less than a second counts as one.
	DeadTime time.Duration
	// GIDIndex picks the GID table entry; nil picks the one of the control
	// channel's local address, else the first that carries an IPv4 address.
	GIDIndex *int

	anyRunDir bool // RunDir is the default, which a program can do without
}

// ConnInfo, EffectiveHint and Switch are as the control socket shows them.
type (
	ConnInfo      = control.Conn
	EffectiveHint = control.EffectiveHint
	Switch        = control.Switch
)

// port is the physical port used; devices with several show each as a device.
const port = 1

// A Transport is one process's use of one device.
type Transport struct {
	device    string
	provider  string
	simulated bool
	port      uint8
	mtu       int // bytes, the port's
	gidIndex  *int
	mirror    bool // dialers may say what accepted connections send by
	dev       verbs.Device
	eng       *engine
	maxInline int // bytes that the device inlines
	deadTime  time.Duration
	opened    time.Time
	mem       memories
	// spins says that polling finds completions sooner than sleeping. Not so for the
	// soft provider: it needs the CPU that a poller would take.
	spins   bool
	sources hintSource
	log     *slog.Logger
	server  *control.Server
	connID  atomic.Uint64
	// hook sees every action of every switch before it is carried out; tests only.
	hook func(*Conn, switchover.Action)

	// closing ends with Close, and with it every hello under way.
	closing context.Context
	stop    context.CancelFunc
	watcher sync.WaitGroup // watchPaths
	hellos  sync.WaitGroup // Add is guarded by mu, with closed still false

	mu        sync.Mutex
	closed    bool               // guarded by mu
	conns     map[uint64]*Conn   // guarded by mu; live ones
	ended     map[uint64]*Conn   // guarded by mu; ended, not closed by the program
	listeners map[*Listener]bool // guarded by mu
	order     *control.Order     // guarded by mu
	tried     map[uint64]attempt // guarded by mu; what the order did, by connection
}

// Open opens the device, settles the effective hint and serves the control socket.
func Open(ctx context.Context, o Options) (*Transport, error) {
	switch {
	case o.Device == "":
		return nil, errors.New(`open a transport: no device is named; "soft0" needs no hardware`)
	case o.Private:
		o.RunDir = ""
	case o.RunDir == "" && !o.Soft:
		o.RunDir, o.anyRunDir = rundir.Default(), true
	}
	return open(ctx, o, soft.Provider{AnyName: o.Soft})
}

func open(ctx context.Context, o Options, sp soft.Provider) (*Transport, error) {
	var p verbs.Provider = sp
	var err error
	if !o.Soft {
		if p, err = verbs.For(o.Device, ibverbs.Provider{}, sp); err != nil {
			return nil, err
		}
	}
	return openProvider(ctx, o, p)
}

func openProvider(ctx context.Context, o Options, p verbs.Provider) (*Transport, error) {
	if h := o.Hint; h != nil && (*h < 0 || *h > MaxHint) {
		return nil, fmt.Errorf("open: a hint of %d bytes; it must be 0 to %d", *h, int64(MaxHint))
	}
	t := &Transport{
		device: o.Device, provider: p.Name(), simulated: o.Soft, port: port, gidIndex: o.GIDIndex, mirror: o.Mirror,
		spins:  p.Name() != "soft",
		opened: time.Now(), deadTime: deadTime(o.DeadTime), mem: memories{all: map[*Buffer]bool{}},
		sources: readSources(o), log: o.Logger,
		conns: map[uint64]*Conn{}, ended: map[uint64]*Conn{}, listeners: map[*Listener]bool{},
	}
	t.closing, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if err := t.start(ctx, p, o); err != nil {
		return nil, errors.Join(err, t.release())
	}
	t.logStart()
	return t, nil
}

// start opens the device and all that the transport needs of it.
func (t *Transport) start(ctx context.Context, p verbs.Provider, o Options) (err error) {
	dev, err := p.Open(o.Device)
	if err != nil {
		return err
	}
	t.dev = dev
	attr, err := t.dev.Port(port)
	if err != nil {
		return err
	}
	if !attr.Active {
		return fmt.Errorf("%s: port %d is not active", o.Device, port)
	}
	t.mtu = attr.ActiveMTU
	if t.eng, err = newEngine(t.dev); err != nil {
		return err
	}
	limit, kept, err := inlineLimit(cacheDir(o), t.dev, t.eng.pd, t.eng.cqs[0].CQ)
	if err != nil {
		return err
	}
	if kept != nil {
		t.log.Warn("keep what was found out", "device", t.device, "err", kept)
	}
	t.maxInline = limit
	if o.RunDir != "" {
		if err = t.serve(ctx, o); err != nil && !o.anyRunDir {
			return err
		} else if err != nil {
			t.log.Warn("rdmatune does not see this process", "err", err)
		}
	}
	if t.provider != "soft" { // where a peer's process acknowledges, which may be stopped
		t.watcher.Go(t.watchPaths)
	}
	return nil
}

// serve serves the control socket.
func (t *Transport) serve(ctx context.Context, o Options) (err error) {
	if o.anyRunDir {
		if err := rundir.Make(o.RunDir); err != nil {
			return err
		}
	}
	t.server, err = control.Serve(ctx, o.RunDir, t)
	return err
}

// logStart writes the one line by which a launcher's log shows who runs with what.
func (t *Transport) logStart() {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	rank := ""
	for _, name := range []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"} {
		if rank = os.Getenv(name); rank != "" {
			break
		}
	}
	h := t.Hint()
	hint := "none"
	if h.Size != nil {
		hint = fmt.Sprint(*h.Size)
	}
	losers := make([]string, len(h.Losers))
	for i, l := range h.Losers {
		losers[i] = l.Origin
	}
	t.log.Info("rdmatune transport", "host", host, "pid", os.Getpid(), "rank", rank, "device", t.device,
		"provider", t.provider, "workload", t.sources.workload, "hint", hint, "origin", h.Origin,
		"losers", losers, "notices", h.Notices)
	for _, n := range h.Notices {
		t.log.Warn("rdmatune transport: hint", "notice", n)
	}
}

// release closes what open opened.
func (t *Transport) release() error {
	t.stop()
	t.watcher.Wait()
	var errs []error
	if t.server != nil {
		errs = append(errs, t.server.Close())
	}
	if t.eng != nil {
		errs = append(errs, t.mem.seal(), t.eng.close())
	}
	if t.dev != nil {
		errs = append(errs, t.dev.Close())
	}
	return errors.Join(errs...)
}

// Connections describes the live connections by ascending id.
func (t *Transport) Connections() []ConnInfo {
	out := []ConnInfo{}
	for _, c := range t.live() {
		out = append(out, c.Info())
	}
	return out
}

func (t *Transport) live() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Conn, 0, len(t.conns))
	for _, c := range t.conns {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
	return list
}

// Addresses returns the hosts that Listen is usually given: the device's IPv4
// addresses and 127.0.0.1; for the soft provider only the latter.
func (t *Transport) Addresses() []string {
	out := []string{}
	if t.provider != "soft" {
		gids, err := t.dev.GIDs(t.port)
		if err != nil {
			t.log.Warn("list addresses", "device", t.device, "err", err)
		}
		for _, g := range gids {
			if a, ok := g.GID.IPv4(); ok && !slices.Contains(out, a.String()) {
				out = append(out, a.String())
			}
		}
	}
	if !slices.Contains(out, "127.0.0.1") {
		out = append(out, "127.0.0.1")
	}
	return out
}

// pickGID returns the GID index for a connection whose control channel has the
// local address a.
func (t *Transport) pickGID(a net.Addr) (int, error) {
	if t.gidIndex != nil {
		return *t.gidIndex, nil
	}
	gids, err := t.dev.GIDs(t.port)
	if err != nil {
		return 0, err
	}
	best, rank := -1, 0
	for _, g := range gids {
		r := 1 // any address is better than none
		if ip, ok := g.GID.IPv4(); ok && g.RoCEv2 {
			r = 2
			if tcp, isTCP := a.(*net.TCPAddr); isTCP && tcp.AddrPort().Addr().Unmap() == ip {
				r = 3
			}
		}
		if r > rank {
			best, rank = g.Index, r
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("%s: port %d has no address", t.device, t.port)
	}
	return best, nil
}

// now is the time since the transport was opened, never 0.
func (t *Transport) now() time.Duration { return time.Since(t.opened) + 1 }

// enlist makes c known, unless the transport was closed.
func (t *Transport) enlist(c *Conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.conns[c.id] = c
	return nil
}

// bury takes c, which ended, from the live ones; it may hold messages to be read
// until its Close.
func (t *Transport) bury(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c.id)
	delete(t.tried, c.id)
	t.ended[c.id] = c
}

// Close closes all listeners and connections and the control socket.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	ls := slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	t.stop()
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.Close())
	}
	t.hellos.Wait()
	t.mu.Lock() // nothing joins them any more
	conns := slices.AppendSeq(slices.Collect(maps.Values(t.conns)), maps.Values(t.ended))
	t.mu.Unlock()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, c := range conns {
		wg.Go(func() {
			err := c.Close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(append(errs, t.release())...)
}

// Close waits until what was sent is in the peer's memory and says farewell. It
// returns nil when every message that Send was given is there (or, when the peer had
// closed first, was received by its program), else an error that wraps a *ConnError with
// the counts: those that Send has refused meanwhile are among those that were not
// delivered. A peer that stalls holds it for 5 seconds at most; what has not arrived then
// is unknown. What the peer sent and nobody received is dropped.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() { close(c.closing) })
	<-c.gone
	c.t.mu.Lock()
	delete(c.t.ended, c.id)
	c.t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, s := range append(slices.Clone(c.retired), c.cur) {
		for _, l := range s.lanes {
			l.fhead = l.ftail
			errs = append(errs, l.freeIfRead())
		}
	}
	var ce *ConnError
	if err := c.connError(); errors.As(err, &ce) && ce.NotDelivered+ce.Unknown > 0 {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
