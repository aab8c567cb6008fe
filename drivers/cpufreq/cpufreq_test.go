package cpufreq_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

const untidy = "../drivertest/testdata/nodes.txtar"

func policy(name string) param.Target { return param.Target{Kind: param.Frequency, Name: name} }

func change(id param.ID, v param.Value) param.Change { return param.Change{ID: id, New: v} }

func show(settings []param.Setting) string {
	var s []string
	for _, set := range settings {
		if set.Fixed {
			continue // not offered here
		}
		text := set.Value.String()
		if !set.Value.IsKnown() {
			text = "? " + set.Value.Reason()
		}
		s = append(s, string(set.ID)[len("frequency_lock."):]+"="+text)
	}
	return strings.Join(s, ", ")
}

func TestRead(t *testing.T) {
	d := cpufreq.New(drivertest.Captured(t, untidy).FS())
	for name, want := range map[string]string{
		"policy0": "governor=powersave, min_khz=1000000, max_khz=3000000",
		"policy2": `governor=(unset), min_khz=? scaling_min_freq is "<unknown>", max_khz=3000000`,
		"policy3": "governor=powersave, min_khz=1000000, max_khz=3000000",
	} {
		got, err := d.Read(t.Context(), policy(name))
		if err != nil || show(got) != want {
			t.Errorf("%s: %s, %v; want %s", name, show(got), err, want)
		}
	}
	if _, err := d.Read(t.Context(), policy("policy7")); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("a policy that is not there: %v", err)
	}
	for _, bad := range []string{"", "policy", "policy-1", "policy01", "../policy0", "boost"} {
		if _, err := d.Read(t.Context(), policy(bad)); err == nil {
			t.Errorf("Read of %q took it", bad)
		}
	}
}

