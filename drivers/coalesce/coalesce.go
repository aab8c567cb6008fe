// Package coalesce is the driver of a network device's interrupt coalescing. It
// governs the netdev's own channels, not the completion queues of userspace RDMA.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// A Node is what the driver needs of the machine.
type Node interface {
	FS() sysfs.FS
	Coalesce(netdev string) (ethnl.Coalesce, error)
	SetCoalesce(netdev string, want ethnl.Coalesce) error
}

// Driver implements drivers.Driver for param.Coalescing. A target is a netdev; its
// incarnation is the interface index.
type Driver struct{ node Node }

// New returns the driver for n.
func New(n Node) *Driver { return &Driver{node: n} }

var _ drivers.Driver = (*Driver)(nil)

// field is one parameter and how to reach it.
type field struct {
	id   param.ID
	word func(*ethnl.Coalesce) **uint32
	flag func(*ethnl.Coalesce) **bool
}

// fields are the parameters in the order of param.Table.
var fields = []field{
	{id: param.AdaptiveRX, flag: func(c *ethnl.Coalesce) **bool { return &c.AdaptiveRX }},
	{id: param.AdaptiveTX, flag: func(c *ethnl.Coalesce) **bool { return &c.AdaptiveTX }},
	{id: param.RXUsecs, word: func(c *ethnl.Coalesce) **uint32 { return &c.RXUsecs }},
	{id: param.RXFrames, word: func(c *ethnl.Coalesce) **uint32 { return &c.RXFrames }},
	{id: param.TXUsecs, word: func(c *ethnl.Coalesce) **uint32 { return &c.TXUsecs }},
	{id: param.TXFrames, word: func(c *ethnl.Coalesce) **uint32 { return &c.TXFrames }},
}

// get returns the value in c, Absent when the driver does not offer it.
func (f field) get(c ethnl.Coalesce) param.Value {
	if f.flag != nil {
		if p := *f.flag(&c); p != nil {
			return param.Bool(*p)
		}
		return param.Absent()
	}
	if p := *f.word(&c); p != nil {
		return param.Int(int64(*p))
	}
	return param.Absent()
}

// set puts v into c and reports whether it is of the field's type and range.
func (f field) set(c *ethnl.Coalesce, v param.Value) bool {
	if f.flag != nil {
		b, ok := v.AsBool()
		*f.flag(c) = &b
		return ok
	}
	n, ok := v.AsInt()
	w := uint32(n)
	*f.word(c) = &w
	return ok && int64(w) == n
}

// Kind implements drivers.Driver.
func (d *Driver) Kind() param.Kind { return param.Coalescing }

