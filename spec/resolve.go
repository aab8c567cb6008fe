package spec

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// Resolve evaluates the spec against a node's facts. What the node cannot hold is
// an error with the place that asks for it; what it lacks altogether is a Want
// that says so.
func (s *Spec) Resolve(f *node.Facts) (*Resolved, hcl.Diagnostics) {
	instances, diags := s.evaluate(f)
	out := &Resolved{Root: s.Root, Digest: s.Digest, Reconcile: DefaultReconcile}
	if diags.HasErrors() {
		return out, diags
	}
	if s.Empty() {
		diags = diags.Append(noWorkload())
	}
	r := &resolver{facts: f, claims: map[claimKey]claim{}, conflicts: map[[2]hcl.Range]bool{}, placed: map[string]bool{}}
	for _, in := range instances {
		if v, ok := in.values["device"]; ok && in.workload.body.blocks[string(param.IRQ)] != nil {
			r.placed[v.AsString()] = true
		}
	}
	for _, in := range instances {
		if in.workload == s.reconcile {
			out.Reconcile = readReconcile(in)
			continue
		}
		before := len(r.diags.Errs())
		r.ofBlocks = 0
		out.Workloads = append(out.Workloads, r.workload(in))
		if len(r.diags.Errs())-before > r.ofBlocks {
			r.unfit = append(r.unfit, Part{Workload: in.address()})
		}
	}
	out.Unfit = r.unfit
	sort.Slice(out.Workloads, func(i, j int) bool { return out.Workloads[i].Address < out.Workloads[j].Address })
	return out, once(append(diags, r.diags...))
}

type resolver struct {
	facts     *node.Facts
	diags     hcl.Diagnostics
	claims    map[claimKey]claim
	conflicts map[[2]hcl.Range]bool // places of which a conflict was reported
	placed    map[string]bool       // devices whose interrupts a workload places
	in        *instance
	unfit     []Part
	ofBlocks  int // errors of the workload that are about one of its blocks
}

// A claim remembers who first asked for a setting, to show both places of a conflict.
type claimKey struct {
	kind   param.Kind
	target string
	id     param.ID
}

type claim struct {
	workload string
	value    param.Value
	rng      hcl.Range
}

func (r *resolver) errorAt(rng hcl.Range, summary, format string, args ...any) {
	r.diags = r.diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: rng.Ptr()})
}

// warnAt warns once for each place: for_each says the same of every instance.
func (r *resolver) warnAt(rng hcl.Range, summary, format string, args ...any) {
	for _, d := range r.diags {
		if d.Summary == summary && *d.Subject == rng {
			return
		}
	}
	r.diags = r.diags.Append(&hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: rng.Ptr()})
}

// text returns a string argument, "" when it is not set.
func (r *resolver) text(path string) string {
	if v, ok := r.in.values[path]; ok {
		return v.AsString()
	}
	return ""
}

// place is where the argument at path stands in the source.
func (r *resolver) place(path string) hcl.Range { return r.in.place(path) }

// place is where the argument at path stands in the source, or else the workload.
func (in *instance) place(path string) hcl.Range {
	attr, _, ok := lookup(in.workload.body, path)
	if !ok {
		return in.workload.rng
	}
	return attr.Expr.Range()
}

func (r *resolver) has(block string) bool { return r.in.workload.body.blocks[block] != nil }

func (r *resolver) workload(in *instance) Workload {
	r.in = in
	w := Workload{
		Address: in.address(), Description: r.text("description"), Device: r.text("device"),
		Continue: r.text("on_failure") == "continue", Range: in.workload.rng,
		Match: param.Match{
			Comm: r.text("match.comm"), Exe: r.text("match.exe"), Cmdline: r.text("match.cmdline"),
			Cgroup: r.text("match.cgroup"), User: r.text("match.user"),
		},
	}
	if env, ok := in.values["match.env"]; ok {
		w.Match.Env = map[string]string{}
		for k, v := range env.AsValueMap() {
			w.Match.Env[k] = v.AsString()
		}
	}
	if r.has("match") && w.Match.IsEmpty() {
		r.errorAt(in.workload.body.blocks["match"].rng, "Empty match", "A match block without a condition would match nothing in particular. Give a condition, or leave the block out to mean the processes that name the workload themselves.")
	}
	var dev *node.RDMA
	if w.Device != "" {
		if dev = findRDMA(r.facts, w.Device); dev == nil {
			r.errorAt(r.place("device"), "No such device", "%s", sentence(missingDevice(r.facts, w.Device).Error()))
			return w
		}
	}
	for _, b := range []struct {
		kind param.Kind
		make func(*Want, *node.RDMA)
	}{
		{param.Pinning, r.pinning}, {param.Frequency, r.frequency}, {param.DMALatency, r.dmaLatency}, {param.IRQ, r.irq},
		{param.Coalescing, r.coalescing}, {param.Hint, r.hint},
	} {
		if !r.has(string(b.kind)) {
			continue
		}
		before := len(r.diags.Errs())
		want := Want{Kind: b.kind, Range: in.workload.body.blocks[string(b.kind)].rng}
		if (b.kind == param.IRQ || b.kind == param.Coalescing) && dev == nil {
			r.errorAt(want.Range, "No device", "The workload %q asks for %s but has no device. Name one with device = \"...\".", w.Address, b.kind)
			continue
		}
		b.make(&want, dev)
		r.claim(w.Address, want)
		w.Wants = append(w.Wants, want)
		if n := len(r.diags.Errs()) - before; n > 0 {
			r.ofBlocks += n
			r.unfit = append(r.unfit, Part{w.Address, b.kind})
		}
	}
	w.Guards = in.guards()
	r.advise(w, dev)
	return w
}

