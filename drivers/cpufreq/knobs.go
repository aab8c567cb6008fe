package cpufreq

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/param"
)

const cpuDir = "/sys/devices/system/cpu"

// turboName is the target that stands for the turbo frequencies of all CPUs: the
// kernel has one switch for the machine.
const turboName = "turbo"

// A knob is a target with one file, beside the policies.
type knob struct {
	name string
	id   param.ID
	file string
	// parse reads the file's text, and format makes it; ok is false for a value that
	// the file cannot have.
	parse  func(text string) param.Value
	format func(v param.Value) (text string, ok bool)
}

// findKnob returns the knob of a target's name; the error wraps ErrUnavailable where
// the node has none.
func (d *Driver) findKnob(name string) (knob, error) {
	if name == turboName {
		return d.turbo()
	}
	text, ok := strings.CutPrefix(name, "cpu")
	id, err := strconv.Atoi(text)
	if !ok || err != nil || id < 0 || strconv.Itoa(id) != text {
		return knob{}, fmt.Errorf("%.40q is not the name of a policy, a CPU or turbo", name)
	}
	k := knob{name: name, id: param.CStateLatency, file: fmt.Sprintf("%s/cpu%d/power/pm_qos_resume_latency_us", cpuDir, id),
		parse: parseLatency, format: formatLatency}
	if !d.fs.Exists(k.file) {
		return knob{}, fmt.Errorf("%s: %w", k.file, drivers.ErrUnavailable)
	}
	return k, nil
}

// turbo is intel_pstate's no_turbo where that driver is in charge, else cpufreq's
// boost (Documentation/admin-guide/pm/intel_pstate.rst and cpufreq.rst).
func (d *Driver) turbo() (knob, error) {
	for _, k := range []struct {
		file string
		on   string
	}{{cpuDir + "/intel_pstate/no_turbo", "0"}, {cpuDir + "/cpufreq/boost", "1"}} {
		if !d.fs.Exists(k.file) {
			continue
		}
		off := map[string]string{"0": "1", "1": "0"}[k.on]
		return knob{name: turboName, id: param.Turbo, file: k.file,
			parse: func(text string) param.Value {
				if text != k.on && text != off {
					return param.Unknown(fmt.Sprintf("%s is %.20q", k.file, text))
				}
				return param.Bool(text == k.on)
			},
			format: func(v param.Value) (string, bool) {
				b, ok := v.AsBool()
				if b {
					return k.on, ok
				}
				return off, ok
			}}, nil
	}
	return knob{}, fmt.Errorf("turbo: neither intel_pstate nor boost: %w", drivers.ErrUnavailable)
}

// The file of a CPU's resume latency says 0 for "no limit" and n/a for "no latency
// at all" (Documentation/ABI/testing/sysfs-devices-power).
const noLimit = "no limit"

func parseLatency(text string) param.Value {
	switch text {
	case "0":
		return param.Text(noLimit)
	case "n/a":
		return param.Text("0us")
	}
	us, err := strconv.ParseInt(text, 10, 32)
	if err != nil || us < 0 {
		return param.Unknown(fmt.Sprintf("pm_qos_resume_latency_us is %.20q", text))
	}
	return param.Text(strconv.FormatInt(us, 10) + "us")
}

func formatLatency(v param.Value) (string, bool) {
	text, ok := v.AsText()
	switch {
	case !ok:
		return "", false
	case text == noLimit:
		return "0", true
	case text == "0us":
		return "n/a", true
	}
	d, err := param.ParseDuration(text)
	us := d / time.Microsecond
	return strconv.FormatInt(int64(us), 10), err == nil && us > 0 && us <= 1<<31-1
}

func (k knob) target() param.Target {
	return param.Target{Kind: param.Frequency, Name: k.name}
}

// readKnob returns the knob's setting.
func (d *Driver) readKnob(k knob) []param.Setting {
	s := param.Setting{ID: k.id}
	text, err := d.fs.ReadString(k.file)
	if err != nil {
		s.Value = param.Unknown(err.Error())
	} else {
		s.Value = k.parse(text)
	}
	return []param.Setting{s}
}

// applyKnob makes cs true on one knob.
func (d *Driver) applyKnob(t param.Target, cs []param.Change) ([]param.Setting, error) {
	k, err := d.findKnob(t.Name)
	if errors.Is(err, drivers.ErrUnavailable) {
		return nil, fmt.Errorf("%s: %w", t.Name, drivers.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range cs {
		text, ok := k.format(c.New)
		if c.ID != k.id || !ok {
			return d.readKnob(k), fmt.Errorf("%s: %s cannot be %s", k.name, c.ID, c.New)
		}
		if d.readKnob(k)[0].Value == c.New {
			continue
		}
		if err := d.fs.WriteFile(k.file, text); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: %w", drivers.ErrGone, err)
			}
			return d.readKnob(k), fmt.Errorf("%s: set %s to %s: %w", k.name, k.file, text, err)
		}
		if got := d.readKnob(k)[0].Value; got != c.New {
			return d.readKnob(k), fmt.Errorf("%s: asked for %s, the kernel has %s", k.name, c.New, got)
		}
	}
	return d.readKnob(k), nil
}
