package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// tuning checks what the node has of base tuning.
func (e *examiner) tuning() {
	e.frequency()
	e.idleStates()
	e.interrupts()
	e.numaBalancing()
	e.memlock()
	e.bounceBuffers()
	e.hugePages()
	e.isolation()
}

// isolation says which CPUs the scheduler leaves alone.
func (e *examiner) isolation() {
	f := Finding{Check: "isolation", Subject: "node", Level: Unknown, Message: "which CPUs are isolated is not told"}
	value := "(" + e.why("cpus.isolated") + ")"
	if e.Facts.CPUs.Isolated != nil {
		value = orNone(*e.Facts.CPUs.Isolated)
		f.Level, f.Message = Fine, "isolated CPUs: "+value
	}
	f.Evidence = []Evidence{{"/sys/devices/system/cpu/isolated", value}}
	e.add(f)
}

// frequency says whether the CPUs near NICs have a fixed frequency.
func (e *examiner) frequency() {
	f := Finding{Check: "frequency", Subject: "node", Level: Unknown, Message: "no cpufreq: the frequency is not this kernel's to set"}
	locked, free := 0, []string{}
	for _, p := range e.Facts.Cpufreq {
		if p.MinKHz != nil && p.MaxKHz != nil && *p.MinKHz == *p.MaxKHz {
			locked++
			continue
		}
		free = append(free, p.Policy)
	}
	if len(e.Facts.Cpufreq) > 0 {
		first := e.Facts.Cpufreq[0]
		f.Evidence = []Evidence{
			{"/sys/devices/system/cpu/cpufreq/" + first.Policy + "/scaling_governor", orUnknown(first.Governor)},
			{"policies with scaling_min_freq = scaling_max_freq", fmt.Sprintf("%d of %d", locked, len(e.Facts.Cpufreq))},
		}
		f.Level, f.Message = Warning, fmt.Sprintf("%d of %s free to change the frequency", len(free), param.Count(len(e.Facts.Cpufreq), "policy"))
		f.Why, f.Do = "a core that clocks up first answers late", "frequency_lock in the spec, for the cores that the workload runs on"
		if locked > 0 {
			f.Level, f.Message, f.Why, f.Do = Fine, param.Count(locked, "policy")+" locked to one frequency", "", ""
		}
	}
	e.add(f)
}

// idleStates says whether idle CPUs may sleep deeply.
func (e *examiner) idleStates() {
	driver, ok := e.read("/sys/devices/system/cpu/cpuidle/current_driver")
	f := Finding{Check: "idle-states", Subject: "node", Level: Unknown, Message: "which idle states there are is not told", Evidence: []Evidence{driver}}
	deepest, worst := "", int64(0)
	dir := "/sys/devices/system/cpu/cpu0/cpuidle"
	states, err := e.fs.Numbered(dir, "state")
	for _, s := range states[:min(len(states), 32)] {
		state := fmt.Sprintf("%s/state%d", dir, s)
		if off, err := e.fs.ReadInt(state + "/disable"); err == nil && off != 0 {
			continue
		}
		if us, err := e.fs.ReadInt(state + "/latency"); err == nil && us > worst {
			worst, deepest = us, state
		}
	}
	limit, _ := e.read("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us")
	f.Evidence = append(f.Evidence, limit)
	switch {
	case ok && driver.Value == "none", err != nil && ok:
		f.Level, f.Message = Fine, "no idle states under this kernel's control"
	case err != nil:
	case limit.Value == "n/a":
		f.Level, f.Message = Fine, "idle states are forbidden (CPU 0)"
	case worst > 50 && (limit.Value == "0" || limit.Value == ""):
		f.Level, f.Message = Warning, fmt.Sprintf("CPU 0 may sleep in a state that takes %d us to wake from", worst)
		f.Evidence = append(f.Evidence, Evidence{deepest + "/latency", strconv.FormatInt(worst, 10)})
		f.Why, f.Do = "a message that waits for a sleeping core waits that long: it is the tail of an event-driven receiver", `cstate_max_latency = "2us" in the spec's frequency_lock`
	default:
		f.Level, f.Message = Fine, "idle states are shallow or limited"
	}
	e.add(f)
}

