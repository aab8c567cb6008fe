// Package pinning is the driver of CPU affinity: it says which CPUs the threads of
// a workload's processes may run on.
package pinning

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"syscall"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/param"
)

// A Node is what the driver needs of the machine.
type Node interface {
	Procs() procs.Table
	Self() int // rdmatune's own process id there, 0 for none
	CPUs() (online, present cpulist.Set, err error)
	Affinity(tid int) (cpulist.Set, error)
	SetAffinity(tid int, set cpulist.Set) error
}

// Named returns the processes that call themselves part of a workload in another
// way than by their environment, such as through the transport's control sockets.
type Named func(ctx context.Context, workload string) ([]int, error)

// Driver implements drivers.Driver for param.Pinning. A target is a process: its
// name is the process id, its incarnation the start time in clock ticks.
type Driver struct {
	node  Node
	named Named
}

// New returns the driver for n. named may be nil.
func New(n Node, named Named) *Driver { return &Driver{node: n, named: named} }

var _ drivers.Driver = (*Driver)(nil)

// Kind implements drivers.Driver.
func (d *Driver) Kind() param.Kind { return param.Pinning }

// Discover returns the processes of s: those that its Match describes, or, without
// one, those whose environment names the workload; and those that Named knows of. With processes that could not be judged for
// want of permission it returns the others and a drivers.ErrIncomplete error.
func (d *Driver) Discover(ctx context.Context, s param.Scope) ([]param.Target, error) {
	table := d.node.Procs()
	pids, err := table.PIDs()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, procs.ErrGone) {
		return nil, fmt.Errorf("processes: there is no /proc: %w", drivers.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	belongs, err := d.belongs(ctx, s, table)
	if err != nil {
		return nil, err
	}
	targets := []param.Target{}
	var denied []int
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if pid == d.node.Self() {
			continue
		}
		ok, err := belongs(pid)
		switch {
		case errors.Is(err, fs.ErrPermission):
			denied = append(denied, pid)
			continue
		case err != nil:
			return nil, err
		case !ok:
			continue
		}
		if t, err := target(table, pid); err == nil {
			targets = append(targets, t)
		}
	}
	slices.SortFunc(targets, func(a, b param.Target) int {
		if len(a.Name) != len(b.Name) {
			return len(a.Name) - len(b.Name)
		}
		return slices.Compare([]byte(a.Name), []byte(b.Name))
	})
	if len(denied) > 0 {
		return targets, fmt.Errorf("%w: %s could not be examined (%w); what of the workload is among them is not seen",
			drivers.ErrIncomplete, processes(denied), fs.ErrPermission)
	}
	return targets, nil
}

// processes names some process ids for a person.
func processes(pids []int) string {
	if len(pids) == 1 {
		return fmt.Sprintf("process %d", pids[0])
	}
	names := ""
	for i, pid := range pids[:min(len(pids), 3)] {
		if i > 0 {
			names += ", "
		}
		names += strconv.Itoa(pid)
	}
	if more := len(pids) - 3; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return "processes " + names
}

// belongs returns the judge of whether a process is one of s. One that names the
// workload to its transport is, whatever its environment lacks for the match.
func (d *Driver) belongs(ctx context.Context, s param.Scope, table procs.Table) (func(int) (bool, error), error) {
	var known []int
	if d.named != nil {
		var err error
		if known, err = d.named(ctx, s.Workload); err != nil {
			return nil, fmt.Errorf("processes that name %s: %w", s.Workload, err)
		}
	}
	return func(pid int) (bool, error) {
		if slices.Contains(known, pid) {
			return true, nil
		}
		return table.Belongs(pid, s.Workload, s.Match)
	}, nil
}

func target(table procs.Table, pid int) (param.Target, error) {
	start, err := table.Start(pid)
	if err != nil {
		return param.Target{}, err
	}
	comm, err := table.Comm(pid)
	if err != nil {
		return param.Target{}, err
	}
	return param.Target{
		Kind: param.Pinning, Name: strconv.Itoa(pid), Incarnation: strconv.FormatUint(start, 10), Label: printable.Line(comm),
	}, nil
}

// process returns the process id of t, ErrGone when it is not that process any more.
func (d *Driver) process(t param.Target) (int, error) {
	pid, err := strconv.Atoi(t.Name)
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("%.40q is not a process id", t.Name)
	}
	start, err := d.node.Procs().Start(pid)
	if errors.Is(err, procs.ErrGone) || err == nil && strconv.FormatUint(start, 10) != t.Incarnation {
		return 0, fmt.Errorf("process %d: %w", pid, drivers.ErrGone)
	}
	return pid, err
}

// Read implements drivers.Driver: one setting for each thread.
func (d *Driver) Read(_ context.Context, t param.Target) ([]param.Setting, error) {
	threads, err := d.threads(t)
	if err != nil {
		return nil, err
	}
	settings := make([]param.Setting, 0, len(threads))
	for _, th := range threads {
		settings = append(settings, param.Setting{ID: param.PinCPUs, Index: th.Key(), Value: param.Text(cpulist.Format(th.CPUs))})
	}
	return settings, nil
}

func (d *Driver) threads(t param.Target) ([]procs.Thread, error) {
	pid, err := d.process(t)
	if err != nil {
		return nil, err
	}
	threads, err := d.node.Procs().Threads(pid)
	if errors.Is(err, procs.ErrGone) {
		return nil, fmt.Errorf("process %d: %w", pid, drivers.ErrGone)
	}
	return threads, err
}

