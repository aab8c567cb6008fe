package node

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// kernel gives the files of a node at rest the manners of the running kernel's, as
// far as a tuner meets them: what is refused, rounded, clamped, and which other
// files follow.
type kernel struct{}

var (
	irqFile     = regexp.MustCompile(`^proc/irq/[0-9]+/(smp_affinity|effective_affinity)(_list)?$`)
	cpufreqFile = regexp.MustCompile(`^sys/devices/system/cpu/(cpufreq/policy[0-9]+|cpu[0-9]+/cpufreq)/(scaling_governor|scaling_min_freq|scaling_max_freq|energy_performance_preference)$`)
	statusFile  = regexp.MustCompile(`^proc/[0-9]+/(task/[0-9]+/)?status$`)
)

// Write implements sysfs.Emulator.
func (kernel) Write(v sysfs.View, name string, mode fs.FileMode, value []byte) (string, []byte, error) {
	if statusFile.MatchString(name) { // stands for sched_setaffinity(2)
		return writeAffinity(v, name, string(value))
	}
	if err := sysfs.CheckMode(name, mode); err != nil {
		return "", nil, err
	}
	switch {
	case irqFile.MatchString(name):
		return writeIRQ(v, name, string(value))
	case cpufreqFile.MatchString(name):
		content, err := writeCpufreq(v, name, strings.TrimSpace(string(value)))
		return name, content, err
	}
	return name, line(strings.TrimRight(string(value), "\n")), nil
}

// Read implements sysfs.Emulator.
func (kernel) Read(v sysfs.View, name string) ([]byte, bool, error) {
	switch {
	case irqFile.MatchString(name):
		return readIRQ(v, name)
	case strings.HasSuffix(name, "/energy_performance_preference"):
		// intel_pstate's performance governor fixes the preference.
		if g, ok := text(v, path.Dir(name)+"/scaling_governor"); ok && g == "performance" {
			return line("performance"), true, nil
		}
	case cpufreqFile.MatchString(name) && !strings.HasSuffix(name, "governor"):
		return readLimit(v, name)
	case statusFile.MatchString(name):
		return readStatus(v, name)
	}
	return nil, false, nil
}

func line(s string) []byte { return []byte(s + "\n") }

// text returns what name shows, trimmed.
func text(v sysfs.View, name string) (string, bool) {
	b, err := v.Current(name)
	return strings.TrimSpace(strings.TrimRight(string(b), "\x00")), err == nil
}

// number returns the integer that name shows.
func number(v sysfs.View, name string) (int64, bool) {
	s, ok := text(v, name)
	n, err := strconv.ParseInt(s, 10, 64)
	return n, ok && err == nil
}

// usable returns the CPUs of s that are online, EINVAL when none is.
func usable(v sysfs.View, s cpulist.Set) (cpulist.Set, error) {
	if list, ok := text(v, "sys/devices/system/cpu/online"); ok {
		if online, err := cpulist.ParseKernel(list); err == nil {
			s = s.Intersection(online)
		}
	}
	if s.IsEmpty() {
		return s, syscall.EINVAL
	}
	return s, nil
}

// writeIRQ remembers an affinity once, as a list; the other three files follow from
// it. A mask that has no online CPU is refused, one that has some is kept whole
// (kernel/irq/proc.c); a CPU beyond the possible ones is out of range.
func writeIRQ(v sysfs.View, name, value string) (string, []byte, error) {
	parse := cpulist.ParseMask
	if strings.HasSuffix(name, "_list") {
		parse = cpulist.ParseKernel
	}
	set, err := parse(value)
	if err != nil {
		return "", nil, syscall.EINVAL
	}
	if list := set.List(); len(list) > 0 && width(v) > 0 && list[len(list)-1] >= width(v) {
		return "", nil, syscall.ERANGE
	}
	if _, err := usable(v, set); err != nil {
		return "", nil, err
	}
	return path.Join(path.Dir(name), "smp_affinity_list"), line(cpulist.Format(set)), nil
}

func readIRQ(v sysfs.View, name string) ([]byte, bool, error) {
	b, ok, err := v.Written(path.Join(path.Dir(name), "smp_affinity_list"))
	if !ok || err != nil {
		return nil, false, err
	}
	set, err := cpulist.ParseKernel(string(b))
	if err != nil {
		return nil, false, syscall.EIO
	}
	if strings.Contains(name, "effective") {
		// An x86 vector goes to one CPU; the first is as good as any.
		if set, err = usable(v, set); err != nil {
			return nil, false, nil
		}
		set = cpulist.New(set.List()[0])
	}
	if strings.HasSuffix(name, "_list") {
		return line(cpulist.Format(set)), true, nil
	}
	return line(cpulist.FormatMask(set, width(v))), true, nil
}

// width is how many CPUs the kernel's masks are for, 0 when that is not known.
func width(v sysfs.View) int {
	if list, ok := text(v, "sys/devices/system/cpu/possible"); ok {
		if possible, err := cpulist.ParseKernel(list); err == nil && !possible.IsEmpty() {
			return possible.List()[possible.Size()-1] + 1
		}
	}
	return 0
}

