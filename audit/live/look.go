package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/rdmanl"
	"github.com/rdmatune/rdmatune/node"
)

// initPIDNamespace is the first pid namespace (PROC_PID_INIT_INO of the kernel).
const initPIDNamespace = "pid:[4026531836]"

// Options say what is looked at.
type Options struct {
	// Facts may be nil: chains then lack what follows from them.
	Facts *node.Facts
	// Transports are what control.List found in the node's run directory.
	Transports []control.Process
	// PIDs are processes to show whether they have RDMA resources or not.
	PIDs []int
	// Placement asks for the NUMA nodes of each process's memory, which costs the process.
	Placement bool
}

// Look looks at n.
func Look(ctx context.Context, n *node.Node, o Options) (*View, error) {
	l := &looker{
		node: n, placement: o.Placement, table: n.Procs(), facts: o.Facts, kernel: &rdmanl.Table{}, processes: map[key]*Process{},
		view: &View{FormatVersion: FormatVersion, Notes: []string{}, Problems: []rdmanl.Problem{}, Processes: []Process{}, Devices: []rdmanl.Device{}, Links: []rdmanl.Link{}},
	}
	kernel, err := n.Resources(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		l.view.Unobservable = err.Error()
	default:
		l.kernel, l.known = kernel, true
		l.view.Problems = append(l.view.Problems, kernel.Problems...)
		l.view.Devices = append(l.view.Devices, kernel.Devices...)
		l.view.Links = append(l.view.Links, kernel.Links...)
	}
	l.notes()
	if err := l.resolve(); err != nil {
		return nil, err
	}
	for i := range o.Transports {
		l.transport(&o.Transports[i])
	}
	for _, pid := range o.PIDs {
		l.process(key{pid: pid})
	}
	l.resources()
	for _, k := range slices.SortedFunc(maps.Keys(l.processes), compareKeys) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := l.processes[k]
		if k.pid != 0 && !l.describe(p) {
			continue // it ended meanwhile
		}
		l.finish(p)
		l.view.Processes = append(l.view.Processes, *p)
	}
	return l.view, nil
}

// A key tells entries apart: a process, a kernel module, or nobody known.
type key struct {
	pid    int
	kernel string
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.kernel, b.kernel))
}

type looker struct {
	node      *node.Node
	placement bool
	table     procs.Table
	facts     *node.Facts
	kernel    *rdmanl.Table
	known     bool        // the kernel's lists are there
	owners    map[int]int // thread to process
	view      *View
	processes map[key]*Process
}

// notes says what limits the whole look.
func (l *looker) notes() {
	if ns, err := l.table.Namespace(0, "pid"); err == nil && ns != initPIDNamespace {
		l.view.Notes = append(l.view.Notes, "rdmatune runs in a pid namespace of its own ("+ns+"): the kernel hides the resources of processes outside it")
	}
}

// resolve finds the processes of all threads that the kernel names.
func (l *looker) resolve() error {
	var tids []int
	add := func(o rdmanl.Owner) { tids = append(tids, o.TID) }
	for _, r := range l.kernel.QPs {
		add(r.Owner)
	}
	for _, r := range l.kernel.CQs {
		add(r.Owner)
	}
	for _, r := range l.kernel.MRs {
		add(r.Owner)
	}
	for _, r := range l.kernel.Contexts {
		add(r.Owner)
	}
	var err error
	if l.owners, err = l.table.Processes(tids); errors.Is(err, procs.ErrGone) {
		err = nil
	}
	return err
}

func (l *looker) owner(o rdmanl.Owner) key {
	switch {
	case o.Kernel != "":
		return key{kernel: o.Kernel}
	case l.owners[o.TID] != 0:
		return key{pid: l.owners[o.TID]}
	}
	return key{}
}