func TestDiscover(t *testing.T) {
	d := cpufreq.New(drivertest.Simulated(t, "small").FS())
	got, err := d.Discover(t.Context(), param.Scope{Targets: []string{"policy3", "policy0", "policy99"}})
	want := []param.Target{{Kind: param.Frequency, Name: "policy0", Label: "CPUs 0,4"}, {Kind: param.Frequency, Name: "policy3", Label: "CPUs 3,7"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	none := cpufreq.New(sysfs.NewMem().Open(t.TempDir(), nil))
	if _, err := none.Discover(t.Context(), param.Scope{Targets: []string{"policy0"}}); !errors.Is(err, drivers.ErrUnavailable) {
		t.Errorf("a machine without cpufreq: %v", err)
	}
}

// TestOrder walks through pairs of limits and refuses, as old kernels do, a write
// that puts the lower above the upper.
func TestOrder(t *testing.T) {
	strict := func(v sysfs.View, name string, value string) error {
		other, ok, _ := v.Written(strings.Replace(name, "min_freq", "max_freq", 1))
		if strings.HasSuffix(name, "min_freq") && ok && value > strings.TrimSpace(string(other)) {
			return syscall.EINVAL
		}
		other, ok, _ = v.Written(strings.Replace(name, "max_freq", "min_freq", 1))
		if strings.HasSuffix(name, "max_freq") && ok && value < strings.TrimSpace(string(other)) {
			return syscall.EINVAL
		}
		return nil
	}
	m := sysfs.NewMem()
	dir := "/sys/devices/system/cpu/cpufreq/policy0/"
	m.File(dir+"affected_cpus", "0\n")
	m.File(dir+"scaling_governor", "powersave\n")
	m.File(dir+"scaling_min_freq", "1000000\n")
	m.File(dir+"scaling_max_freq", "3000000\n")
	d := cpufreq.New(m.Open(t.TempDir(), nil, sysfs.WithEmulator(check(strict))))
	for _, limits := range [][2]int64{{1_000_000, 1_000_000}, {3_000_000, 3_000_000}, {1_000_000, 2_000_000}, {2_000_000, 3_000_000}, {1_500_000, 1_500_000}, {1_000_000, 3_000_000}, {2_500_000, 2_500_000}} {
		got, err := d.Apply(t.Context(), policy("policy0"), []param.Change{
			change(param.MinKHz, param.Int(limits[0])), change(param.MaxKHz, param.Int(limits[1])),
		}, param.Order{})
		if err != nil {
			t.Errorf("limits %v: %v; in force %s", limits, err, show(got))
		}
	}
}

func TestApplyErrors(t *testing.T) {
	small := cpufreq.New(drivertest.Simulated(t, "small").FS())
	captured := cpufreq.New(drivertest.Captured(t, untidy).FS())
	for name, tc := range map[string]struct {
		d      *cpufreq.Driver
		policy string
		change param.Change
		says   string
		is     error
	}{
		"rounded":          {small, "policy0", change(param.MaxKHz, param.Int(2_500_000)), "asked for 2500 MHz, the kernel has 2200 MHz", nil},
		"clamped":          {small, "policy1", change(param.MaxKHz, param.Int(9_000_000)), "asked for 9000 MHz, the kernel has 3000 MHz", nil},
		"unknown governor": {small, "policy1", change(param.Governor, param.Text("turbo")), "offers conservative ondemand", syscall.EINVAL},
		"offline":          {captured, "policy3", change(param.Governor, param.Text("performance")), "offline", syscall.EBUSY},
		"unset":            {captured, "policy0", change(param.Governor, param.Absent()), "cannot be set to (unset)", drivers.ErrUnavailable},
		"a sentinel":       {captured, "policy0", change(param.MinKHz, param.Unknown("x")), "cannot be set", drivers.ErrUnavailable},
		"zero":             {captured, "policy0", change(param.MinKHz, param.Int(0)), "cannot be set", drivers.ErrUnavailable},
		"another kind":     {captured, "policy0", change(param.IRQCPUs, param.Text("1")), "no parameter", nil},
		"gone":             {captured, "policy9", change(param.MinKHz, param.Int(1)), "gone", drivers.ErrGone},
	} {
		_, err := tc.d.Apply(t.Context(), policy(tc.policy), []param.Change{tc.change}, param.Order{})
		if err == nil || !strings.Contains(err.Error(), tc.says) || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

// TestHiddenRequest: a lower limit that somebody asked for while the upper stood
// below it comes true when the upper rises. What was asked here must still hold.
func TestHiddenRequest(t *testing.T) {
	fs := drivertest.Simulated(t, "small").FS()
	dir := "/sys/devices/system/cpu/cpufreq/policy0/"
	if err := errors.Join(fs.WriteFile(dir+"scaling_max_freq", "1800000"), fs.WriteFile(dir+"scaling_min_freq", "3000000")); err != nil {
		t.Fatal(err)
	}
	d := cpufreq.New(fs)
	got, err := d.Apply(t.Context(), policy("policy0"), []param.Change{change(param.MaxKHz, param.Int(3_000_000))},
		param.Order{Want: []param.Setting{{ID: param.MinKHz, Value: param.Int(1_800_000)}}})
	if want := "governor=schedutil, min_khz=1800000, max_khz=3000000"; err != nil || show(got) != want {
		t.Errorf("in force %s, %v; want %s", show(got), err, want)
	}
}

// TestRefusedGovernor: a governor that the driver does not offer any more keeps the limits
// from nothing.
func TestRefusedGovernor(t *testing.T) {
	fs := drivertest.Simulated(t, "small").FS()
	d := cpufreq.New(fs)
	got, err := d.Apply(t.Context(), policy("policy0"), []param.Change{
		change(param.Governor, param.Text("turbo")), change(param.MinKHz, param.Int(1_800_000)), change(param.MaxKHz, param.Int(2_200_000)),
	}, param.Order{})
	if want := "governor=schedutil, min_khz=1800000, max_khz=2200000"; !errors.Is(err, syscall.EINVAL) || show(got) != want {
		t.Errorf("in force %s, %v; want %s and EINVAL", show(got), err, want)
	}
}

// TestNoGovernor: what is no name is not taken for one that can be written back.
func TestNoGovernor(t *testing.T) {
	for _, text := range []string{"(null)", "a b", "\x00", "power\x1b[31msave", "é"} {
		m := sysfs.NewMem()
		dir := "/sys/devices/system/cpu/cpufreq/policy0/"
		m.File(dir+"affected_cpus", "0\n")
		m.File(dir+"scaling_governor", text+"\n")
		got, err := cpufreq.New(m.Open(t.TempDir(), nil)).Read(t.Context(), policy("policy0"))
		if want := fmt.Sprintf("governor=? scaling_governor is %.40q, ", text); err != nil || !strings.HasPrefix(show(got), want) {
			t.Errorf("%q: %s, %v; want %s", text, show(got), err, want)
		}
	}
}