// interrupts says whether each NIC's interrupts are near it.
func (e *examiner) interrupts() {
	for _, d := range e.Facts.RDMA {
		if hardware(d) && d.IRQs == nil {
			e.add(Finding{Check: "interrupts", Subject: d.Name, Level: Unknown, Message: "which interrupts it has is not known", Evidence: []Evidence{{"interrupts", "(" + e.why("rdma."+d.Name+".irqs") + ")"}}})
			continue
		}
		if !hardware(d) || len(d.IRQs) == 0 || d.LocalCPUs == nil {
			continue
		}
		local, err := cpulist.ParseKernel(*d.LocalCPUs)
		if err != nil {
			continue
		}
		far, unknown := placed(d.IRQs, local)
		count := param.Count(len(d.IRQs), "interrupt")
		f := Finding{
			Check: "interrupts", Subject: d.Name, Level: Fine, Message: count + " near the device",
			Evidence: []Evidence{{"local CPUs", orNone(*d.LocalCPUs)}, {"interrupts on other CPUs", strconv.Itoa(far)}},
		}
		if unknown > 0 {
			// One that is not known may be a far one: the others being near is not enough.
			f.Level, f.Message = Unknown, fmt.Sprintf("which CPUs take %d of %s is not known", unknown, count)
			f.Evidence = append(f.Evidence, Evidence{"interrupts of unknown affinity", fmt.Sprintf("%d (%s)", unknown, e.why("rdma."+d.Name+".irqs.affinity"))})
		}
		if far > 0 {
			f.Level, f.Message = Warning, fmt.Sprintf("%d of %s on CPUs of another NUMA node", far, count)
			f.Why, f.Do = "completions then cross the socket link twice", "irq_affinity in the spec"
		}
		e.add(f)
	}
}

// placed counts the interrupts that go to none of the local CPUs, and those of which it is
// not known where they go.
func placed(irqs []node.IRQ, local cpulist.Set) (far, unknown int) {
	for _, v := range irqs {
		if v.Affinity == nil {
			unknown++
		} else if set, err := cpulist.ParseKernel(*v.Affinity); err != nil {
			unknown++
		} else if set.Intersection(local).IsEmpty() {
			far++
		}
	}
	return far, unknown
}

func (e *examiner) numaBalancing() {
	ev, ok := e.read("/proc/sys/kernel/numa_balancing")
	f := Finding{Check: "numa-balancing", Subject: "node", Level: Fine, Message: "off", Evidence: []Evidence{ev}}
	switch {
	case !ok:
		f.Level, f.Message = Unknown, "whether it is on cannot be read"
	case ev.Value != "0" && len(e.Facts.NUMA) < 2:
		f.Message = "on, with nothing to balance: there is one NUMA node"
	case ev.Value != "0":
		f.Level, f.Message = Warning, "automatic NUMA balancing is on"
		f.Why, f.Do = "the kernel unmaps pages to see who uses them: faults in the middle of the work, though not of registered memory", "sysctl kernel.numa_balancing=0, where processes are pinned anyway"
	}
	e.add(f)
}

// memlock checks how much memory a process may lock, which registering does.
func (e *examiner) memlock() {
	subject, path := "this user", "/proc/self/limits"
	f := Finding{Check: "memlock", Subject: subject, Level: Unknown, Message: "the limit cannot be read"}
	text, err := e.fs.ReadString(path)
	if err != nil {
		f.Evidence = []Evidence{{path, reason(err)}}
		e.add(f)
		return
	}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		f.Evidence = []Evidence{{path, "Max locked memory " + words[0]}}
		n, err := strconv.ParseInt(words[0], 10, 64)
		switch {
		case words[0] == "unlimited":
			f.Level, f.Message = Fine, "memory may be locked without limit"
		case err != nil:
		case n < 1<<30:
			f.Level, f.Message = Warning, fmt.Sprintf("at most %d bytes may be locked", n)
			f.Why, f.Do = "registering memory locks it: larger buffers fail with ENOMEM, except for root", "ulimit -l unlimited (limits.conf, LimitMEMLOCK= of the service, the container's limits)"
		default:
			f.Level, f.Message = Fine, fmt.Sprintf("%d bytes may be locked", n)
		}
	}
	e.add(f)
}

