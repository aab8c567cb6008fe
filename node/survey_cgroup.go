package node

import (
	"path"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/procs"
)

// allowed returns the online CPUs that rdmatune itself may use: its affinity, cut to
// its cpuset. What neither tells of is all that is online.
func (s *survey) allowed() *string {
	if s.online.IsEmpty() {
		s.why("cpus.allowed", "the online CPUs are not known")
		return nil
	}
	set, known := s.online, false
	for line := range strings.Lines(s.optional("/proc/self/status")) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			// The list may name CPUs that are not there.
			if own, err := cpulist.ParseKernel(list); err == nil {
				set, known = set.Intersection(own), true
			}
		}
	}
	if cpuset, ok := s.cpuset(); ok {
		set, known = set.Intersection(cpuset), true
	}
	if !known {
		s.why("cpus.allowed", "neither /proc/self/status nor a cpuset tells")
		return nil
	}
	return formatted(set)
}

// cpuset returns the effective CPUs of rdmatune's cgroup, of v2 where it has them,
// else of v1. The mount points are looked up: they can be anywhere.
func (s *survey) cpuset() (cpulist.Set, bool) {
	unified, legacy := procs.ParseCgroup(s.optional("/proc/self/cgroup"))
	if own := s.optional("/proc/self/cpuset"); legacy == "" {
		legacy = own
	}
	if unified == "" {
		unified = legacy
	}
	mounts := s.optional("/proc/self/mounts")
	if mounts == "" {
		mounts = s.optional("/proc/mounts")
	}
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line) // device, mount point, type, options
		if len(fields) < 4 {
			continue
		}
		options := strings.Split(fields[3], ",")
		var found cpulist.Set
		ok := false
		switch {
		case fields[2] == "cgroup2":
			found, ok = s.climb(fields[1], unified, "cpuset.cpus.effective")
		case fields[2] == "cpuset", fields[2] == "cgroup" && slices.Contains(options, "cpuset"):
			if fields[2] == "cpuset" || slices.Contains(options, "noprefix") {
				found, ok = s.climb(fields[1], legacy, "effective_cpus", "cpus")
			} else {
				found, ok = s.climb(fields[1], legacy, "cpuset.effective_cpus", "cpuset.cpus")
			}
		}
		if ok {
			return found, true
		}
	}
	if mounts == "" && unified != "" {
		return s.climb("/sys/fs/cgroup", unified, "cpuset.cpus.effective")
	}
	return cpulist.New(), false
}

// climb reads the first of files that has CPUs in group below mount, or in the
// nearest ancestor: a cgroup without the cpuset controller has its parent's CPUs.
func (s *survey) climb(mount, group string, files ...string) (cpulist.Set, bool) {
	if group == "" {
		return cpulist.New(), false
	}
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		for _, file := range files {
			if set, err := s.list(path.Join(mount, group, file)); err == nil && !set.IsEmpty() {
				return set, true
			}
		}
		if group == "/" {
			return cpulist.New(), false
		}
	}
}