// claim remembers what each setting is wanted to be and reports two workloads that
// want one thing differently, at both places.
func (r *resolver) claim(address string, want Want) {
	for _, t := range want.Targets {
		if t.Name == "" {
			continue // which processes these are is known when they are found
		}
		for _, s := range t.Settings {
			key := claimKey{want.Kind, t.Name, s.ID}
			first, taken := r.claims[key]
			if !taken {
				r.claims[key] = claim{address, s.Value, s.Range}
				continue
			}
			places := [2]hcl.Range{first.rng, s.Range}
			if first.value == s.Value || r.conflicts[places] {
				continue
			}
			r.conflicts[places] = true
			row, _ := param.Lookup(s.ID)
			detail := func(a, b string, av, bv param.Value, other hcl.Range) string {
				return fmt.Sprintf("Workload %q wants %s of %s to be %s, but workload %q wants %s at %s.", a, row.Attr, t.Name,
					param.Format(s.ID, av), b, param.Format(s.ID, bv), Place(other))
			}
			r.errorAt(s.Range, "Conflicting workloads", "%s", detail(address, first.workload, s.Value, first.value, first.rng))
			r.errorAt(first.rng, "Conflicting workloads", "%s", detail(first.workload, address, first.value, s.Value, s.Range))
		}
	}
}

// cpus reads a CPU list argument and checks that every CPU is there and online.
func (r *resolver) cpus(path string) (cpulist.Set, bool) {
	want, err := cpulist.ParseStrict(r.text(path))
	if err != nil { // the parser of the argument has accepted it
		r.errorAt(r.place(path), "Invalid CPU list", "%s", sentence(err.Error()))
		return want, false
	}
	rng := r.place(path)
	if r.facts.CPUs.Possible != nil {
		if none := want.Difference(set(r.facts.CPUs.Possible)); !none.IsEmpty() {
			r.errorAt(rng, "No such CPU", "This node has no CPU %s. Found on the node: /sys/devices/system/cpu/possible = %s.", cpulist.Format(none), *r.facts.CPUs.Possible)
			return want, false
		}
	}
	if r.facts.CPUs.Online != nil {
		if off := want.Difference(set(r.facts.CPUs.Online)); !off.IsEmpty() {
			r.errorAt(rng, "Offline CPU", "CPU %s is offline. Found on the node: /sys/devices/system/cpu/online = %s. Leave it out, or bring it online first.", cpulist.Format(off), *r.facts.CPUs.Online)
			return want, false
		}
	}
	return want, true
}

func (r *resolver) pinning(w *Want, _ *node.RDMA) {
	cpus, ok := r.cpus("cpu_pinning.cpus")
	if !ok {
		return
	}
	w.AllThreads = r.text("cpu_pinning.threads") == "all"
	w.Targets = []TargetWant{{Settings: []Setting{{
		Setting: param.Setting{ID: param.PinCPUs, Value: param.Text(cpulist.Format(cpus))}, Range: r.place("cpu_pinning.cpus"),
	}}}}
}

// dmaLatency has one target: the bound is the machine's.
func (r *resolver) dmaLatency(w *Want, _ *node.RDMA) {
	path := "cpu_dma_latency.max_latency"
	w.Targets = []TargetWant{{Name: "machine", Settings: []Setting{{
		Setting: param.Setting{ID: param.DMAMaxLatency, Value: param.Text(r.text(path))}, Range: r.place(path),
	}}}}
}