// bounceBuffers says whether DMA goes through copies.
func (e *examiner) bounceBuffers() {
	cmdline, cmdlineErr := e.fs.ReadString("/proc/cmdline")
	info, infoErr := e.fs.ReadString("/proc/cpuinfo")
	var evidence []Evidence
	for w := range strings.FieldsSeq(cmdline) {
		if value, ok := strings.CutPrefix(w, "swiotlb="); ok && slices.Contains(strings.Split(value, ","), "force") {
			evidence = append(evidence, Evidence{"/proc/cmdline", clip(w)})
		}
	}
	for _, flag := range []string{"tdx_guest", "sev_guest"} {
		if slices.Contains(strings.Fields(info), flag) {
			evidence = append(evidence, Evidence{"/proc/cpuinfo flags", flag})
		}
	}
	if ev, ok := e.read("/sys/kernel/debug/swiotlb/io_tlb_used"); ok {
		evidence = append(evidence, ev)
	}
	f := Finding{Check: "bounce-buffers", Subject: "node", Level: Fine, Message: "nothing forces DMA through bounce buffers", Evidence: evidence}
	for _, unread := range []struct {
		path string
		err  error
	}{{"/proc/cmdline", cmdlineErr}, {"/proc/cpuinfo", infoErr}} {
		if unread.err != nil {
			f.Level, f.Message = Unknown, "whether DMA goes through bounce buffers is not told"
			f.Evidence = append(f.Evidence, Evidence{unread.path, reason(unread.err)})
		}
	}
	for _, ev := range evidence {
		if ev.Path != "/sys/kernel/debug/swiotlb/io_tlb_used" {
			f.Level, f.Message = Warning, "DMA may go through bounce buffers"
			f.Why, f.Do = "each transfer is then copied by a CPU, pinned memory or not", "drop swiotlb=force; in a confidential machine there is no other way"
		}
	}
	e.add(f)
}

func (e *examiner) hugePages() {
	dir := "/sys/kernel/mm/hugepages/hugepages-2048kB"
	total, ok := e.read(dir + "/nr_hugepages")
	free, _ := e.read(dir + "/free_hugepages")
	thp, _ := e.read("/sys/kernel/mm/transparent_hugepage/enabled")
	f := Finding{Check: "huge-pages", Subject: "node", Level: Fine, Message: "huge pages reserved: " + total.Value, Evidence: []Evidence{total, free, thp}}
	if !ok {
		f.Level, f.Message = Unknown, "huge pages cannot be read"
	} else if total.Value == "0" {
		f.Message = "no huge pages reserved; transparent ones: " + thp.Value
	}
	e.add(f)
}

// daemons finds tuning daemons that undo each other's work.
func (e *examiner) daemons() {
	running := map[string][]int{}
	pids, err := e.Node.Procs().PIDs()
	if err != nil {
		e.add(Finding{Check: "daemons", Subject: "node", Level: Unknown, Message: "processes cannot be listed", Evidence: []Evidence{{"/proc", reason(err)}}})
		return
	}
	seen := 0
	for _, pid := range pids {
		comm, err := e.Node.Procs().Comm(pid)
		if err != nil {
			continue
		}
		seen++
		if comm == "irqbalance" || comm == "tuned" || comm == "power-profiles-" || comm == "tlp" {
			running[comm] = append(running[comm], pid)
		}
	}
	if seen == 0 {
		// Captures hold few processes or none, which is no sign of what ran.
		e.add(Finding{Check: "daemons", Subject: "node", Level: Unknown, Message: "whether irqbalance or tuned is running is not told", Evidence: []Evidence{{"/proc", "(no process)"}}})
		return
	}
	if len(running) == 0 {
		e.add(Finding{Check: "daemons", Subject: "node", Level: Fine, Message: "neither irqbalance nor tuned is running"})
		return
	}
	f := Finding{Check: "daemons", Subject: "node", Level: Warning}
	var names []string
	for name, pids := range running {
		names = append(names, name)
		f.Evidence = append(f.Evidence, Evidence{fmt.Sprintf("/proc/%d/comm", pids[0]), name})
	}
	slices.Sort(names)
	slices.SortFunc(f.Evidence, func(a, b Evidence) int { return strings.Compare(a.Value, b.Value) })
	f.Message = strings.Join(names, " and ") + " running"
	f.Why = "irqbalance moves interrupts within seconds, tuned sets governors and its own interrupt affinity: what rdmatune sets becomes drift"
	f.Do = "ban the NIC's interrupts in irqbalance (IRQBALANCE_BANNED_CPULIST or --banirq), and let one tool alone set frequencies"
	if len(running) > 1 {
		f.Message += ": they fight over the same files"
	}
	e.add(f)
}
