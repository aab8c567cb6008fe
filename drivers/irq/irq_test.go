package irq_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

const untidy = "../drivertest/testdata/nodes.txtar"

func vector(name string) param.Target { return param.Target{Kind: param.IRQ, Name: name} }

func to(list string) []param.Change {
	return []param.Change{{ID: param.IRQCPUs, New: param.Text(list)}}
}

func TestDiscover(t *testing.T) {
	d := irq.New(drivertest.Captured(t, untidy).FS())
	got, err := d.Discover(t.Context(), param.Scope{Targets: []string{"0000:11:00.0/0", "0000:10:00.0/1", "0000:10:00.0/0", "0000:10:00.0/7"}})
	want := []param.Target{
		{Kind: param.IRQ, Name: "0000:10:00.0/0", Label: "eth0-rx-0"}, // interrupt 99: before 100, which sorts before it as text
		{Kind: param.IRQ, Name: "0000:10:00.0/1", Label: "eth0-tx-0"},
		{Kind: param.IRQ, Name: "0000:11:00.0/0", Label: "mlx5_async0@pci:0000:11:00.0"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if got, err := d.Discover(t.Context(), param.Scope{}); err != nil || len(got) != 0 {
		t.Errorf("nothing asked: %v, %v", got, err)
	}
	if _, err := d.Discover(t.Context(), param.Scope{Targets: []string{"0000:99:00.0/0"}}); !errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("a function that is not there: %v", err)
	}
	bare := irq.New(sysfs.NewMem().Open(t.TempDir(), nil))
	if _, err := bare.Discover(t.Context(), param.Scope{Targets: []string{"0000:10:00.0/0"}}); err == nil || errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("a capture without affinities: %v", err)
	}
	for _, bad := range []string{"99", "eth0", "0000:10:00.0/x", "../../x/1"} {
		if _, err := d.Discover(t.Context(), param.Scope{Targets: []string{bad}}); err == nil || errors.Is(err, drivers.ErrUnavailable) {
			t.Errorf("Discover of %q: %v", bad, err)
		}
	}
}

func TestRead(t *testing.T) {
	d := irq.New(drivertest.Captured(t, untidy).FS())
	for name, want := range map[string]param.Setting{
		"0000:10:00.0/0": {ID: param.IRQCPUs, Value: param.Text("0-2")},
		"0000:10:00.0/1": {ID: param.IRQCPUs, Value: param.Text("1"), Note: "effective pending: CPU 0 still takes it"},
		"0000:10:00.0/2": {ID: param.IRQCPUs, Value: param.Text("2"), Fixed: true, Note: "kernel-managed: the kernel places this interrupt itself"},
		"0000:10:00.0/3": {
			ID: param.IRQCPUs, Value: param.Unknown("no handler is installed: the device does not use this vector now"),
			Fixed: true, Note: "no handler is installed: the device does not use this vector now",
		},
		"0000:11:00.0/0": {ID: param.IRQCPUs, Value: param.Text("0-3")},
	} {
		got, err := d.Read(t.Context(), vector(name))
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	if _, err := d.Read(t.Context(), vector("0000:10:00.0/4")); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("a vector that is not there: %v", err)
	}
}

