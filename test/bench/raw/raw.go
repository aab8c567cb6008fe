// Package raw measures drivers/verbs with nothing on top: one queue pair, posting
// and spinning. What it shows is the floor of whatever is built on the binding.
package raw

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A Job is what both ends do. The client tells the server.
type Job struct {
	Size   int
	Count  int  // round trips, or messages of a stream
	Warmup int  // as many more before, that are not counted
	Stream bool // one way at full speed instead of round trips
	Write  bool // RDMA write instead of send; a Stream only
	Inline bool // where the device grants it
	Busy   int  // polls of one crossing into C
	// Signal is how many sends one completion stands for in round trips. At 1 a
	// message goes out only when the one before is complete, as perftest does it.
	Signal int
}

// Bounds of a Job, which comes from the network.
const (
	maxSize  = 64 << 20
	maxCount = 100_000_000
	maxBusy  = 1_000_000
)

func (j Job) check() error {
	if j.Size < 1 || j.Size > maxSize || j.Count < 1 || j.Count > maxCount || j.Warmup < 0 || j.Warmup > maxCount ||
		j.Busy < 1 || j.Busy > maxBusy || !j.Stream && (j.Signal < 1 || j.Signal > j.depth()/2) || j.Write && !j.Stream {
		return fmt.Errorf("job %+v is out of bounds", j)
	}
	return nil
}

// depth is how many messages of a job are outstanding at most: 8 MiB of them, as
// deep as perftest's streams.
func (j Job) depth() int {
	if !j.Stream {
		return 64
	}
	return max(4, min(128, 8<<20/j.Size))
}

// receives is how many receives a job's end has posted: in a stream several times as
// many as there are messages under way, so that the sender never comes before they are
// posted again.
func (j Job) receives() int {
	if !j.Stream {
		return j.depth()
	}
	return 4 * j.depth()
}

// hello is what the ends tell each other over TCP.
type hello struct {
	Endpoint verbs.Endpoint
	MTU      int
	Addr     uint64 // of the memory, for RDMA writes
	RKey     uint32
}

// An end is one side: a queue pair with its memory.
type end struct {
	job  Job
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	mem  []byte // depth slots to receive into, and one to send from
	mr   verbs.MR
	qp   verbs.QP
	peer hello

	send    []verbs.SendWR
	recv    []verbs.RecvWR
	wc      [64]verbs.WC
	inline  bool
	pending int // sends since the last signaled one
	signals int // completions of sends that are to come
	spent   int // receives taken since they were last posted
	yield   verbs.Yielder
}

func (e *end) close() error {
	var errs []error
	for _, c := range []interface{ Close() error }{e.qp, e.mr, e.cq, e.pd, e.dev} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if e.mem != nil {
		errs = append(errs, verbs.FreeMem(e.mem))
	}
	return errors.Join(errs...)
}

// newEnd sets up a queue pair on the device port that has the address.
func newEnd(p verbs.Provider, device string, addr netip.Addr, job Job) (_ *end, gid, mtu int, err error) {
	e := &end{job: job}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.dev, err = p.Open(device); err != nil {
		return nil, 0, 0, err
	}
	port, err := e.dev.Port(1)
	if err != nil {
		return nil, 0, 0, err
	}
	gids, err := e.dev.GIDs(1)
	if err != nil {
		return nil, 0, 0, err
	}
	gid = -1
	for _, g := range gids {
		if a, ok := g.GID.IPv4(); ok && a == addr && g.RoCEv2 {
			gid = g.Index
		}
	}
	if gid < 0 {
		return nil, 0, 0, fmt.Errorf("%s has no RoCE v2 address %s", device, addr)
	}
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return nil, 0, 0, err
	}
	depth := job.depth()
	if e.cq, err = e.dev.NewCQ(depth+job.receives()+1, nil, 0); err != nil {
		return nil, 0, 0, err
	}
	if e.mem, err = verbs.AllocMem((depth + 1) * job.Size); err != nil {
		return nil, 0, 0, err
	}
	if e.mr, err = e.pd.RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return nil, 0, 0, err
	}
	want := verbs.QPCap{SendWR: depth, RecvWR: job.receives()}
	if job.Inline {
		want.Inline = min(job.Size, 220) // what perftest asks of hardware
	}
	if e.qp, err = e.pd.CreateQP(verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Cap: want}); err != nil {
		return nil, 0, 0, err
	}
	e.inline = job.Inline && job.Size <= e.qp.Cap().Inline
	return e, gid, port.ActiveMTU, e.qp.Init(1)
}

