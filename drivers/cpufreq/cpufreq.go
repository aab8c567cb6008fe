// Package cpufreq is the driver of a CPU's clock: the governor, the limits and the
// energy preference of cpufreq policies (Documentation/admin-guide/pm/cpufreq.rst),
// the machine's turbo switch, and how deep a CPU may sleep.
package cpufreq

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
	"github.com/rdmatune/rdmatune/internal/cpupolicy"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// Driver implements drivers.Driver for param.Frequency. A target is a policy
// ("policy3"), a CPU ("cpu3") or the machine's "turbo".
type Driver struct{ fs sysfs.FS }

// New returns the driver for the tree f.
func New(f sysfs.FS) *Driver { return &Driver{fs: f} }

var _ drivers.Driver = (*Driver)(nil)

// files tells in which file of a policy each parameter is.
var files = map[param.ID]string{
	param.Governor: "scaling_governor",
	param.MinKHz:   "scaling_min_freq",
	param.MaxKHz:   "scaling_max_freq",

	param.EnergyPreference: "energy_performance_preference",
}

// ids are the parameters of a policy in the order in which they are written: a
// governor can fix the energy preference.
var ids = []param.ID{param.Governor, param.MinKHz, param.MaxKHz, param.EnergyPreference}

// Kind implements drivers.Driver.
func (d *Driver) Kind() param.Kind { return param.Frequency }

// Discover implements drivers.Driver.
func (d *Driver) Discover(ctx context.Context, s param.Scope) ([]param.Target, error) {
	policies := cpupolicy.List(d.fs)
	targets := []param.Target{}
	for _, name := range s.Targets {
		if strings.HasPrefix(name, "policy") {
			continue
		}
		k, err := d.findKnob(name)
		switch {
		case errors.Is(err, drivers.ErrUnavailable):
			continue
		case err != nil:
			return nil, err
		}
		targets = append(targets, k.target())
	}
	if len(policies) == 0 && len(targets) == 0 {
		return nil, fmt.Errorf("cpufreq: %w", drivers.ErrUnavailable)
	}
	for _, p := range policies {
		if slices.Contains(s.Targets, p.Name) {
			targets = append(targets, d.target(p))
		}
	}
	return targets, ctx.Err()
}

func (d *Driver) target(p cpupolicy.Policy) param.Target {
	t := param.Target{Kind: param.Frequency, Name: p.Name}
	if cpus, err := cpupolicy.CPUs(d.fs, p.Dir, "affected_cpus"); err == nil {
		t.Label = "CPUs " + cpulist.Format(cpus)
	}
	// The directory is made anew when the cpufreq driver is loaded again, which also
	// resets what the policy had.
	if id := d.fs.Ident(p.Dir); id != 0 {
		t.Incarnation = strconv.FormatUint(id, 16)
	}
	return t
}

// policy returns the policy of t, ErrGone when it is not the same any more.
func (d *Driver) policy(t param.Target) (cpupolicy.Policy, error) {
	p, err := cpupolicy.Find(d.fs, t.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("%s: %w", t.Name, drivers.ErrGone)
	}
	if err == nil && t.Incarnation != d.target(p).Incarnation {
		return p, fmt.Errorf("%s: the cpufreq driver was loaded anew: %w", t.Name, drivers.ErrGone)
	}
	return p, err
}

var _ drivers.Filer = (*Driver)(nil)

// Files implements drivers.Filer.
func (d *Driver) Files(ts []param.Target) []map[param.ID]string {
	out := make([]map[param.ID]string, len(ts))
	for i, t := range ts {
		if !strings.HasPrefix(t.Name, "policy") {
			if k, err := d.findKnob(t.Name); err == nil {
				out[i] = map[param.ID]string{k.id: k.file}
			}
			continue
		}
		p, err := d.policy(t)
		if err != nil {
			continue
		}
		out[i] = map[param.ID]string{}
		for id, name := range files {
			if file := p.Dir + "/" + name; d.fs.Exists(file) {
				out[i][id] = file
			}
		}
	}
	return out
}

// Read implements drivers.Driver.
func (d *Driver) Read(_ context.Context, t param.Target) ([]param.Setting, error) {
	if !strings.HasPrefix(t.Name, "policy") {
		k, err := d.findKnob(t.Name)
		if errors.Is(err, drivers.ErrUnavailable) {
			return nil, fmt.Errorf("%s: %w", t.Name, drivers.ErrGone)
		}
		if err != nil {
			return nil, err
		}
		return d.readKnob(k), nil
	}
	p, err := d.policy(t)
	if err != nil {
		return nil, err
	}
	return d.read(p), nil
}

func (d *Driver) read(p cpupolicy.Policy) []param.Setting {
	settings := make([]param.Setting, 0, len(ids))
	for _, id := range ids {
		s := param.Setting{ID: id, Value: d.value(p, id)}
		if id == param.EnergyPreference && !d.fs.Exists(p.Dir+"/"+files[id]) {
			s.Fixed, s.Note = true, "not available here: the cpufreq driver has no energy preference"
			s.Value = param.Unknown(s.Note)
		}
		settings = append(settings, s)
	}
	return settings
}