func TestApplyErrors(t *testing.T) {
	n := drivertest.Captured(t, untidy)
	for name, tc := range map[string]struct {
		target string
		cs     []param.Change
		inject error // of the write
		says   string
		is     error
	}{
		"offline":           {"0000:10:00.0/0", to("3"), nil, "none of the CPUs is online", syscall.EINVAL},
		"offline, EIO":      {"0000:10:00.0/0", to("3"), syscall.EIO, "none of the CPUs is online", syscall.EIO},
		"managed, new":      {"0000:10:00.0/2", to("1"), nil, "kernel-managed", drivers.ErrUnavailable},
		"managed, EPERM":    {"0000:10:00.0/0", to("1"), syscall.EPERM, "kernel-managed", drivers.ErrUnavailable},
		"managed, old":      {"0000:10:00.0/0", to("1"), syscall.EIO, "kernel-managed", drivers.ErrUnavailable},
		"not in use":        {"0000:10:00.0/3", to("1"), nil, "no handler is installed", drivers.ErrGone},
		"no such CPU":       {"0000:10:00.0/0", to("1-4"), nil, "cannot have", syscall.ERANGE},
		"no vector left":    {"0000:10:00.0/0", to("1"), syscall.ENOSPC, "no interrupt vector left", syscall.ENOSPC},
		"freed meanwhile":   {"0000:10:00.0/0", to("1"), syscall.ENOENT, "gone", drivers.ErrGone},
		"no permission":     {"0000:10:00.0/0", to("1"), syscall.EACCES, "permission denied", syscall.EACCES},
		"empty":             {"0000:10:00.0/0", to(""), nil, "cannot have", nil},
		"junk":              {"0000:10:00.0/0", to("a"), nil, "cannot have", nil},
		"not a list":        {"0000:10:00.0/0", []param.Change{{ID: param.IRQCPUs, New: param.Absent()}}, nil, "cannot have", nil},
		"another parameter": {"0000:10:00.0/0", []param.Change{{ID: param.MinKHz, New: param.Int(1)}}, nil, "cannot have", nil},
	} {
		faults := new(sysfs.Faults)
		if tc.inject != nil {
			faults.FailWrite("/proc/irq", 1, tc.inject)
		}
		got, err := irq.New(n.FS().WithFaults(faults)).Apply(t.Context(), vector(tc.target), tc.cs, param.Order{})
		if err == nil || !strings.Contains(err.Error(), tc.says) || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if len(got) != 1 || got[0].Value.IsAbsent() {
			t.Errorf("%s: Apply does not tell what is in force: %+v", name, got)
		}
		if fixed := errors.Is(err, drivers.ErrUnavailable) || name == "not in use"; len(got) == 1 && got[0].Fixed != fixed {
			t.Errorf("%s: fixed is %v: %v", name, got[0].Fixed, err)
		}
	}
}

// TestCanonical: the same set in other words is in force already.
func TestCanonical(t *testing.T) {
	n := drivertest.Captured(t, untidy)
	d := irq.New(n.FS().WithFaults(new(sysfs.Faults).FailWrite("/", 1, syscall.EIO)))
	got, err := d.Apply(t.Context(), vector("0000:10:00.0/0"), to("2,0,1"), param.Order{})
	if err != nil || got[0].Value != param.Text("0-2") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNoHandler: an interrupt whose handler was taken away has no affinity to rely on, and
// none is asked for, until there is one again.
func TestNoHandler(t *testing.T) {
	for actions, idle := range map[string]bool{"\n": true, "": true, "eth0-rx-0\n": false} {
		m := sysfs.NewMem()
		m.File("/proc/irq/5/smp_affinity_list", "0\n")
		m.File("/sys/bus/pci/devices/0000:10:00.0/msi_irqs/5", "msix\n")
		m.File("/sys/kernel/irq/5/actions", actions)
		fs := m.Open(t.TempDir(), nil)
		d := irq.New(fs)
		targets, err := d.Discover(t.Context(), param.Scope{Targets: []string{"0000:10:00.0/0"}})
		if err != nil || len(targets) != 1 {
			t.Fatalf("%v, %v", targets, err)
		}
		got, err := d.Read(t.Context(), targets[0])
		if err != nil || len(got) != 1 || got[0].Fixed != idle || got[0].Value.IsKnown() == idle {
			t.Errorf("%q: read %+v, %v", actions, got, err)
		}
		_, err = d.Apply(t.Context(), targets[0], to("1"), param.Order{})
		if errors.Is(err, drivers.ErrGone) != idle || !idle && err != nil {
			t.Errorf("%q: apply: %v", actions, err)
		}
		if now, err := fs.ReadString("/proc/irq/5/smp_affinity_list"); err != nil || (now == "0") != idle {
			t.Errorf("%q: %q afterwards, %v", actions, now, err)
		}
	}
}