// writeCpufreq checks a governor against those offered, and a limit for being a
// number. A policy without online CPUs is busy.
func writeCpufreq(v sysfs.View, name, value string) ([]byte, error) {
	dir := path.Dir(name)
	if cpus, ok := text(v, dir+"/affected_cpus"); ok && cpus == "" {
		return nil, syscall.EBUSY
	}
	if strings.HasSuffix(name, "preference") {
		offered, _ := text(v, dir+"/energy_performance_available_preferences")
		switch g, ok := text(v, dir+"/scaling_governor"); {
		case !slices.Contains(strings.Fields(offered), value):
			return nil, syscall.EINVAL
		case ok && g == "performance":
			return nil, syscall.EBUSY
		}
		return line(value), nil
	}
	if !strings.HasSuffix(name, "governor") {
		if _, err := strconv.ParseUint(value, 10, 32); err != nil {
			return nil, syscall.EINVAL
		}
		return line(value), nil
	}
	offered, ok := text(v, dir+"/scaling_available_governors")
	if value == "" || ok && offered != "" && !slices.Contains(strings.Fields(offered), value) {
		return nil, syscall.EINVAL
	}
	return line(value), nil
}

// readLimit shows a frequency limit as cpufreq_set_policy leaves it: requests are
// kept as they were made, what is in force is clamped to the hardware's range, the
// lower limit to the upper, and both to the table of a driver that has one, downwards.
func readLimit(v sysfs.View, name string) ([]byte, bool, error) {
	dir := path.Dir(name)
	minName, maxName := dir+"/scaling_min_freq", dir+"/scaling_max_freq"
	_, minWritten, err := v.Written(minName)
	if err != nil {
		return nil, false, err
	}
	_, maxWritten, err := v.Written(maxName)
	if err != nil || !minWritten && !maxWritten {
		return nil, false, err
	}
	lower, okMin := number(v, minName)
	upper, okMax := number(v, maxName)
	if !okMin || !okMax {
		return nil, false, nil
	}
	if hw, ok := number(v, dir+"/cpuinfo_min_freq"); ok {
		lower, upper = max(lower, hw), max(upper, hw)
	}
	if hw, ok := number(v, dir+"/cpuinfo_max_freq"); ok {
		lower, upper = min(lower, hw), min(upper, hw)
	}
	table, _ := text(v, dir+"/scaling_available_frequencies")
	shown := roundDown(min(lower, upper), strings.Fields(table))
	if name == maxName {
		shown = roundDown(upper, strings.Fields(table))
	}
	return line(strconv.FormatInt(shown, 10)), true, nil
}

// roundDown returns the largest frequency of table not above khz, the smallest when
// all are, and khz itself without a table.
func roundDown(khz int64, table []string) int64 {
	below, least := int64(-1), int64(-1)
	for _, word := range table {
		f, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			continue
		}
		if least < 0 || f < least {
			least = f
		}
		if f <= khz && f > below {
			below = f
		}
	}
	switch {
	case below >= 0:
		return below
	case least >= 0:
		return least
	}
	return khz
}

// affinityName is where a thread's affinity is remembered: by its start time too, so
// that a later thread of the same id does not inherit it.
func affinityName(v sysfs.View, status string) (string, error) {
	stat, err := v.Base(path.Dir(status) + "/stat")
	if err != nil {
		return "", syscall.ESRCH
	}
	start, err := procs.ParseStart(string(stat))
	if err != nil {
		return "", syscall.ESRCH
	}
	return "affinity/" + procs.ThreadKey(threadOf(status), start), nil
}

// threadOf returns the thread that a status file is about.
func threadOf(status string) int {
	tid, err := strconv.Atoi(path.Base(path.Dir(status)))
	if err != nil {
		return 0
	}
	return tid
}

func writeAffinity(v sysfs.View, status, value string) (string, []byte, error) {
	set, err := cpulist.ParseKernel(value)
	if err != nil {
		return "", nil, syscall.EINVAL
	}
	if set, err = usable(v, set); err != nil {
		return "", nil, err
	}
	name, err := affinityName(v, status)
	return name, line(cpulist.Format(set)), err
}

func readStatus(v sysfs.View, name string) ([]byte, bool, error) {
	key, err := affinityName(v, name)
	if err != nil {
		return nil, false, nil
	}
	list, ok, err := v.Written(key)
	if !ok || err != nil {
		return nil, false, err
	}
	base, err := v.Base(name)
	if err != nil {
		return nil, false, err
	}
	var b strings.Builder
	for l := range strings.Lines(string(base)) {
		if strings.HasPrefix(l, "Cpus_allowed_list:") {
			l = "Cpus_allowed_list:\t" + strings.TrimSpace(string(list)) + "\n"
		}
		b.WriteString(l)
	}
	return []byte(b.String()), true, nil
}