func (r *resolver) irq(w *Want, dev *node.RDMA) {
	cpus, ok := r.cpus("irq_affinity.cpus")
	if !ok {
		return
	}
	rng := r.place("irq_affinity.cpus")
	if len(dev.IRQs) == 0 {
		if dev.PCI == nil {
			w.Unavailable = fmt.Sprintf("%s has no interrupts of its own (%s)", dev.Name, why(r.facts, "rdma."+dev.Name+".pci"))
			return
		}
		if dev.IRQs == nil {
			r.errorAt(w.Range, "Interrupts not known", "Which interrupt vectors %s (PCI function %s) has is not known: %s.", dev.Name, *dev.PCI, why(r.facts, "rdma."+dev.Name+".irqs"))
			return
		}
		r.errorAt(w.Range, "No interrupts", "No interrupt vector of %s (PCI function %s) was found: msi_irqs is absent or empty and no row of /proc/interrupts names it.", dev.Name, *dev.PCI)
		return
	}
	list := cpus.List()
	strategy := r.text("irq_affinity.strategy")
	if strategy == "one_to_one" && len(dev.IRQs) > len(list) {
		r.errorAt(rng, "Not enough CPUs", "one_to_one needs a CPU for each of the %d vectors of %s, and %s has %d. Use strategy = \"spread\", or give more CPUs.",
			len(dev.IRQs), dev.Name, cpulist.Format(cpus), len(list))
		return
	}
	for i, v := range dev.IRQs {
		cpu := list[0]
		if strategy != "single" {
			cpu = list[i%len(list)]
		}
		w.Targets = append(w.Targets, TargetWant{Name: v.Key, Settings: []Setting{{
			Setting: param.Setting{ID: param.IRQCPUs, Value: param.Text(fmt.Sprint(cpu))}, Range: rng,
		}}})
	}
}

func (r *resolver) coalescing(w *Want, dev *node.RDMA) {
	var settings []Setting
	for _, a := range w.attrs() {
		path := "coalescing." + a
		v, ok := r.in.values[path]
		if !ok {
			continue
		}
		val := param.Value{}
		if v.Type() == cty.Bool {
			val = param.Bool(v.True())
		} else {
			n, _ := v.AsBigFloat().Int64()
			val = param.Int(n)
		}
		settings = append(settings, Setting{Setting: param.Setting{ID: param.ID(path), Value: val}, Range: r.place(path)})
	}
	if len(settings) == 0 {
		r.errorAt(w.Range, "Empty coalescing", "The block sets nothing. Give at least one of %s, or leave it out.", strings.Join(w.attrs(), ", "))
		return
	}
	if len(dev.Netdevs) == 0 || deref(dev.Driver) == "soft" {
		w.Unavailable = fmt.Sprintf("%s has no network device to coalesce for", dev.Name)
		return
	}
	for _, n := range dev.Netdevs {
		w.Targets = append(w.Targets, TargetWant{Name: n, Settings: settings})
	}
}

// attrs lists the attributes of a kind in the order of param.Table.
func (w *Want) attrs() []string {
	var out []string
	for _, row := range param.Table {
		if row.Kind == w.Kind {
			out = append(out, row.Attr)
		}
	}
	return out
}

// Defaults of the hint block. There is no cooldown unless the spec asks for one: a
// connection switches once per generation anyway.
const (
	defaultCompletion     = "adaptive"
	defaultDrainTimeoutMS = 2000
	defaultCooldownMS     = 0
)

func (r *resolver) hint(w *Want, _ *node.RDMA) {
	w.AllOrNone = r.text("hint.on_failure") == "rollback"
	number := func(path string, fallback param.Value) Setting {
		id := param.ID("hint." + path[strings.LastIndexByte(path, '.')+1:])
		v, ok := r.in.values[path]
		if !ok {
			return Setting{Setting: param.Setting{ID: id, Value: fallback}, Range: w.Range}
		}
		n, _ := v.AsBigFloat().Int64()
		return Setting{Setting: param.Setting{ID: id, Value: param.Int(n)}, Range: r.place(path)}
	}
	completion := Setting{Setting: param.Setting{ID: param.HintCompletion, Value: param.Text(defaultCompletion)}, Range: w.Range}
	if c := r.text("hint.completion"); c != "" {
		completion.Value, completion.Range = param.Text(c), r.place("hint.completion")
	}
	override := Setting{Setting: param.Setting{ID: param.HintOverride, Value: param.Bool(true)}, Range: w.Range}
	if v, ok := r.in.values["hint.override"]; ok {
		override.Value, override.Range = param.Bool(v.True()), r.place("hint.override")
	}
	// Not written is the transport's own: one lane, in order.
	lanes := Setting{Setting: param.Setting{ID: param.HintLanes, Value: param.Absent()}, Range: w.Range}
	if l := r.text("hint.lanes"); l != "" {
		lanes.Value, lanes.Range = param.Text(l), r.place("hint.lanes")
	}
	ordered := Setting{Setting: param.Setting{ID: param.HintOrdered, Value: param.Absent()}, Range: w.Range}
	if v, ok := r.in.values["hint.ordered"]; ok {
		ordered.Value, ordered.Range = param.Bool(v.True()), r.place("hint.ordered")
	}
	w.Targets = []TargetWant{{Settings: []Setting{
		number("hint.size", param.Absent()), lanes, completion, ordered, number("hint.eager_max", param.Absent()), override,
		number("hint.switch.drain_timeout", param.Int(defaultDrainTimeoutMS)), number("hint.switch.cooldown", param.Int(defaultCooldownMS)),
	}}}
}

