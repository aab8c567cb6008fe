// Package irq is the driver of interrupt affinity: it says which CPUs a device's
// interrupt vectors are asked to go to (Documentation/core-api/irq/irq-affinity.rst).
package irq

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/interrupts"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// Driver implements drivers.Driver for param.IRQ. A target is a vector of a PCI
// function ("0000:18:00.0/3"): interrupt numbers change hands when a driver is
// bound again, and are never used as a name.
type Driver struct{ fs sysfs.FS }

// New returns the driver for the tree f.
func New(f sysfs.FS) *Driver { return &Driver{fs: f} }

var _ drivers.Driver = (*Driver)(nil)

// What is said of an interrupt that takes no affinity.
const (
	managedNote = "kernel-managed: the kernel places this interrupt itself"
	unusedNote  = "no handler is installed: the device does not use this vector now"
)

// Kind implements drivers.Driver.
func (d *Driver) Kind() param.Kind { return param.IRQ }

// Discover implements drivers.Driver.
func (d *Driver) Discover(ctx context.Context, s param.Scope) ([]param.Target, error) {
	wanted := map[string]map[int]bool{}
	for _, key := range s.Targets {
		function, index, err := interrupts.ParseKey(key)
		if err != nil {
			return nil, err
		}
		if wanted[function] == nil {
			wanted[function] = map[int]bool{}
		}
		wanted[function][index] = true
	}
	targets := []param.Target{}
	if len(wanted) == 0 {
		return targets, ctx.Err()
	}
	// A capture may lack it as a whole. Where a single interrupt's is missing there, nobody
	// handles that one.
	if !d.fs.IsDir("/proc/irq") {
		return nil, errors.New("affinities cannot be read: /proc/irq is not there")
	}
	rows, err := drivers.Once(ctx, tableKey{}, func() ([]interrupts.Row, error) { return interrupts.Table(d.fs) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for function, indices := range wanted {
		incarnation := d.incarnation(function)
		for _, v := range interrupts.Vectors(d.fs, function, rows) {
			if indices[v.Index] {
				targets = append(targets, param.Target{Kind: param.IRQ, Name: v.Key(), Incarnation: incarnation, Label: v.Action})
			}
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("interrupts of %s: %w", strings.Join(s.Targets[:min(len(s.Targets), 3)], ", "), drivers.ErrUnavailable)
	}
	slices.SortFunc(targets, compare)
	return targets, ctx.Err()
}

// tableKey is of the table of interrupts, megabytes of text on a large machine.
type tableKey struct{}

// compare orders targets by function, then by index.
func compare(a, b param.Target) int {
	fa, ia, _ := interrupts.ParseKey(a.Name)
	fb, ib, _ := interrupts.ParseKey(b.Name)
	if c := strings.Compare(fa, fb); c != 0 {
		return c
	}
	return ia - ib
}

// incarnation is another one after every bind of the function's driver, which makes
// the msi_irqs directory anew and gives all vectors their default affinity.
func (d *Driver) incarnation(function string) string {
	id := d.fs.Ident(interrupts.MSIDir(function))
	if id == 0 {
		return ""
	}
	boot, err := d.fs.ReadString("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return strconv.FormatUint(id, 16)
	}
	return boot[:min(len(boot), 8)] + "-" + strconv.FormatUint(id, 16)
}

// numbers returns the interrupt number that each of ts has now, or why it has none. A
// function's vectors are listed once.
func (d *Driver) numbers(ts []param.Target) (numbers []int, errs []error) {
	numbers, errs = make([]int, len(ts)), make([]error, len(ts))
	functions := map[string]function{}
	for i, t := range ts {
		name, index, err := interrupts.ParseKey(t.Name)
		if err != nil {
			errs[i] = err
			continue
		}
		f, known := functions[name]
		if !known {
			f = d.function(name)
			functions[name] = f
		}
		switch {
		case t.Incarnation != f.incarnation:
			errs[i] = fmt.Errorf("interrupt %s: its driver was bound anew: %w", t.Name, drivers.ErrGone)
		case f.err != nil:
			errs[i] = fmt.Errorf("interrupt %s: %w: %w", t.Name, drivers.ErrGone, f.err)
		case index >= len(f.vectors):
			errs[i] = fmt.Errorf("interrupt %s: %w", t.Name, drivers.ErrGone)
		default:
			numbers[i] = f.vectors[index].Number
		}
	}
	return numbers, errs
}

// A function is a PCI function's vectors as they are now.
type function struct {
	incarnation string
	vectors     []interrupts.Vector
	err         error // why they are not known
}

func (d *Driver) function(name string) function {
	f := function{incarnation: d.incarnation(name), vectors: interrupts.Vectors(d.fs, name, nil)}
	if len(f.vectors) == 0 {
		var rows []interrupts.Row
		if rows, f.err = interrupts.Table(d.fs); f.err == nil {
			f.vectors = interrupts.Vectors(d.fs, name, rows)
		}
	}
	return f
}

func (d *Driver) number(t param.Target) (int, error) {
	numbers, errs := d.numbers([]param.Target{t})
	return numbers[0], errs[0]
}

var (
	_ drivers.Filer      = (*Driver)(nil)
	_ drivers.ManyReader = (*Driver)(nil)
)

// Files implements drivers.Filer.
func (d *Driver) Files(ts []param.Target) []map[param.ID]string {
	out := make([]map[param.ID]string, len(ts))
	numbers, errs := d.numbers(ts)
	for i, n := range numbers {
		if errs[i] == nil {
			out[i] = map[param.ID]string{param.IRQCPUs: interrupts.AffinityFile(n)}
		}
	}
	return out
}

// Read implements drivers.Driver.
func (d *Driver) Read(ctx context.Context, t param.Target) ([]param.Setting, error) {
	r := d.ReadMany(ctx, []param.Target{t})[0]
	return r.Settings, r.Err
}

// ReadMany implements drivers.ManyReader.
func (d *Driver) ReadMany(ctx context.Context, ts []param.Target) []drivers.Reading {
	out := make([]drivers.Reading, len(ts))
	numbers, errs := d.numbers(ts)
	for i, n := range numbers {
		if out[i].Err = errs[i]; out[i].Err == nil {
			out[i].Err = ctx.Err()
		}
		if out[i].Err == nil {
			out[i].Settings = []param.Setting{d.read(n)}
		}
	}
	return out
}

// read returns the affinity asked for interrupt n. What takes the interrupt now is
// not a value: it may follow only when the interrupt next fires.
func (d *Driver) read(n int) param.Setting {
	s := param.Setting{ID: param.IRQCPUs}
	asked, managed, err := interrupts.Affinity(d.fs, n)
	if errors.Is(err, fs.ErrNotExist) {
		// The kernel makes /proc/irq/N when the first handler is installed, such as when
		// a netdev is brought up.
		s.Value, s.Fixed, s.Note = param.Unknown(unusedNote), true, unusedNote
		return s
	}
	if err != nil {
		s.Value = param.Unknown(err.Error())
		return s
	}
	if interrupts.Idle(d.fs, n) {
		s.Value, s.Fixed, s.Note = param.Unknown(unusedNote), true, unusedNote
		return s
	}
	s.Value = param.Text(cpulist.Format(asked))
	if managed {
		s.Fixed, s.Note = true, managedNote
		return s
	}
	if taken, ok := interrupts.Effective(d.fs, n); ok && !taken.IsSubsetOf(asked) {
		s.Note = "effective pending: CPU " + cpulist.Format(taken) + " still takes it"
	}
	return s
}

// Apply implements drivers.Driver.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, _ param.Order) ([]param.Setting, error) {
	n, err := d.number(t)
	if err != nil {
		return nil, err
	}
	for _, c := range cs {
		if err = ctx.Err(); err == nil {
			err = d.apply(ctx, t, n, c)
		}
		if err != nil {
			break
		}
	}
	now := d.read(n)
	if errors.Is(err, drivers.ErrUnavailable) && !now.Fixed {
		now.Fixed, now.Note = true, managedNote
	}
	return []param.Setting{now}, err
}

func (d *Driver) apply(ctx context.Context, t param.Target, n int, c param.Change) error {
	list, ok := c.New.AsText()
	set, err := cpulist.ParseKernel(list)
	if c.ID != param.IRQCPUs || !ok || err != nil || set.IsEmpty() {
		return fmt.Errorf("interrupt %s: cannot have %s = %s", t.Name, c.ID, c.New)
	}
	canonical := param.Text(cpulist.Format(set))
	before := d.read(n)
	// A plan that asks for what is there has seen something else.
	moving := func() bool { return d.read(n).Value != canonical }
	if before.Value == canonical && !interrupts.Again(ctx, moving) {
		return nil
	}
	if before.Note == unusedNote { // not for good: the next handler brings it back
		return fmt.Errorf("interrupt %s: %s: %w", t.Name, unusedNote, drivers.ErrGone)
	}
	if before.Fixed {
		return fmt.Errorf("interrupt %s: %s: %w", t.Name, before.Note, drivers.ErrUnavailable)
	}
	if err := d.fs.WriteFile(interrupts.AffinityFile(n), cpulist.Format(set)); err != nil {
		return fmt.Errorf("interrupt %s: set affinity to %s: %w", t.Name, cpulist.Format(set), d.explain(set, err))
	}
	if got := d.settle(ctx, n, canonical); got != canonical {
		return fmt.Errorf("interrupt %s: asked for CPUs %s, the kernel has %s", t.Name, canonical, got)
	}
	return nil
}

// settleTime bounds the wait for an affinity to read as written. While the kernel
// moves a vector its file shows the affinity before, for as long as that CPU is held
// up: milliseconds in a virtual machine.
const settleTime = time.Second

// settle waits until interrupt n is asked to go to want and returns where it is.
func (d *Driver) settle(ctx context.Context, n int, want param.Value) param.Value {
	deadline := time.Now().Add(settleTime)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, settleTime/20) {
		got := d.read(n).Value
		if got == want || time.Now().After(deadline) {
			return got
		}
		select {
		case <-ctx.Done():
			return got
		case <-time.After(pause):
		}
	}
}

// explain adds what the kernel means by the errno of a refused affinity.
func (d *Driver) explain(set cpulist.Set, err error) error {
	online, onlineErr := d.online()
	offline := onlineErr == nil && set.Intersection(online).IsEmpty()
	switch {
	case offline && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EIO)):
		return fmt.Errorf("none of the CPUs is online: %w", err)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EPERM):
		// EIO before Linux 6.12, EPERM since. Interrupt chips without affinity say EIO too.
		return fmt.Errorf("%s: %w: %w", managedNote, drivers.ErrUnavailable, err)
	case errors.Is(err, syscall.ERANGE):
		return fmt.Errorf("it names CPUs that this machine cannot have: %w", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("the CPUs have no interrupt vector left: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", drivers.ErrGone, err)
	}
	return err
}

func (d *Driver) online() (cpulist.Set, error) {
	text, err := d.fs.ReadString("/sys/devices/system/cpu/online")
	if err != nil {
		return cpulist.New(), err
	}
	return cpulist.ParseKernel(text)
}
