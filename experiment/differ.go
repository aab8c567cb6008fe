package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// HintName is the name under which a series' hint is compared.
const HintName = "hint"

// hardwareKeys are the facts of Explain that make two machines different hardware.
var hardwareKeys = []string{"cpu.model", "nic.model", "gpu.model", "nic.psid"}

// hardware says what makes a and b different hardware, "" when nothing recorded does.
func hardware(a, b Experiment) string {
	var why []string
	add := func(what, x, y string) {
		if x != y && x != "" && y != "" {
			why = append(why, fmt.Sprintf("%s %s and %s", what, x, y))
		}
	}
	add("driver", a.Node.Driver, b.Node.Driver)
	for _, k := range hardwareKeys {
		add(k, a.Explain[k], b.Explain[k])
	}
	if a.Simulated != b.Simulated {
		why = append(why, "only one of them is simulated")
	}
	return strings.Join(why, "; ")
}

// connection is the address of settings that describe the measuring connection.
const connection = "connection"

// differing lists what is not the same on both sides, the hint first.
func differing(a, b Side) []Differing {
	out := []Differing{}
	hint := false
	left, right := a.described(), b.described()
	for _, what := range slices.SortedFunc(maps.Keys(union(left, right)), hintFirst) {
		if left[what] == right[what] {
			continue
		}
		d := Differing{What: what, A: orAbsent(left, what), B: orAbsent(right, what)}
		hint = hint || what == HintName
		// The profile follows from the hint; so does the spec's setting of it.
		d.Follows = hint && (strings.HasPrefix(what, "profile.") || strings.HasSuffix(what, " hint.size"))
		out = append(out, d)
	}
	return out
}

func hintFirst(a, b string) int {
	if (a == HintName) != (b == HintName) {
		if a == HintName {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func orAbsent(m map[string]string, key string) string {
	if v, ok := m[key]; ok && v != "" {
		return v
	}
	return "(not recorded)"
}

// described is everything recorded of a side that can be a cause, by name.
func (s Side) described() map[string]string {
	m := maps.Clone(s.Explain)
	if m == nil {
		m = map[string]string{}
	}
	put := func(k, v string) {
		if v != "" {
			m[k] = v
		}
	}
	put("kernel", s.Node.Kernel)
	put("virtualised", s.Node.Virtualised)
	put("hostname", s.Node.Hostname)
	put("nic.driver", s.Node.Driver)
	put("nic.firmware", s.Node.Firmware)
	put("device", s.Device)
	put("rdmatune", s.Version)
	for _, x := range s.Settings {
		if x.Address == connection {
			if x.Attr == "hint" {
				put(HintName, x.Value)
			} else {
				put("profile."+x.Attr, x.Value)
			}
			continue
		}
		put(x.Address+" "+x.Attr, x.Value)
	}
	for _, x := range s.Experiment.Series {
		if x.Name != s.Series && (s.Series != "" || len(s.Experiment.Series) > 1) {
			continue
		}
		put(HintName, x.HintText())
		for k, v := range x.Profile {
			put("profile."+k, v)
		}
	}
	return m
}

// cause says what a difference of the numbers can be attributed to.
func cause(differs []Differing) string {
	var own []string
	for _, d := range differs {
		if !d.Follows {
			own = append(own, d.What)
		}
	}
	switch {
	case len(own) == 0:
		return "nothing recorded differs; a difference would be how the machine drifted between the two, or something that is not recorded"
	case len(own) == 1 && own[0] == HintName:
		return "only the hint differs, with what follows from it"
	case len(own) == 1:
		return "only " + own[0] + " differs"
	}
	return fmt.Sprintf("%d things differ: not attributable to the hint", len(own))
}