// advise warns of what is allowed but works against its purpose.
func (r *resolver) advise(w Workload, dev *node.RDMA) {
	if r.has("cpu_pinning") && r.has("irq_affinity") {
		both := set(ptr(r.text("cpu_pinning.cpus"))).Intersection(set(ptr(r.text("irq_affinity.cpus"))))
		if !both.IsEmpty() {
			r.warnAt(r.place("irq_affinity.cpus"), "Pinned CPUs take the NIC's interrupts",
				"CPU %s of %q runs pinned threads and also takes interrupts of %s: each interrupt then delays a thread. Use cpuset_subtract to keep them apart.", cpulist.Format(both), w.Address, w.Device)
		}
	}
	if r.has("cpu_pinning") && r.facts.CPUs.Allowed != nil {
		mine := set(ptr(r.text("cpu_pinning.cpus"))).Intersection(set(r.facts.CPUs.Online)) // the others are an error already
		if out := mine.Difference(set(r.facts.CPUs.Allowed)); !out.IsEmpty() {
			r.warnAt(r.place("cpu_pinning.cpus"), "CPUs outside rdmatune's own cpuset",
				"rdmatune itself may not run on CPU %s (Cpus_allowed_list = %s). A process in the same cpuset cannot be pinned there.", cpulist.Format(out), *r.facts.CPUs.Allowed)
		}
	}
	if r.has("coalescing") && dev != nil && dev.PCI != nil && slices.Contains([]string{"mlx5_core", "mlx4_core", "irdma", "bnxt_re", "efa"}, deref(dev.Driver)) {
		r.warnAt(r.in.workload.body.blocks["coalescing"].rng, "Coalescing does not reach userspace queue pairs",
			"On %s (%s) these settings govern the network device's own channels: TCP bootstrap and storage, not the verbs queue pairs of %q.", dev.Name, *dev.Driver, w.Address)
	}
	if !r.has("hint") {
		return
	}
	if v, ok := r.in.values["hint.ordered"]; ok && v.False() && r.text("hint.lanes") != "dual" {
		r.warnAt(r.place("hint.ordered"), "Unordered delivery on one lane", "%q lets small messages pass large ones, but has one lane for both, where they keep their order anyway. Set lanes = \"dual\", or remove ordered.", w.Address)
	}
	size, ok := r.in.values["hint.size"]
	if !ok || size.AsBigFloat().Sign() == 0 {
		return
	}
	var missing []string
	for _, k := range BaseTuning {
		if !r.has(string(k)) && !(k == param.IRQ && r.placed[w.Device]) {
			missing = append(missing, string(k))
		}
	}
	if len(missing) > 0 {
		r.warnAt(r.place("hint.size"), "Hint without base tuning", "%q has a hint but no %s. On an untuned node the tail that a low-latency path could save is lost to migrations, clock changes and misplaced interrupts.",
			w.Address, strings.Join(missing, ", no "))
	}
	if v := deref(r.facts.Virtualised); v != "" {
		r.warnAt(r.place("hint.size"), "Hint on a virtual machine", "This node runs under %s. A hypervisor or a passed-through NIC may accept the profile and not act on it: only a measurement shows whether it has an effect.", v)
	}
	if dev != nil && dev.PhysFn != nil {
		r.warnAt(r.place("hint.size"), "Hint on a virtual function", "%s is a virtual function of %s. The hypervisor's side or the firmware may accept the profile and not act on it: only a measurement shows whether it has an effect.", dev.Name, *dev.PhysFn)
	}
	if dev != nil && dev.VFs != nil && *dev.VFs > 0 {
		r.warnAt(r.place("hint.size"), "Hint on a shared NIC", "%s has %d virtual functions: others use the NIC as well, and its queues are not this workload's alone. A hint of 0 may serve better.", dev.Name, *dev.VFs)
	}
}

func ptr(s string) *string { return &s }
