package live

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// chain checks how the threads of p lie to the interrupts of a device that it uses.
func (l *looker) chain(p *Process, u *Use) *Chain {
	threads := cpulist.New()
	for _, th := range p.Threads {
		if set, err := cpulist.ParseKernel(th.CPUs); err == nil {
			threads = threads.Union(set)
		}
	}
	c := &Chain{ThreadCPUs: cpulist.Format(threads), Queues: u.CQs}
	dev := l.device(u.Device)
	if dev == nil {
		c.Verdict = "not checked: the device's interrupts are not known"
		return c
	}
	c.Vectors = p.vectors(u.Device)
	vectors := dev.IRQs
	if own := ofVectors(dev.IRQs, c.Vectors); len(own) > 0 {
		vectors, c.Exact = own, true
	}
	irqs, unknown := cpulist.New(), 0
	for _, v := range vectors {
		if v.Affinity == nil {
			unknown++
			continue
		}
		if set, err := cpulist.ParseKernel(*v.Affinity); err == nil {
			irqs = irqs.Union(set)
		}
	}
	c.Interrupts, c.InterruptCPUs = len(vectors), cpulist.Format(irqs)
	shared := threads.Intersection(irqs)
	c.Shared = cpulist.Format(shared)
	c.Near, c.InterruptsNear = near(threads, dev.LocalCPUs), near(irqs, dev.LocalCPUs)
	c.Verdict = c.nearness(dev.LocalCPUs)
	switch {
	case dev.IRQs == nil && dev.PCI != nil:
		c.Verdict += "; which interrupts the device has is not known"
	case len(dev.IRQs) == 0:
		c.Verdict += "; the device has no interrupts of its own"
	case unknown > 0:
		c.Verdict += "; not readable: the affinity of " + param.Count(unknown, "interrupt")
	case shared.IsEmpty():
		c.Verdict += "; no CPU both runs a thread and takes an interrupt"
	default:
		c.Verdict += "; CPU " + c.Shared + " may run a thread and take interrupts"
	}
	return c
}

// near reports whether CPUs are among those near the device; nil when that is not known.
func near(cpus cpulist.Set, local *string) *bool {
	if local == nil || *local == "" || cpus.IsEmpty() {
		return nil
	}
	set, err := cpulist.ParseKernel(*local)
	if err != nil {
		return nil
	}
	return new(cpus.IsSubsetOf(set))
}

// nearness says of the threads and of the interrupts whether they are near the device.
func (c *Chain) nearness(local *string) string {
	words := map[bool]string{true: "near the device", false: "not all near the device"}
	var said string
	switch t, i := c.Near, c.InterruptsNear; {
	case t == nil && i == nil:
		return "nearness not known"
	case i == nil:
		said = "threads " + words[*t]
	case t == nil:
		said = "interrupts " + words[*i]
	case *t == *i:
		said = "threads and interrupts " + words[*t]
	default:
		said = "threads " + words[*t] + ", interrupts " + words[*i]
	}
	if strings.Contains(said, words[false]) {
		said += " (its CPUs: " + *local + ")"
	}
	return said
}

// vectors are the completion vectors that p's transports tell of a device, nil when
// they do not tell all.
func (p *Process) vectors(device string) []int {
	var out []int
	for _, t := range p.Transports {
		if t.Device != device {
			continue
		}
		for _, c := range t.Conns {
			for _, lane := range c.Lanes {
				if !slices.Contains(out, lane.Vector) {
					out = append(out, lane.Vector)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// ofVectors are the interrupts of completion vectors, as far as their handlers' names
// tell which these are ("mlx5_comp3@pci:..."); nil when one is not told.
func ofVectors(irqs []node.IRQ, vectors []int) []node.IRQ {
	var out []node.IRQ
	for _, v := range vectors {
		at := slices.IndexFunc(irqs, func(q node.IRQ) bool {
			if q.Name == nil {
				return false
			}
			m := completionName.FindStringSubmatch(*q.Name)
			return m != nil && m[1] == strconv.Itoa(v)
		})
		if at < 0 {
			return nil
		}
		out = append(out, irqs[at])
	}
	return out
}

// completionName is what drivers call the interrupt of a completion vector.
var completionName = regexp.MustCompile(`^mlx[45]_comp([0-9]+)(?:@|$)`)

func (l *looker) device(name string) *node.RDMA {
	if l.facts == nil {
		return nil
	}
	i := slices.IndexFunc(l.facts.RDMA, func(d node.RDMA) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &l.facts.RDMA[i]
}