func (l *looker) process(k key) *Process {
	p, ok := l.processes[k]
	if !ok {
		p = &Process{PID: k.pid, Comm: k.kernel, Devices: []Use{}}
		switch {
		case k.kernel != "":
			p.Who = "kernel module"
		case k.pid == 0:
			p.Comm, p.Who = "(unknown)", "processes that the kernel does not name: ended, or of another pid namespace"
		}
		l.processes[k] = p
	}
	return p
}

func (p *Process) use(device string) *Use {
	for i := range p.Devices {
		if p.Devices[i].Device == device {
			return &p.Devices[i]
		}
	}
	p.Devices = append(p.Devices, Use{Device: device, QueuePairs: []QueuePair{}})
	return &p.Devices[len(p.Devices)-1]
}

// resources deals out the kernel's lists.
func (l *looker) resources() {
	addresses := map[string]string{} // device and queue pair to the peer's address
	id := func(device string, qpn uint32) string { return device + "/" + strconv.FormatUint(uint64(qpn), 10) }
	for _, c := range l.kernel.CMIDs {
		if c.QP != nil && c.Dst.IsValid() {
			addresses[id(c.Device, *c.QP)] = c.Dst.String()
		}
	}
	type lane struct {
		pid    int
		device string
		qpn    uint32
	}
	ours := map[lane]int{} // index among the use's queue pairs
	for _, p := range l.processes {
		for _, u := range p.Devices {
			for j, q := range u.QueuePairs {
				ours[lane{p.PID, u.Device, q.Number}] = j
			}
		}
	}
	for _, q := range l.kernel.QPs {
		k := l.owner(q.Owner)
		u := l.process(k).use(q.Device)
		if j, ok := ours[lane{k.pid, q.Device, q.Number}]; ok && k.pid != 0 {
			known := &u.QueuePairs[j]
			known.Type, known.State, known.Port = q.Type, q.State, q.Port
			known.Peer = cmp.Or(q.Peer, known.Peer)
			continue
		}
		u.QueuePairs = append(u.QueuePairs, QueuePair{
			Number: q.Number, Peer: q.Peer, PeerAddress: addresses[id(q.Device, q.Number)], Type: q.Type, State: q.State, Port: q.Port,
		})
	}
	for _, r := range l.kernel.CQs {
		count(&l.process(l.owner(r.Owner)).use(r.Device).CQs)
	}
	for _, r := range l.kernel.Contexts {
		count(&l.process(l.owner(r.Owner)).use(r.Device).Contexts)
	}
	for _, r := range l.kernel.MRs {
		u := l.process(l.owner(r.Owner)).use(r.Device)
		count(&u.MRs)
		if u.Registered == nil {
			u.Registered = new(uint64)
		}
		*u.Registered += r.Bytes
	}
}

func count(n **int) {
	if *n == nil {
		*n = new(int)
	}
	**n++
}

// transport enters what a process of rdmatune's transport says of itself.
func (l *looker) transport(t *control.Process) {
	if t.PID == 0 { // of the run directory itself
		l.view.Notes = append(l.view.Notes, t.Err)
		return
	}
	p := l.process(key{pid: t.PID})
	p.Workload = cmp.Or(p.Workload, t.Workload)
	if t.Err != "" {
		p.Err = t.Err
		return
	}
	p.Transports = append(p.Transports, *t)
	u := p.use(t.Device)
	kind := "RC"
	if t.Provider == "soft" {
		kind = "soft"
	}
	for i := range t.Conns {
		c := &t.Conns[i]
		for j := range c.Lanes {
			w := &c.Lanes[j]
			q := QueuePair{
				Number: w.QPN, PeerAddress: c.Peer, Type: kind,
				Connection: &c.ID, Profile: cmp.Or(nonempty(&w.Profile), &c.Profile), Hint: c.Hint, Origin: &c.Origin,
				MaxInline: &w.MaxInline, SendWR: &w.SendWR, RecvWR: &w.RecvWR,
			}
			if w.PeerQPN != 0 {
				q.Peer = &w.PeerQPN
			}
			u.QueuePairs = append(u.QueuePairs, q)
		}
	}
}