// A link is the TCP connection by which the ends agree.
type link struct {
	net.Conn
	*json.Encoder
	*json.Decoder
}

func newLink(c net.Conn) link { return link{c, json.NewEncoder(c), json.NewDecoder(c)} }

func (l link) addr() netip.Addr {
	return l.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// meet exchanges hellos and connects.
func (e *end) meet(c link, gid, mtu int) error {
	local, err := e.qp.Local(1, gid)
	if err != nil {
		return err
	}
	e.prepare()
	if !e.job.Write {
		if _, err := e.qp.PostRecv(e.recv); err != nil {
			return err
		}
	}
	if err := c.Encode(hello{local, mtu, e.mr.Addr(), e.mr.RKey()}); err != nil {
		return err
	}
	if err := c.Decode(&e.peer); err != nil {
		return err
	}
	err = e.qp.Connect(verbs.ConnectAttr{
		Port: 1, GIDIndex: gid, Local: local, Remote: e.peer.Endpoint, MTU: min(mtu, e.peer.MTU),
		RNRRetry: 7, RetryCount: 7, TimeoutExp: 14,
	})
	if err != nil {
		return err
	}
	// Nobody sends before both are connected.
	if err := c.Encode(true); err != nil {
		return err
	}
	var ready bool
	return c.Decode(&ready)
}

// prepare fills in the work requests that the loops post again and again.
func (e *end) prepare() {
	depth, size := e.job.depth(), e.job.Size
	e.recv = make([]verbs.RecvWR, e.job.receives())
	for i := range e.recv {
		slot := i % depth // what arrives is not looked at
		e.recv[i] = verbs.RecvWR{ID: uint64(i), Buf: e.mem[slot*size : (slot+1)*size], LKey: e.mr.LKey()}
	}
	e.send = make([]verbs.SendWR, depth)
	for i := range depth {
		e.send[i] = verbs.SendWR{Buf: e.mem[depth*size:], LKey: e.mr.LKey(), Inline: e.inline}
	}
}

// Pin binds the calling goroutine's thread to a CPU; -1 leaves it alone. Only the
// thread that moves messages is pinned: the runtime's others keep away from it.
func Pin(cpu int) error {
	if cpu < 0 {
		return nil
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to cpu %d: %w", cpu, err)
	}
	return nil
}

// Serve answers one client on ln.
func Serve(p verbs.Provider, device string, ln net.Listener) (err error) {
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	c := newLink(conn)
	var job Job
	if err := c.Decode(&job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := job.check(); err != nil {
		return err
	}
	e, gid, mtu, err := newEnd(p, device, c.addr(), job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.meet(c, gid, mtu); err != nil {
		return err
	}
	switch {
	case job.Write:
	case job.Stream:
		err = e.drain(job.Warmup + job.Count)
	default:
		err = e.echo(job.Warmup + job.Count)
	}
	if err != nil {
		return err
	}
	// The client hangs up when it is done: until then the memory stays.
	var b [1]byte
	c.Read(b[:])
	return nil
}

// Connect runs job against the server at addr and returns the round trips, or the
// time that the whole stream took as the only one.
func Connect(p verbs.Provider, device string, addr string, job Job) (_ []time.Duration, err error) {
	if err := job.check(); err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := newLink(conn)
	if err := c.Encode(job); err != nil {
		return nil, err
	}
	e, gid, mtu, err := newEnd(p, device, c.addr(), job)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.meet(c, gid, mtu); err != nil {
		return nil, err
	}
	if job.Stream {
		if err := e.stream(job.Warmup); err != nil {
			return nil, err
		}
		start := time.Now()
		err := e.stream(job.Count)
		return []time.Duration{time.Since(start)}, err
	}
	return e.rounds(job.Warmup, job.Count)
}