// value reads one parameter. An empty governor is one that was never set; values in
// angle brackets are the kernel's words for what it does not know.
func (d *Driver) value(p cpupolicy.Policy, id param.ID) param.Value {
	file := p.Dir + "/" + files[id]
	text, err := d.fs.ReadString(file)
	switch {
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENODEV):
		return param.Unknown("its CPUs are offline")
	case err != nil:
		return param.Unknown(err.Error())
	case text == "" && id == param.Governor:
		return param.Absent()
	case len(text) > 0 && text[0] == '<':
		return param.Unknown(files[id] + " is " + strconv.Quote(text))
	case id == param.Governor, id == param.EnergyPreference:
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '(' }) {
			return param.Unknown(fmt.Sprintf("%s is %.40q", files[id], text)) // no name that could be written back
		}
		return param.Text(text)
	}
	khz, err := strconv.ParseInt(text, 10, 64)
	if err != nil || khz <= 0 {
		return param.Unknown(fmt.Sprintf("%s is %.40q", files[id], text))
	}
	return param.Int(khz)
}

// Apply implements drivers.Driver. What o wants beside the changes is held as well:
// moving one limit can bring back a request for the other that it had hidden.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, o param.Order) ([]param.Setting, error) {
	if !strings.HasPrefix(t.Name, "policy") {
		return d.applyKnob(t, cs)
	}
	p, err := d.policy(t)
	if err != nil {
		return nil, err
	}
	err = d.apply(ctx, p, cs, o.Want)
	return d.read(p), err
}

func (d *Driver) apply(ctx context.Context, p cpupolicy.Policy, cs []param.Change, also []param.Setting) error {
	wanted := map[param.ID]param.Value{}
	for _, c := range cs {
		if _, ok := files[c.ID]; !ok {
			return fmt.Errorf("%s: no parameter %s", p.Name, c.ID)
		}
		if !writable(c.ID, c.New) {
			return fmt.Errorf("%s: %s cannot be set to %s: %w", p.Name, c.ID, c.New, drivers.ErrUnavailable)
		}
		wanted[c.ID] = c.New
	}
	for _, s := range also {
		_, ours := files[s.ID]
		if _, given := wanted[s.ID]; ours && !given && writable(s.ID, s.Value) {
			wanted[s.ID] = s.Value
		}
	}
	// A request that was clamped when it was made becomes real once the limit that
	// clamped it moves. A second pass then writes what the first found in force.
	for pass := range 2 {
		var err error
		for _, id := range d.order(p, wanted) {
			if ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			// One that is refused keeps nothing else from being restored.
			err = errors.Join(err, d.write(p, id, wanted[id]))
		}
		if err != nil {
			return err
		}
		err = d.settle(ctx, p, wanted)
		if err == nil || pass > 0 {
			return err
		}
	}
	return nil
}

// settleTime bounds the wait for a limit to come into force. The kernel's store is a
// request: since Linux 5.4 a work item brings the policy in line with it, most often
// within a millisecond, but after the write has returned.
const settleTime = time.Second

// settle waits until what is in force is what was asked, and says what is not when
// that does not come to pass.
func (d *Driver) settle(ctx context.Context, p cpupolicy.Policy, wanted map[param.ID]param.Value) error {
	deadline := time.Now().Add(settleTime)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, settleTime/20) {
		err := d.verify(p, wanted)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// writable reports whether v is a value that the kernel can be given. The value of
// a policy that had none cannot be put back.
func writable(id param.ID, v param.Value) bool {
	if id == param.Governor || id == param.EnergyPreference {
		text, ok := v.AsText()
		return ok && text != ""
	}
	khz, ok := v.AsInt()
	return ok && khz > 0
}

// order returns what is to be written: the governor, then the limits so that the
// lower never passes the upper, which kernels before 5.4 refuse: the upper first
// when it rises, the lower first otherwise.
func (d *Driver) order(p cpupolicy.Policy, wanted map[param.ID]param.Value) []param.ID {
	order := slices.Clone(ids)
	if upper, ok := wanted[param.MaxKHz].AsInt(); ok {
		if now, ok := d.value(p, param.MaxKHz).AsInt(); ok && upper > now {
			order[1], order[2] = order[2], order[1]
		}
	}
	return slices.DeleteFunc(order, func(id param.ID) bool { _, ok := wanted[id]; return !ok })
}

// write writes one value unless it is in force.
func (d *Driver) write(p cpupolicy.Policy, id param.ID, v param.Value) error {
	if d.value(p, id) == v {
		return nil
	}
	err := d.fs.WriteFile(p.Dir+"/"+files[id], v.String())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EBUSY) && id == param.EnergyPreference:
		return fmt.Errorf("%s: set %s to %s: the governor %s fixes it: %w", p.Name, files[id], v, d.value(p, param.Governor), err)
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("%s: set %s to %s: its CPUs are offline: %w", p.Name, files[id], v, err)
	case errors.Is(err, syscall.EINVAL) && id == param.Governor:
		offered, _ := d.fs.ReadString(p.Dir + "/scaling_available_governors")
		return fmt.Errorf("%s: set %s to %s: the driver offers %s: %w", p.Name, files[id], v, offered, err)
	}
	return fmt.Errorf("%s: set %s to %s: %w", p.Name, files[id], v, err)
}

// verify compares what is in force with what was asked: the kernel rounds and clamps
// without a word.
func (d *Driver) verify(p cpupolicy.Policy, wanted map[param.ID]param.Value) error {
	for _, s := range d.read(p) {
		if want, ok := wanted[s.ID]; ok && s.Value != want {
			return fmt.Errorf("%s: %s: asked for %s, the kernel has %s", p.Name, files[s.ID],
				param.Format(s.ID, want), param.Format(s.ID, s.Value))
		}
	}
	return nil
}
