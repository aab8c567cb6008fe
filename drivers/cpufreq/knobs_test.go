package cpufreq_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/drivertest"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
)

// TestKnobs sets the targets that have one file, and puts them back.
func TestKnobs(t *testing.T) {
	for _, tt := range []struct {
		machine, target string
		id              param.ID
		original, want  param.Value
		file, text      string
	}{
		{"small", "turbo", param.Turbo, param.Bool(true), param.Bool(false), "/sys/devices/system/cpu/cpufreq/boost", "0"},
		{"dgx", "turbo", param.Turbo, param.Bool(true), param.Bool(false), "/sys/devices/system/cpu/intel_pstate/no_turbo", "1"},
		{"small", "cpu3", param.CStateLatency, param.Text("no limit"), param.Text("2us"), "/sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "2"},
		{"dgx", "cpu223", param.CStateLatency, param.Text("no limit"), param.Text("0us"), "/sys/devices/system/cpu/cpu223/power/pm_qos_resume_latency_us", "n/a"},
	} {
		fs := drivertest.Simulated(t, tt.machine).FS()
		before, err := fs.ReadString(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		d := cpufreq.New(fs)
		found, err := d.Discover(t.Context(), param.Scope{Targets: []string{tt.target}})
		if err != nil || len(found) != 1 || found[0].Name != tt.target {
			t.Fatalf("%s %s: Discover = %v, %v", tt.machine, tt.target, found, err)
		}
		if got, err := d.Read(t.Context(), found[0]); err != nil || len(got) != 1 || got[0].Value != tt.original {
			t.Errorf("%s %s: Read = %v, %v; want %s", tt.machine, tt.target, got, err, tt.original)
		}
		for _, step := range []struct {
			v    param.Value
			text string
		}{{tt.want, tt.text}, {tt.want, tt.text}, {tt.original, before}} {
			got, err := d.Apply(t.Context(), found[0], []param.Change{change(tt.id, step.v)}, param.Order{})
			if err != nil || len(got) != 1 || got[0].Value != step.v {
				t.Errorf("%s %s: Apply %s = %v, %v", tt.machine, tt.target, step.v, got, err)
			}
			if text, err := fs.ReadString(tt.file); err != nil || text != step.text {
				t.Errorf("%s: %q, %v; want %q", tt.file, text, err, step.text)
			}
		}
		for _, bad := range []param.Change{change(tt.id, param.Int(1)), change(param.MinKHz, param.Int(1)), change(tt.id, param.Text("-1us")), change(tt.id, param.Absent())} {
			if _, err := d.Apply(t.Context(), found[0], []param.Change{bad}, param.Order{}); err == nil {
				t.Errorf("%s %s took %s = %s", tt.machine, tt.target, bad.ID, bad.New)
			}
		}
	}
}

func TestKnobsThatAreNotThere(t *testing.T) {
	d := cpufreq.New(sysfs.NewMem().Open(t.TempDir(), nil))
	for _, name := range []string{"turbo", "cpu0"} {
		if got, err := d.Discover(t.Context(), param.Scope{Targets: []string{name}}); !errors.Is(err, drivers.ErrUnavailable) {
			t.Errorf("%s: Discover = %v, %v", name, got, err)
		}
		if _, err := d.Read(t.Context(), param.Target{Kind: param.Frequency, Name: name}); !errors.Is(err, drivers.ErrGone) {
			t.Errorf("%s: Read: %v", name, err)
		}
	}
	for _, bad := range []string{"cpu", "cpu-1", "cpu01", "cpux", "../cpu0"} {
		if _, err := d.Discover(t.Context(), param.Scope{Targets: []string{bad}}); err == nil || errors.Is(err, drivers.ErrUnavailable) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestEnergyPreference: the performance governor fixes the preference, so the
// governor goes first, on the way and back.
func TestEnergyPreference(t *testing.T) {
	d := cpufreq.New(drivertest.Simulated(t, "dgx").FS())
	p := policy("policy0")
	both := func(governor, preference string) error {
		_, err := d.Apply(t.Context(), p, []param.Change{
			change(param.EnergyPreference, param.Text(preference)), change(param.Governor, param.Text(governor)),
		}, param.Order{})
		return err
	}
	for _, step := range [][2]string{{"performance", "performance"}, {"powersave", "balance_performance"}, {"powersave", "power"}} {
		if err := both(step[0], step[1]); err != nil {
			t.Errorf("%v: %v", step, err)
		}
	}
	if err := both("performance", "power"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("power under performance: %v, want EBUSY", err)
	}
	if err := both("powersave", "nonsense"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a preference that is not offered: %v, want EINVAL", err)
	}
}