// Discover implements drivers.Driver.
func (d *Driver) Discover(ctx context.Context, s param.Scope) ([]param.Target, error) {
	targets := []param.Target{}
	for _, name := range s.Targets {
		t, err := d.target(name)
		if errors.Is(err, drivers.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 && len(s.Targets) > 0 {
		return nil, fmt.Errorf("netdev %s: %w", strings.Join(s.Targets, ", "), drivers.ErrUnavailable)
	}
	slices.SortFunc(targets, func(a, b param.Target) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(targets), ctx.Err()
}

// target looks netdev up, ErrGone when there is none.
func (d *Driver) target(netdev string) (param.Target, error) {
	if netdev == "" || strings.ContainsAny(netdev, "/\x00") || netdev[0] == '.' {
		return param.Target{}, fmt.Errorf("%.40q is not the name of a netdev", netdev)
	}
	index, err := d.node.FS().ReadInt("/sys/class/net/" + netdev + "/ifindex")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = drivers.ErrGone
		}
		return param.Target{}, fmt.Errorf("netdev %s: %w", netdev, err)
	}
	return param.Target{
		Kind: param.Coalescing, Name: netdev, Incarnation: strconv.FormatInt(index, 10), Label: d.driverOf(netdev),
	}, nil
}

// driverOf names the netdev's driver, for a person.
func (d *Driver) driverOf(netdev string) string {
	link, err := d.node.FS().Readlink("/sys/class/net/" + netdev + "/device/driver")
	if err != nil {
		return "its driver"
	}
	return link[strings.LastIndex(link, "/")+1:]
}

// present checks that t is still the netdev that it was.
func (d *Driver) present(t param.Target) error {
	now, err := d.target(t.Name)
	if err == nil && now.Incarnation != t.Incarnation {
		return fmt.Errorf("netdev %s: made anew: %w", t.Name, drivers.ErrGone)
	}
	return err
}

// Read implements drivers.Driver. What the netdev's driver does not offer is unknown
// and fixed, also where it offers nothing at all.
func (d *Driver) Read(_ context.Context, t param.Target) ([]param.Setting, error) {
	if err := d.present(t); err != nil {
		return nil, err
	}
	c, err := d.node.Coalesce(t.Name)
	if errors.Is(err, ethnl.ErrNotSupported) {
		return settings(ethnl.Coalesce{}, err.Error()), nil
	}
	if err != nil {
		return nil, err
	}
	return settings(c, "not offered by "+d.driverOf(t.Name)), nil
}

// settings turns c into settings; missing says why a field has no value.
func settings(c ethnl.Coalesce, missing string) []param.Setting {
	list := make([]param.Setting, 0, len(fields))
	for _, f := range fields {
		s := param.Setting{ID: f.id, Value: f.get(c)}
		if s.Value.IsAbsent() {
			s.Fixed, s.Value, s.Note = true, param.Unknown(missing), missing
		}
		list = append(list, s)
	}
	return list
}

// unavailable adds ErrUnavailable to an error that says so in ethnl's words.
func unavailable(err error) error {
	if errors.Is(err, ethnl.ErrNotSupported) {
		return fmt.Errorf("%w: %w", drivers.ErrUnavailable, err)
	}
	return err
}

// Apply implements drivers.Driver. All changes go in one request, which the kernel
// takes whole or not at all. What o wants beside them goes with them: with adaptive
// moderation on, a driver shows values that are not the ones it falls back to.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, o param.Order) ([]param.Setting, error) {
	if err := errors.Join(ctx.Err(), d.present(t)); err != nil {
		return nil, err
	}
	before, err := d.node.Coalesce(t.Name)
	cs = withWanted(cs, o.Want, before)
	if err == nil {
		err = d.apply(t, before, cs)
	}
	now, readErr := d.Read(ctx, t)
	if err == nil && readErr == nil {
		err = verify(t, now, cs)
	}
	return now, errors.Join(unavailable(err), readErr)
}

// withWanted adds to cs what else is wanted and offered.
func withWanted(cs []param.Change, want []param.Setting, offered ethnl.Coalesce) []param.Change {
	cs = slices.Clone(cs)
	for _, s := range want {
		f, ok := lookup(s.ID)
		known := slices.ContainsFunc(cs, func(c param.Change) bool { return c.ID == s.ID })
		if ok && !known && !f.get(offered).IsAbsent() && s.Value.IsKnown() && !s.Value.IsAbsent() {
			cs = append(cs, param.Change{ID: s.ID, New: s.Value})
		}
	}
	return cs
}

// apply sends the request, unless everything is in force.
func (d *Driver) apply(t param.Target, before ethnl.Coalesce, cs []param.Change) error {
	var request ethnl.Coalesce
	differs := false
	for _, c := range cs {
		f, ok := lookup(c.ID)
		if !ok {
			return fmt.Errorf("netdev %s: no parameter %s", t.Name, c.ID)
		}
		now := f.get(before)
		if now.IsAbsent() {
			return fmt.Errorf("netdev %s: %s is not offered by %s: %w", t.Name, c.ID, d.driverOf(t.Name), drivers.ErrUnavailable)
		}
		if !f.set(&request, c.New) {
			return fmt.Errorf("netdev %s: %s cannot be %s", t.Name, c.ID, c.New)
		}
		differs = differs || now != c.New
	}
	if !differs {
		return nil
	}
	return d.node.SetCoalesce(t.Name, request)
}

func lookup(id param.ID) (field, bool) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.id == id })
	if i < 0 {
		return field{}, false
	}
	return fields[i], true
}

// verify compares what is in force with what was asked: drivers round to what their
// hardware counts in.
func verify(t param.Target, now []param.Setting, cs []param.Change) error {
	for _, c := range cs {
		if got, _ := drivers.Lookup(now, c.ID, ""); got.Value != c.New {
			return fmt.Errorf("netdev %s: %s: asked for %s, the driver has %s", t.Name, c.ID,
				param.Format(c.ID, c.New), param.Format(c.ID, got.Value))
		}
	}
	return nil
}
