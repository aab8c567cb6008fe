package live

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
)

// notObservable stands for what no interface tells.
const notObservable = "(not observable)"

// maxRows bounds the queue pairs of a process and device that are printed one by one.
const maxRows = 16

// WriteText writes the view for a person.
func (v *View) WriteText(out io.Writer) error {
	var b strings.Builder
	if v.Unobservable != "" {
		fmt.Fprintf(&b, "Queue pairs and other resources of the kernel: %s\n", v.Unobservable)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	for _, p := range v.Problems {
		fmt.Fprintf(&b, "Note: %s%s: %s\n", prefix(p.Device), p.What, p.Reason)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	if len(v.Processes) == 0 {
		b.WriteString("No process has RDMA resources or rdmatune's transport.\n")
	}
	for i := range v.Processes {
		if i > 0 {
			b.WriteByte('\n')
		}
		v.Processes[i].write(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func prefix(device string) string {
	if device == "" {
		return ""
	}
	return device + ": "
}

func (p *Process) write(b *strings.Builder) {
	if p.PID == 0 {
		fmt.Fprintf(b, "%s (%s)\n", p.Comm, p.Who)
	} else {
		fmt.Fprintf(b, "process %d %s", p.PID, p.Comm)
		if p.Workload != "" {
			fmt.Fprintf(b, ", workload %s", p.Workload)
		}
		if p.UID != nil {
			fmt.Fprintf(b, ", user %d", *p.UID)
		}
		if len(p.Namespaces) > 0 {
			fmt.Fprintf(b, ", in %s namespaces of its own", strings.Join(p.Namespaces, ", "))
		}
		b.WriteByte('\n')
	}
	if p.Err != "" {
		fmt.Fprintf(b, "  %s: %s\n", notObservable, p.Err)
	}
	for i := range p.Transports {
		t := &p.Transports[i]
		size := "none"
		if t.Hint.Size != nil {
			size = param.FormatBytes(*t.Hint.Size)
		}
		fmt.Fprintf(b, "  hint %s, from %s (%s on %s)\n", size, t.Hint.Origin, t.Provider, t.Device)
		for _, l := range t.Hint.Losers {
			given := cmp.Or(l.Why, "weaker")
			if l.Size != nil {
				given = param.FormatBytes(*l.Size) + ", weaker"
			}
			fmt.Fprintf(b, "    not from %s (%s)\n", l.Origin, given)
		}
		for _, n := range t.Hint.Notices {
			fmt.Fprintf(b, "    notice: %s\n", n)
		}
	}
	p.writeThreads(b)
	p.writeMemory(b)
	for i := range p.Devices {
		p.Devices[i].write(b)
	}
	for i := range p.Transports {
		for _, c := range p.Transports[i].Conns {
			fmt.Fprintf(b, "  connection %d to %s: sent %s (inline %d, eager %d, rendezvous %d), received %d\n",
				c.ID, c.Peer, param.Count(c.Sent.Messages, "message"), c.Sent.Inline, c.Sent.Eager, c.Sent.Rendezvous, c.Received.Messages)
			if len(c.Sent.Sizes) > 0 {
				fmt.Fprintf(b, "    sizes sent: %s\n", histogram(c.Sent.Sizes))
			}
		}
	}
}

// histogram writes counts by size, each bin by its smallest size.
func histogram(bins []control.Bin) string {
	const most = 12
	var parts []string
	for _, bin := range bins[:min(len(bins), most)] {
		parts = append(parts, fmt.Sprintf("from %s %d", param.FormatBytes(bin.From), bin.Count))
	}
	if len(bins) > most {
		parts = append(parts, "and larger")
	}
	return strings.Join(parts, ", ")
}

// writeThreads writes one line for all threads of the same affinity.
func (p *Process) writeThreads(b *strings.Builder) {
	if len(p.Threads) == 0 {
		return
	}
	type group struct {
		count  int
		self   bool
		last   cpulist.Set
		names  []string
		cpus   string
		memory string
	}
	var groups []*group
	at := map[string]*group{}
	for _, th := range p.Threads {
		g := at[th.CPUs]
		if g == nil {
			g = &group{cpus: th.CPUs, self: th.SelfPinned, last: cpulist.New(), memory: th.Mems}
			at[th.CPUs] = g
			groups = append(groups, g)
		}
		g.count++
		if th.LastCPU != nil {
			g.last = g.last.Union(cpulist.New(*th.LastCPU))
		}
		if !slices.Contains(g.names, th.Comm) && len(g.names) < 3 {
			g.names = append(g.names, th.Comm)
		}
	}
	for _, g := range groups {
		fmt.Fprintf(b, "  %d thread%s (%s) on CPU %s", g.count, plural(g.count), strings.Join(g.names, ", "), g.cpus)
		if !g.last.IsEmpty() {
			fmt.Fprintf(b, ", last on %s", cpulist.Format(g.last))
		}
		if g.memory != "" {
			fmt.Fprintf(b, ", memory of node %s", g.memory)
		}
		if g.self {
			b.WriteString(", pinned by the program itself")
		}
		b.WriteByte('\n')
	}
	if p.CPUSet != "" {
		fmt.Fprintf(b, "  cpuset %s\n", p.CPUSet)
	}
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func (p *Process) writeMemory(b *strings.Builder) {
	if p.Memory == nil {
		return
	}
	m := p.Memory
	size := func(n *int64) string {
		switch {
		case n == nil:
			return notObservable
		case *n < 0:
			return "unlimited"
		}
		return param.FormatBytes(*n)
	}
	if m.Resident == nil && m.Locked == nil && m.Pinned == nil && m.LockLimit == nil && m.Nodes == nil {
		return
	}
	fmt.Fprintf(b, "  memory: locked %s of %s, pinned %s", size(m.Locked), size(m.LockLimit), size(m.Pinned))
	for _, node := range slices.Sorted(maps.Keys(m.Nodes)) {
		fmt.Fprintf(b, ", node %d %s", node, param.FormatBytes(m.Nodes[node]))
	}
	if m.Note != "" {
		fmt.Fprintf(b, ", NUMA nodes %s (%s)", notObservable, m.Note)
	}
	if m.HugePages > 0 {
		fmt.Fprintf(b, ", huge pages %s", param.FormatBytes(m.HugePages))
	}
	b.WriteByte('\n')
}

func (u *Use) write(b *strings.Builder) {
	number := func(n *int) string {
		if n == nil {
			return notObservable
		}
		return strconv.Itoa(*n)
	}
	registered := notObservable
	if u.Registered != nil {
		registered = param.FormatBytes(int64(min(*u.Registered, 1<<62)))
	}
	fmt.Fprintf(b, "  %s: %d queue pair%s", u.Device, len(u.QueuePairs), plural(len(u.QueuePairs)))
	if u.CQs == nil && u.MRs == nil && u.Contexts == nil {
		fmt.Fprintf(b, ", completion queues, memory regions, contexts %s\n", notObservable)
	} else {
		fmt.Fprintf(b, ", completion queues %s, memory regions %s of %s, contexts %s\n", number(u.CQs), number(u.MRs), registered, number(u.Contexts))
	}
	if len(u.QueuePairs) > 0 {
		u.writeQueuePairs(b)
	}
	if c := u.Chain; c != nil {
		vectors := notObservable
		if len(c.Vectors) > 0 {
			vectors = cpulist.Format(cpulist.New(c.Vectors...))
		}
		fmt.Fprintf(b, "    threads on CPU %s -> completion queues %s -> vectors %s -> %s on CPU %s: %s\n",
			cmp.Or(c.ThreadCPUs, "(unknown)"), number(c.Queues), vectors, param.Count(c.Interrupts, "interrupt"), cmp.Or(c.InterruptCPUs, "(none)"), c.Verdict)
	}
}

func (u *Use) writeQueuePairs(b *strings.Builder) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "    QPN\tTYPE\tSTATE\tPEER\tCONNECTION\tPROFILE\tHINT\tINLINE\tDEPTH")
	for _, q := range u.QueuePairs[:min(len(u.QueuePairs), maxRows)] {
		peer := q.PeerAddress
		if q.Peer != nil {
			peer = strings.TrimSpace(fmt.Sprintf("%#x %s", *q.Peer, peer))
		}
		conn, profile, hint, inline, depth := notObservable, notObservable, notObservable, notObservable, notObservable
		if q.Connection != nil {
			conn, profile, hint = strconv.FormatUint(*q.Connection, 10), *q.Profile, "none"
			if q.Hint != nil {
				hint = param.FormatBytes(*q.Hint) + " (" + *q.Origin + ")"
			}
			inline, depth = strconv.Itoa(*q.MaxInline)+" B", fmt.Sprintf("%d/%d", *q.SendWR, *q.RecvWR)
		}
		fmt.Fprintf(w, "    %#x\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", q.Number, q.Type, cmp.Or(q.State, "-"), cmp.Or(peer, "-"), conn, profile, hint, inline, depth)
	}
	w.Flush()
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if more := len(u.QueuePairs) - maxRows; more > 0 {
		fmt.Fprintf(b, "    and %d more (--json lists all)\n", more)
	}
}
