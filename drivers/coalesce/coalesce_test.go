package coalesce_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/coalesce"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

const untidy = "../drivertest/testdata/nodes.txtar"

func netdev(name, index string) param.Target {
	return param.Target{Kind: param.Coalescing, Name: name, Incarnation: index}
}

func show(settings []param.Setting) string {
	var s []string
	for _, set := range settings {
		text := set.Value.String()
		if set.Fixed {
			text = set.Note
		}
		s = append(s, string(set.ID)[len("coalescing."):]+"="+text)
	}
	return strings.Join(s, ", ")
}

func TestDiscover(t *testing.T) {
	d := coalesce.New(drivertest.Captured(t, untidy))
	got, err := d.Discover(t.Context(), param.Scope{Targets: []string{"eth1", "eth0", "eth0", "absent0"}})
	want := []param.Target{
		{Kind: param.Coalescing, Name: "eth0", Incarnation: "2", Label: "e1000e"},
		{Kind: param.Coalescing, Name: "eth1", Incarnation: "3", Label: "its driver"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if _, err := d.Discover(t.Context(), param.Scope{Targets: []string{"absent0"}}); !errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("no such netdev: %v", err)
	}
	for _, bad := range []string{"", "..", "a/b"} {
		if _, err := d.Discover(t.Context(), param.Scope{Targets: []string{bad}}); err == nil || errors.Is(err, drivers.ErrUnavailable) {
			t.Errorf("Discover of %q: %v", bad, err)
		}
	}
}

func TestRead(t *testing.T) {
	d := coalesce.New(drivertest.Captured(t, untidy))
	got, err := d.Read(t.Context(), netdev("eth0", "2"))
	const want = "adaptive_rx=false, adaptive_tx=not offered by e1000e, rx_usecs=3, rx_frames=not offered by e1000e, tx_usecs=not offered by e1000e, tx_frames=not offered by e1000e"
	if err != nil || show(got) != want {
		t.Errorf("%s, %v; want %s", show(got), err, want)
	}
	// What cannot be read is not 0.
	got, err = d.Read(t.Context(), netdev("eth1", "3"))
	if err != nil || len(got) != 6 || !got[0].Fixed || got[0].Value.IsKnown() || !strings.Contains(got[0].Note, "does not tell") {
		t.Errorf("a netdev without coalescing: %s, %v", show(got), err)
	}
	if _, err := d.Apply(t.Context(), netdev("eth1", "3"), []param.Change{{ID: param.RXUsecs, New: param.Int(1)}}, param.Order{}); !errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("setting a netdev without coalescing: %v", err)
	}
	if _, err := d.Read(t.Context(), netdev("eth0", "9")); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("another netdev of that name: %v", err)
	}
}

// rounding is a driver whose hardware counts in steps of 4 microseconds.
type rounding struct{ *node.Node }

func (r rounding) SetCoalesce(netdev string, c ethnl.Coalesce) error {
	if c.RXUsecs != nil {
		c.RXUsecs = new(*c.RXUsecs &^ 3)
	}
	return r.Node.SetCoalesce(netdev, c)
}

// refusing is a driver that offers a field but not this value.
type refusing struct {
	*node.Node
	err error
}

func (r refusing) SetCoalesce(string, ethnl.Coalesce) error { return r.err }

func TestApplyErrors(t *testing.T) {
	n := drivertest.Captured(t, untidy)
	usecs := func(v param.Value) []param.Change { return []param.Change{{ID: param.RXUsecs, New: v}} }
	for name, tc := range map[string]struct {
		n    coalesce.Node
		cs   []param.Change
		says string
		is   error
	}{
		"not offered":    {n, []param.Change{{ID: param.TXUsecs, New: param.Int(1)}}, "not offered by e1000e", drivers.ErrUnavailable},
		"rounded":        {rounding{n}, usecs(param.Int(7)), "asked for 7 us, the driver has 4 us", nil},
		"refused":        {refusing{n, fmt.Errorf("%w: out of range", syscall.EINVAL)}, usecs(param.Int(99999)), "out of range", syscall.EINVAL},
		"not supported":  {refusing{n, fmt.Errorf("%w: %w", ethnl.ErrNotSupported, syscall.EOPNOTSUPP)}, usecs(param.Int(8)), "not supported", drivers.ErrUnavailable},
		"beyond 32 bits": {n, usecs(param.Int(1 << 32)), "cannot be 4294967296", nil},
		"negative":       {n, usecs(param.Int(-1)), "cannot be -1", nil},
		"a switch":       {n, usecs(param.Bool(true)), "cannot be true", nil},
		"unset":          {n, usecs(param.Absent()), "cannot be (unset)", nil},
		"another kind":   {n, []param.Change{{ID: param.MinKHz, New: param.Int(1)}}, "no parameter", nil},
	} {
		got, err := coalesce.New(tc.n).Apply(t.Context(), netdev("eth0", "2"), tc.cs, param.Order{})
		if err == nil || !strings.Contains(err.Error(), tc.says) || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if len(got) != 6 {
			t.Errorf("%s: Apply does not tell what is in force: %s", name, show(got))
		}
	}
}

// adaptive is a driver that shows rx_usecs 0 while it moderates by itself, whatever
// it will fall back to.
type adaptive struct{ *node.Node }

func (a adaptive) Coalesce(netdev string) (ethnl.Coalesce, error) {
	c, err := a.Node.Coalesce(netdev)
	if err == nil && *c.AdaptiveRX {
		c.RXUsecs = new(uint32(0))
	}
	return c, err
}

func TestAdaptiveHidesValues(t *testing.T) {
	off := param.Change{ID: param.AdaptiveRX, New: param.Bool(false)}
	usecs := param.Setting{ID: param.RXUsecs, Value: param.Int(0)} // in force by the look of it
	for name, tc := range map[string]struct {
		cs []param.Change
		o  param.Order
	}{
		"both changed":   {[]param.Change{off, {ID: usecs.ID, New: usecs.Value}}, param.Order{}},
		"one is wanted":  {[]param.Change{off}, param.Order{Want: []param.Setting{usecs, {ID: param.RXFrames, Value: param.Unknown("x")}}}},
		"wanted by hint": {[]param.Change{off}, param.Order{Want: []param.Setting{usecs, {ID: param.HintSize, Value: param.Int(1)}}}},
	} {
		got, err := coalesce.New(adaptive{drivertest.Simulated(t, "small")}).Apply(t.Context(), netdev("ens1f0np0", "2"), tc.cs, tc.o)
		if s, _ := drivers.Lookup(got, param.RXUsecs, ""); err != nil || s.Value != usecs.Value {
			t.Errorf("%s: %s, %v", name, show(got), err)
		}
	}
}

// TestOneRequest: either all fields are set or none.
func TestOneRequest(t *testing.T) {
	n := drivertest.Simulated(t, "small")
	d := coalesce.New(n)
	target := netdev("ens1f0np0", "2")
	before, err := d.Read(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	n.InjectFaults(new(sysfs.Faults).FailWrite("/ethtool/ens1f0np0", 1, syscall.EIO))
	got, err := d.Apply(t.Context(), target, []param.Change{
		{ID: param.AdaptiveRX, New: param.Bool(false)}, {ID: param.RXUsecs, New: param.Int(1)}, {ID: param.RXFrames, New: param.Int(2)},
	}, param.Order{})
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("in force %s, %v; want EIO", show(got), err)
	}
	if diff := cmp.Diff(before, got, cmp.AllowUnexported(param.Value{})); diff != "" {
		t.Errorf("a failed request has changed something:\n%s", diff)
	}
}
