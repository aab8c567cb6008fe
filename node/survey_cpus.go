package node

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/cpupolicy"
	"github.com/rdmatune/rdmatune/internal/printable"
)

// processors reads the CPU sets and the cores.
func (s *survey) processors() {
	c := &s.facts.CPUs
	online, err := s.onlineCPUs()
	if err != nil {
		s.why("cpus.online", reason(err))
	} else {
		s.online = online
		c.Online = formatted(online)
	}
	c.Possible = s.listFact("cpus.possible", cpuDir+"/possible")
	if set, err := s.list(cpuDir + "/offline"); err == nil {
		// CPUs that could be there but never were are offline to the kernel.
		if present, err := s.list(cpuDir + "/present"); err == nil {
			set = set.Intersection(present)
		}
		c.Offline = formatted(set)
	} else {
		s.why("cpus.offline", reason(err))
	}
	c.Isolated = s.isolated()
	c.Allowed = s.allowed()
	c.Cores = make(map[string]string, s.online.Size())
	for _, cpu := range s.online.List() {
		c.Cores[strconv.Itoa(cpu)] = cpulist.Format(s.core(cpu))
	}
}

// onlineCPUs reads cpu/online, or else the CPUs' own files: a CPU without the file
// cannot be taken off line.
func (s *survey) onlineCPUs() (cpulist.Set, error) {
	set, err := s.list(cpuDir + "/online")
	if err == nil && !set.IsEmpty() {
		return set, nil
	}
	ids, dirErr := s.fs.Numbered(cpuDir, "cpu")
	ids = slices.DeleteFunc(ids, func(id int) bool { return id >= cpulist.MaxCPUs })
	if dirErr != nil || len(ids) == 0 {
		return cpulist.New(), errors.Join(err, dirErr, errors.New("no CPU is listed in "+cpuDir))
	}
	offline, offErr := s.list(cpuDir + "/offline")
	ids = slices.DeleteFunc(ids, func(id int) bool {
		return s.optional(fmt.Sprintf("%s/cpu%d/online", cpuDir, id)) == "0" || offErr == nil && offline.Contains(id)
	})
	return cpulist.New(ids...), nil
}

// core returns the online CPUs that share a core with cpu. The file's name changed
// in 5.0, very old kernels have the mask only, and without topology every CPU is a
// core.
func (s *survey) core(cpu int) cpulist.Set {
	dir := fmt.Sprintf("%s/cpu%d/topology/", cpuDir, cpu)
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		if set, err := s.list(dir + name); err == nil && set.Contains(cpu) {
			return set.Intersection(s.online)
		}
	}
	if set, err := cpulist.ParseMask(s.optional(dir + "thread_siblings")); err == nil && set.Contains(cpu) {
		return set.Intersection(s.online)
	}
	return cpulist.New(cpu)
}

// isolated returns the CPUs that the scheduler keeps ordinary tasks off: those of
// isolcpus, as the kernel tells them or else from its command line, and those of
// isolated cpuset partitions.
func (s *survey) isolated() *string {
	set, err := s.list(cpuDir + "/isolated")
	if err != nil || set.IsEmpty() {
		fromLine, lineErr := s.isolcpus()
		if err != nil && lineErr != nil {
			s.why("cpus.isolated", reason(err))
			return nil
		}
		set = fromLine
	}
	if more, err := s.list("/sys/fs/cgroup/cpuset.cpus.isolated"); err == nil {
		set = set.Union(more)
	}
	return formatted(set)
}

// isolcpus reads the kernel's command line: isolcpus=[flag,...,]LIST, where a list
// without flags, or with the flag domain, isolates.
func (s *survey) isolcpus() (cpulist.Set, error) {
	line, err := s.fs.ReadString("/proc/cmdline")
	if err != nil {
		return cpulist.New(), err
	}
	last := -1
	if possible, err := s.list(cpuDir + "/possible"); err == nil && !possible.IsEmpty() {
		last = possible.List()[possible.Size()-1]
	}
	for word := range strings.FieldsSeq(line) {
		value, ok := strings.CutPrefix(word, "isolcpus=")
		if !ok {
			continue
		}
		flags, domain := 0, false
		for value != "" && (value[0] < '0' || value[0] > '9') {
			flag, rest, _ := strings.Cut(value, ",")
			if flag == "all" || strings.HasPrefix(flag, "all:") || flag == "N" || strings.HasPrefix(flag, "N-") {
				break
			}
			flags++
			domain = domain || flag == "domain"
			value = rest
		}
		if flags > 0 && !domain {
			return cpulist.New(), nil
		}
		return cpulist.ParseKernelN(value, last)
	}
	return cpulist.New(), nil
}