// Apply implements drivers.Driver. A thread that has ended is passed over. When all
// changes give one set, a thread that they do not name but that has the old set of
// one that they do gets it as well: it was born since they were made, and inherited
// that set. An original with CPUs that are offline now is restored as far as the kernel
// takes it, and the error is drivers.ErrPartly; what the machine does not even have is
// not missed.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, _ param.Order) ([]param.Setting, error) {
	err := d.apply(ctx, t, cs)
	now, readErr := d.Read(ctx, t)
	return now, errors.Join(err, readErr)
}

func (d *Driver) apply(ctx context.Context, t param.Target, cs []param.Change) error {
	wanted := make(map[string]wish, len(cs))
	inherited := map[string]bool{} // sets that a newborn thread may have from its parent
	for _, c := range cs {
		list, ok := c.New.AsText()
		set, err := cpulist.ParseKernel(list)
		if c.ID != param.PinCPUs || !ok || err != nil || set.IsEmpty() {
			return fmt.Errorf("process %s: thread %s: cannot have %s = %s", t.Name, c.Index, c.ID, c.New)
		}
		wanted[c.Index] = wish{set, c.Action == param.Restore}
		if old, ok := c.Old.AsText(); ok {
			inherited[old] = true
		}
	}
	// A thread that was not pinned yet may start another at any moment, which then has
	// the old set. Each round pins what the one before missed; with everyone pinned,
	// children inherit the new set.
	const rounds = 8
	var partly error
	for range rounds {
		missed, err := d.round(ctx, t, wanted)
		if errors.Is(err, drivers.ErrPartly) {
			partly = err
		} else if err != nil {
			return err
		}
		common, ok := single(wanted)
		newborn := false
		for _, th := range missed {
			if ok && inherited[cpulist.Format(th.CPUs)] && !th.CPUs.Equals(common.cpus) {
				wanted[th.Key()] = common
				newborn = true
			}
		}
		if !newborn {
			return partly
		}
	}
	return fmt.Errorf("process %s: starts threads faster than they can be pinned", t.Name)
}

// A wish is what a thread shall have.
type wish struct {
	cpus    cpulist.Set
	restore bool // it is an original
}

// round pins the threads of t that are in wanted, and returns the threads, as they
// are afterwards, that are not; also with an ErrPartly error.
func (d *Driver) round(ctx context.Context, t param.Target, wanted map[string]wish) ([]procs.Thread, error) {
	threads, err := d.threads(t)
	if err != nil {
		return nil, err
	}
	var partly error
	for _, th := range threads {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w, ok := wanted[th.Key()]
		if !ok || th.CPUs.Equals(w.cpus) {
			continue
		}
		if err := d.pin(t, th, w); errors.Is(err, drivers.ErrPartly) {
			partly = err
		} else if err != nil {
			return nil, err
		}
	}
	if threads, err = d.threads(t); err == nil {
		err = partly
	}
	return slices.DeleteFunc(threads, func(th procs.Thread) bool { _, ok := wanted[th.Key()]; return ok }), err
}

// single returns one of the entries, if all have the same set.
func single(wanted map[string]wish) (wish, bool) {
	var one wish
	first := true
	for _, w := range wanted {
		if !first && !w.cpus.Equals(one.cpus) {
			return one, false
		}
		one, first = w, false
	}
	return one, !first
}

// pin sets one thread's affinity and reads it back. The start time is checked just
// before: the id may be another thread's by now.
func (d *Driver) pin(t param.Target, th procs.Thread, w wish) error {
	set := w.cpus
	pid, err := d.process(t)
	if err != nil {
		return err
	}
	if start, err := d.node.Procs().ThreadStart(pid, th.TID); errors.Is(err, procs.ErrGone) || err == nil && start != th.Start {
		return nil
	}
	err = d.node.SetAffinity(th.TID, set)
	switch {
	case errors.Is(err, procs.ErrGone):
		return nil
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("process %d: none of the CPUs %s is online and in its cpuset: %w", pid, cpulist.Format(set), err)
	case err != nil:
		return fmt.Errorf("process %d: %w", pid, err)
	}
	got, err := d.node.Affinity(th.TID)
	switch {
	case errors.Is(err, procs.ErrGone):
		return nil
	case err != nil:
		return fmt.Errorf("process %d: %w", pid, err)
	case got.Equals(set):
		return nil
	}
	if missed, ok := d.missed(set, got); ok && w.restore {
		if missed.IsEmpty() {
			return nil
		}
		return fmt.Errorf("process %d: thread %d: restored %w, to CPUs %s: CPUs %s are offline",
			pid, th.TID, drivers.ErrPartly, cpulist.Format(got), cpulist.Format(missed))
	}
	return fmt.Errorf("process %d: thread %d: asked for CPUs %s, the kernel gave %s: the others are offline or not in its cpuset",
		pid, th.TID, cpulist.Format(set), cpulist.Format(got))
}

// missed returns the CPUs of set that the machine has and that the kernel did not give
// since they are offline; not ok when it left out others for another reason.
func (d *Driver) missed(set, got cpulist.Set) (_ cpulist.Set, ok bool) {
	online, present, err := d.node.CPUs()
	if err != nil || !got.Equals(set.Intersection(online)) {
		return cpulist.New(), false
	}
	return set.Intersection(present).Difference(online), true
}
