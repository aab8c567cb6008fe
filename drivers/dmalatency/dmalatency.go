// Package dmalatency is the driver of the machine-wide bound on the wake-up from idle
// (/dev/cpu_dma_latency, Documentation/power/pm_qos_interface.rst). The kernel keeps a
// bound only while the descriptor that asked for it is open, so that a command, which
// ends, cannot set it: a daemon holds it with a Holder, and everybody else sees what the
// daemon holds, or that only a daemon could.
package dmalatency

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// Device is the kernel's file.
const Device = "/dev/cpu_dma_latency"

// Machine is the name of the one target: the bound is for all CPUs.
const Machine = "machine"

// NoLimit is the value of a bound that is not held. Others may hold one nevertheless.
const NoLimit = "no limit"

// maxLatency is the largest bound, the kernel's s32 in microseconds.
const maxLatency = (1<<31 - 1) * time.Microsecond

// Driver implements drivers.Driver for param.DMALatency. The target's incarnation is the
// process that holds the bound, or would: what a daemon wrote is history after its end.
type Driver struct {
	fs     sysfs.FS
	procs  procs.Table
	runDir string
	holder *Holder // nil in all but a daemon
}

// New returns the driver for a node's tree, processes and run directory. A daemon of that
// node gives its holder; everybody else nil.
func New(f sysfs.FS, table procs.Table, runDir string, h *Holder) *Driver {
	return &Driver{fs: f, procs: table, runDir: runDir, holder: h}
}

var _ drivers.Driver = (*Driver)(nil)

// Kind implements drivers.Driver.
func (d *Driver) Kind() param.Kind { return param.DMALatency }

// device is the path of the kernel's file, or of what stands for it.
func (d *Driver) device() string {
	if d.holder != nil {
		return d.holder.path
	}
	return Device
}

// Discover implements drivers.Driver.
func (d *Driver) Discover(ctx context.Context, _ param.Scope) ([]param.Target, error) {
	if _, err := d.fs.Stat(d.device()); err != nil {
		return nil, fmt.Errorf("%s: %w", d.device(), drivers.ErrUnavailable)
	}
	id, _, _, err := d.now()
	if err != nil {
		return nil, err
	}
	return []param.Target{{Kind: param.DMALatency, Name: Machine, Incarnation: id}}, ctx.Err()
}

// now is what is held, and by which process; held is false when nothing is.
func (d *Driver) now() (incarnation string, us int32, held bool, err error) {
	if d.holder != nil {
		us, held = d.holder.Value()
		return d.holder.self.key(), us, held, nil
	}
	a, held, err := heard(d.runDir, d.procs)
	if !held || err != nil {
		return "", 0, false, err
	}
	return a.key(), a.US, true, nil
}

// Read implements drivers.Driver.
func (d *Driver) Read(_ context.Context, t param.Target) ([]param.Setting, error) {
	s, err := d.read(t)
	if err != nil {
		return nil, err
	}
	return []param.Setting{s}, nil
}

func (d *Driver) read(t param.Target) (param.Setting, error) {
	id, us, held, err := d.now()
	if err != nil {
		return param.Setting{}, err
	}
	if t.Name != Machine || t.Incarnation != id {
		return param.Setting{}, fmt.Errorf("%.40q held by %.40q: %w", t.Name, t.Incarnation, drivers.ErrGone)
	}
	s := param.Setting{ID: param.DMAMaxLatency, Value: param.Text(NoLimit)}
	if held {
		s.Value = param.Text(strconv.Itoa(int(us)) + "us")
	}
	switch {
	case d.holder != nil:
		s.Note = d.holder.note()
	case held:
		s.Deferred = fmt.Sprintf("rdmatune reconcile (process %s) holds it", id)
	default:
		s.Deferred = "only rdmatune reconcile can hold it: the kernel drops it when its holder exits"
	}
	return s, nil
}

// Apply implements drivers.Driver. Without a holder it is ErrDeferred.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, _ param.Order) ([]param.Setting, error) {
	now, err := d.read(t)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return []param.Setting{now}, err
	}
	for _, c := range cs {
		us, hold, err := bound(c)
		switch {
		case err != nil:
		case c.New == now.Value:
			continue
		case d.holder == nil:
			err = fmt.Errorf("%s: %w", now.Deferred, drivers.ErrDeferred)
		case hold:
			err = d.holder.Hold(us)
		default:
			d.holder.Release()
		}
		if err != nil {
			return d.after(t, err)
		}
		if now, err = d.read(t); err != nil {
			return nil, err
		}
		if now.Value != c.New {
			return []param.Setting{now}, fmt.Errorf("%s: asked for %s, the kernel has %s", d.device(), c.New, now.Value)
		}
	}
	return []param.Setting{now}, nil
}

// after is what is in force after an error.
func (d *Driver) after(t param.Target, err error) ([]param.Setting, error) {
	now, rerr := d.read(t)
	if rerr != nil {
		return nil, err
	}
	return []param.Setting{now}, err
}

// bound is what a change asks for; hold is false where nothing is to be held.
func bound(c param.Change) (us int32, hold bool, err error) {
	text, ok := c.New.AsText()
	if c.ID == param.DMAMaxLatency && text == NoLimit {
		return 0, false, nil
	}
	d, err := param.ParseDuration(text)
	if c.ID != param.DMAMaxLatency || !ok || err != nil || d < 0 || d > maxLatency || d%time.Microsecond != 0 {
		return 0, false, fmt.Errorf("%s cannot be %s", c.ID, c.New)
	}
	return int32(d / time.Microsecond), true, nil
}