// numaNodes reads the NUMA nodes. Their ids are labels, with gaps.
func (s *survey) numaNodes() {
	ids, err := s.fs.Numbered(nodeDir, "node")
	if err != nil {
		s.why("numa", reason(err))
		return
	}
	s.facts.NUMA = []NUMA{}
	s.numa = map[int]cpulist.Set{}
	owner := map[int]int{}
	for _, id := range ids {
		path := fmt.Sprintf("numa.%d.cpus", id)
		cpus, err := s.nodeCPUs(id)
		if err != nil {
			s.why(path, reason(err))
			continue
		}
		if !s.online.IsEmpty() {
			cpus = cpus.Intersection(s.online)
		}
		for _, cpu := range cpus.List() {
			if other, taken := owner[cpu]; taken {
				s.why(path, fmt.Sprintf("CPU %d is claimed by node %d as well", cpu, other))
			} else {
				owner[cpu] = id
			}
		}
		s.numa[id] = cpus
		s.facts.NUMA = append(s.facts.NUMA, NUMA{ID: id, CPUs: cpulist.Format(cpus)})
	}
}

// nodeCPUs reads a node's CPUs; some kernels give the mask only.
func (s *survey) nodeCPUs(id int) (cpulist.Set, error) {
	dir := fmt.Sprintf("%s/node%d/", nodeDir, id)
	set, err := s.list(dir + "cpulist")
	if err == nil {
		return set, nil
	}
	mask, maskErr := s.fs.ReadString(dir + "cpumap")
	if maskErr != nil {
		return cpulist.New(), err
	}
	return cpulist.ParseMask(mask)
}

// cpufreq reads the policies. A node without cpufreq has an empty list.
func (s *survey) cpufreq() {
	s.facts.Cpufreq = []Policy{}
	for _, p := range cpupolicy.List(s.fs) {
		path, dir := "cpufreq."+p.Name+".", p.Dir+"/"
		fact := Policy{
			Policy:         p.Name,
			Driver:         s.text(path+"driver", dir+"scaling_driver"),
			Governor:       s.text(path+"governor", dir+"scaling_governor"),
			MinKHz:         s.khz(path+"min_khz", dir+"scaling_min_freq"),
			MaxKHz:         s.khz(path+"max_khz", dir+"scaling_max_freq"),
			HardwareMinKHz: s.khz(path+"hardware_min_khz", dir+"cpuinfo_min_freq"),
			HardwareMaxKHz: s.khz(path+"hardware_max_khz", dir+"cpuinfo_max_freq"),
		}
		if base := dir + "base_frequency"; s.fs.Exists(base) {
			fact.BaseKHz = s.khz(path+"base_khz", base)
		} else {
			s.why("cpufreq.*.base_khz", "the driver tells no base frequency")
		}
		cpus, err := cpupolicy.CPUs(s.fs, p.Dir, "affected_cpus")
		if err != nil {
			s.why(path+"cpus", reason(err))
		} else {
			fact.CPUs = formatted(cpus)
		}
		if g := s.text(path+"governors", dir+"scaling_available_governors"); g != nil {
			fact.Governors = strings.Fields(*g)
		}
		if file := dir + "energy_performance_available_preferences"; s.fs.Exists(file) {
			fact.EnergyPreferences = strings.Fields(printable.Line(s.optional(file)))
		}
		fact.AvailableKHz = s.frequencies(path+"available_khz", dir+"scaling_available_frequencies")
		s.facts.Cpufreq = append(s.facts.Cpufreq, fact)
	}
	if dir := cpuDir + "/intel_pstate"; s.fs.IsDir(dir) {
		s.facts.PState = &PState{}
		if n, err := s.fs.ReadInt(dir + "/no_turbo"); err == nil {
			s.facts.PState.NoTurbo = new(n == 1)
		}
		if n, err := s.fs.ReadInt(dir + "/max_perf_pct"); err == nil && n >= 0 && n <= 100 {
			s.facts.PState.MaxPerfPct = new(int(n))
		}
	}
	if len(s.facts.Cpufreq) == 0 {
		s.why("cpufreq", "this node has no cpufreq: a hypervisor or the firmware sets the clock")
	}
}

// frequencies reads a driver's table of frequencies, ascending.
func (s *survey) frequencies(path, file string) []int64 {
	if !s.fs.Exists(file) {
		s.why("cpufreq.*.available_khz", "the driver takes any frequency in its range")
		return nil
	}
	var table []int64
	for word := range strings.FieldsSeq(s.optional(file)) {
		khz, err := strconv.ParseInt(word, 10, 64)
		if err != nil || khz <= 0 {
			s.why(path, file+": not a list of frequencies")
			return nil
		}
		table = append(table, khz)
	}
	slices.Sort(table)
	return slices.Compact(table)
}