// maxText bounds a text that a process gives, in bytes.
const maxText = 4096

// nonempty is text, or nil when it is empty.
func nonempty(text *string) *string {
	if *text == "" {
		return nil
	}
	return text
}

// describe adds what /proc tells of a process; false when it is gone.
func (l *looker) describe(p *Process) bool {
	start, err := l.table.Start(p.PID)
	if err != nil {
		if errors.Is(err, procs.ErrGone) {
			return false
		}
		p.Err = err.Error()
		return true
	}
	p.Start = start
	comm, _ := l.table.Comm(p.PID)
	cmdline, _ := l.table.Cmdline(p.PID)
	p.Comm, p.Cmdline = printable.Clip(comm, maxText), printable.Clip(cmdline, maxText)
	if uid, err := l.table.UID(p.PID); err == nil {
		p.UID = &uid
	}
	for _, kind := range []string{"net", "pid", "mnt"} {
		mine, err := l.table.Namespace(0, kind)
		other, err2 := l.table.Namespace(p.PID, kind)
		if err == nil && err2 == nil && mine != other {
			p.Namespaces = append(p.Namespaces, kind)
		}
	}
	if p.Workload == "" {
		if env, err := l.table.Environ(p.PID); err == nil {
			p.Workload = printable.Clip(env["RDMATUNE_WORKLOAD"], maxText)
		}
	}
	if set, file, err := l.table.CPUSet(p.PID); err == nil && file != "" {
		p.CPUSet = cpulist.Format(set)
	}
	if m, err := l.table.Memory(p.PID); err == nil {
		if l.placement {
			l.table.Place(p.PID, &m)
		}
		p.Memory = &m
	}
	threads, err := l.table.Details(p.PID)
	if errors.Is(err, procs.ErrGone) {
		return false
	}
	if err != nil {
		p.Err = cmp.Or(p.Err, fmt.Sprintf("threads: %v", err))
	}
	p.Threads = listThreads(threads)
	return true
}

// listThreads formats threads and marks those that are confined to less than their
// process.
func listThreads(threads []procs.Detail) []Thread {
	all := cpulist.New()
	for _, th := range threads {
		all = all.Union(th.CPUs)
	}
	out := make([]Thread, len(threads))
	for i, th := range threads {
		out[i] = Thread{TID: th.TID, Comm: printable.Clip(th.Comm, maxText), CPUs: cpulist.Format(th.CPUs), Mems: th.Mems, SelfPinned: !th.CPUs.Equals(all)}
		if th.LastCPU >= 0 {
			out[i].LastCPU = &th.LastCPU
		}
	}
	return out
}

// finish orders a process's devices and adds what needs all of it.
func (l *looker) finish(p *Process) {
	slices.SortFunc(p.Devices, func(a, b Use) int { return cmp.Compare(a.Device, b.Device) })
	for i := range p.Devices {
		u := &p.Devices[i]
		slices.SortFunc(u.QueuePairs, func(a, b QueuePair) int { return cmp.Compare(a.Number, b.Number) })
		if l.known && slices.ContainsFunc(l.kernel.Devices, func(d rdmanl.Device) bool { return d.Name == u.Device }) {
			for _, n := range []**int{&u.CQs, &u.MRs, &u.Contexts} {
				if *n == nil {
					*n = new(int)
				}
			}
			if u.Registered == nil {
				u.Registered = new(uint64)
			}
			l.unlisted(u)
		}
		if p.PID != 0 && len(p.Threads) > 0 {
			u.Chain = l.chain(p, u)
		}
	}
}

// unlisted takes back counts of which the kernel gave no list.
func (l *looker) unlisted(u *Use) {
	for _, pr := range l.kernel.Problems {
		if pr.Device != u.Device {
			continue
		}
		switch pr.What {
		case "completion queues":
			u.CQs = nil
		case "memory regions":
			u.MRs, u.Registered = nil, nil
		case "contexts":
			u.Contexts = nil
		}
	}
}
