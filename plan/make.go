package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// Make computes the plan for in.
func Make(in Input) *Plan {
	m := &maker{
		in:      in,
		claimed: map[state.Key]claim{},
		plan: &Plan{
			Policies: map[string]Policy{}, Orders: map[param.Target]param.Order{},
			Generations: map[string]state.Generation{}, Digests: map[string]string{}, Base: in.State.Clone(), BootID: in.BootID, Destroy: in.Destroy,
		},
	}
	m.plan.Notes = append(m.plan.Notes, in.Notes...)
	for addr, g := range in.State.Generations {
		m.plan.Generations[addr] = g
	}
	if in.Destroy {
		m.plan.Base.Refusals = nil // a fresh start may try them again
	}
	// Originals belong to one boot: what an earlier one left is history.
	m.plan.Base.Keep(func(e state.Entry) bool { return e.BootID == in.BootID })
	m.plan.Base.Refusals = slices.DeleteFunc(m.plan.Base.Refusals, func(r state.Refusal) bool { return r.BootID != in.BootID })
	if in.Spec != nil {
		for _, w := range in.Spec.Workloads {
			m.workload(w)
		}
	}
	// A guard that is no longer in the spec needs no verdict. Of a workload of which nothing is
	// known now, that cannot be said.
	m.plan.Base.Unmeasured = slices.DeleteFunc(m.plan.Base.Unmeasured, func(address string) bool {
		return !in.frozenGuard(address) && !slices.ContainsFunc(m.plan.Guards, func(g Guard) bool { return g.Address() == address })
	})
	m.restore()
	m.sort()
	m.noteRejected()
	return m.plan
}

// Rejected reports whether c is what was rolled back when it was made last, as doc has it.
func (p *Plan) Rejected(c Change, doc *state.Document) bool {
	r, ok := doc.Rejections[c.Workload]
	return ok && c.Action != param.Restore && r.Spec == p.Digests[c.Workload] && slices.Contains(r.Kinds, c.Target.Kind)
}

// noteRejected says of which workloads the plan makes again what was rolled back.
func (m *maker) noteRejected() {
	said := map[spec.Part]bool{}
	for _, c := range m.plan.Changes {
		part := spec.Part{Workload: c.Workload, Kind: c.Target.Kind}
		if !said[part] && m.plan.Rejected(c, m.in.State) {
			said[part] = true
			m.note(&m.plan.Notes, c.Workload, c.Target.Kind, "", "the same was rolled back when it was made last (rdmatune experiments list has the run)")
		}
	}
}

type maker struct {
	in      Input
	plan    *Plan
	claimed map[state.Key]claim
	// processes caches processOriginal, for processes of thousands of threads.
	processes map[param.Target]param.Value
}

// A claim is what a workload wants of a setting, and where it says so.
type claim struct {
	workloads []string
	value     param.Value
	rng       hcl.Range
	held      bool // it is in force, or the plan makes it so
}

func (m *maker) observation(workload string, k param.Kind) param.Observation {
	for _, o := range m.in.Observed {
		if o.Workload == workload && o.Kind == k {
			return o
		}
	}
	return param.Observation{Workload: workload, Kind: k}
}

func (m *maker) note(list *[]Note, workload string, k param.Kind, target, format string, args ...any) {
	addr := "workload." + workload + "." + string(k)
	if target != "" {
		addr = Address(workload, param.Target{Kind: k, Name: target})
	}
	*list = append(*list, Note{addr, fmt.Sprintf(format, args...)})
}

// broken says what is wrong with a kind of workloads.
func (m *maker) broken(d *hcl.Diagnostic, kind param.Kind, workloads ...string) {
	m.plan.Diags = m.plan.Diags.Append(d)
	for _, w := range workloads {
		if p := (spec.Part{Workload: w, Kind: kind}); !slices.Contains(m.plan.Broken, p) {
			m.plan.Broken = append(m.plan.Broken, p)
		}
	}
}

func (m *maker) workload(w spec.Workload) {
	policy := Policy{Continue: w.Continue}
	for _, want := range w.Wants {
		policy.AllOrNone = policy.AllOrNone || want.AllOrNone
		if want.Unavailable != "" {
			m.note(&m.plan.Notes, w.Address, want.Kind, "", notHere+"%s", want.Unavailable)
			continue
		}
		o := m.observation(w.Address, want.Kind)
		if o.Unavailable != "" {
			m.note(&m.plan.Notes, w.Address, want.Kind, "", "%s", o.Unavailable)
			continue
		}
		if o.Incomplete != "" {
			m.note(&m.plan.Notes, w.Address, want.Kind, "", "%s", o.Incomplete)
		}
		if o.Err != nil {
			m.broken(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot read " + string(want.Kind),
				Detail: o.Err.Error(), Subject: want.Range.Ptr()}, want.Kind, w.Address)
		}
		switch want.Kind {
		case param.Pinning:
			m.pinning(w, want, o)
		case param.Hint:
			m.hint(w, want, o)
		default:
			m.targets(w, want, o)
		}
	}
	m.plan.Policies[w.Address], m.plan.Digests[w.Address] = policy, digest(w)
	for _, g := range w.Guards {
		m.plan.Guards = append(m.plan.Guards, Guard{
			Workload: w.Address, Device: w.Device, Name: g.Name, Kind: g.Kind, Size: g.Size, Count: g.Count, Peer: g.Peer,
			P50Max: g.P50Max, P99Max: g.P99Max, BandwidthMin: g.BandwidthMin, Warn: g.Warn, Origin: spec.Place(g.Range),
		})
	}
	m.live(w)
}

// digest is of what the spec says of w, whichever targets it finds on the node.
func digest(w spec.Workload) string {
	var lines []string
	for _, want := range w.Wants {
		for _, t := range want.Targets {
			for _, s := range t.Settings {
				lines = append(lines, fmt.Sprintf("%s %s = %s", want.Kind, s.ID, s.Value))
			}
		}
	}
	for _, g := range w.Guards {
		g.Range = hcl.Range{}
		lines = append(lines, fmt.Sprintf("guard %+v", g))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(lines), "\n")))
	return hex.EncodeToString(sum[:8])
}

// targets plans a kind whose targets the spec names.
func (m *maker) targets(w spec.Workload, want spec.Want, o param.Observation) {
	for _, t := range want.Targets {
		i := slices.IndexFunc(o.Found, func(f param.Observed) bool { return f.Target.Name == t.Name })
		if i < 0 {
			if o.Err == nil {
				m.note(&m.plan.Notes, w.Address, want.Kind, t.Name, notHere+"it was not found")
			}
			continue
		}
		order := param.Order{Workload: w.Address}
		for _, s := range t.Settings {
			if m.setting(w, o.Found[i], s, "") {
				order.Want = append(order.Want, s.Setting)
			}
		}
		m.plan.Orders[o.Found[i].Target.Key()] = order
	}
}

// setting plans one wanted setting of a target that was found. index names the
// thread or the connection. It reports whether the setting is in force or is made so: a
// driver may write no other, since nothing remembers what was there before.
func (m *maker) setting(w spec.Workload, found param.Observed, want spec.Setting, index string) (held bool) {
	t := found.Target
	have := param.Setting{Value: param.Unknown("the driver does not report it")}
	if i := slices.IndexFunc(found.Settings, func(s param.Setting) bool { return s.ID == want.ID && s.Index == index }); i >= 0 {
		have = found.Settings[i]
	}
	key := state.Key{Target: t.Key(), ID: want.ID, Index: index}
	if first, taken := m.claimed[key]; taken {
		if first.value != want.Value {
			m.conflict(w, t, want, first)
			return false
		}
		first.workloads = append(first.workloads, w.Address)
		m.claimed[key] = first
		if e := m.plan.Base.Find(m.in.BootID, key); e != nil {
			e.Workloads = slices.Sorted(slices.Values(first.workloads))
		}
		return first.held
	}
	defer func() {
		m.claimed[key] = claim{[]string{w.Address}, want.Value, want.Range, held}
	}()
	e := m.plan.Base.Find(m.in.BootID, key)
	if e != nil {
		e.Workloads = []string{w.Address}
	}
	switch {
	case have.Fixed && have.Value != want.Value:
		m.note(&m.plan.Notes, w.Address, t.Kind, t.Name, "left alone: %s", cmp.Or(have.Note, "it cannot be written here"))
		return false
	case !have.Value.IsKnown():
		row, _ := param.Lookup(want.ID)
		m.broken(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot read a managed setting",
			Detail:  fmt.Sprintf("%s of %s: %s.", row.Attr, Address(w.Address, t), cmp.Or(have.Value.Reason(), "(not observable)")),
			Subject: want.Range.Ptr()}, t.Kind, w.Address)
		return false
	case have.Value == want.Value:
		switch {
		case e != nil:
			e.Written, e.Maybe = have.Value, nil
		case !want.Value.IsAbsent(): // what is not asked for is not managed
			m.plan.Base.Put(state.Entry{BootID: m.in.BootID, Target: key.Target, ID: key.ID, Index: index,
				Original: m.original(w.Address, key, have.Value), Written: have.Value, Workloads: []string{w.Address}})
		}
		return true
	}
	if reason, refused := m.in.State.Refused(m.in.BootID, key); refused {
		m.note(&m.plan.Notes, w.Address, t.Kind, t.Name, "left alone: %s", reason)
		return false
	}
	c := Change{Change: param.Change{
		Workload: w.Address, Target: t, ID: want.ID, Index: index, Action: param.Update,
		Old: have.Value, New: want.Value, Disrupt: param.None, Origin: spec.Place(want.Range), Reason: "spec",
	}}
	if row, ok := param.Lookup(want.ID); ok && (t.Kind != param.Hint || index != "") {
		c.Disrupt = row.Disrupt
	}
	if t.Kind == param.Hint && index != "" {
		c.Action = param.Replace
	}
	if have.Deferred != "" {
		m.plan.Deferred = true
		m.note(&m.plan.Pending, w.Address, t.Kind, t.Name, "%s -> %s: %s", attr(want.ID)+" "+param.Format(want.ID, have.Value), param.Format(want.ID, want.Value), have.Deferred)
		return false
	}
	// What an interrupted apply or destroy may have written is not somebody else's.
	if e != nil && e.Written == want.Value && (e.Maybe == nil || *e.Maybe != have.Value) {
		c.Drift, c.Reason = true, "drift"
	}
	m.plan.Changes = append(m.plan.Changes, c)
	return true
}

func (m *maker) conflict(w spec.Workload, t param.Target, want spec.Setting, first claim) {
	detail := func(a, b string, av, bv param.Value, other hcl.Range) string {
		return fmt.Sprintf("Workloads %q and %q are both about %s %s%s, and want it to have %s and %s. The other place is %s.",
			a, b, t.Kind, t.Name, label(t), param.Format(want.ID, av), param.Format(want.ID, bv), spec.Place(other))
	}
	for _, d := range []*hcl.Diagnostic{
		{Detail: detail(w.Address, first.workloads[0], want.Value, first.value, first.rng), Subject: want.Range.Ptr()},
		{Detail: detail(first.workloads[0], w.Address, first.value, want.Value, want.Range), Subject: first.rng.Ptr()},
	} {
		d.Severity, d.Summary = hcl.DiagError, "Conflicting workloads"
		if !slices.ContainsFunc(m.plan.Diags, func(o *hcl.Diagnostic) bool { return o.Summary == d.Summary && *o.Subject == *d.Subject }) {
			m.broken(d, t.Kind, w.Address, first.workloads[0])
		}
	}
}

func label(t param.Target) string {
	if t.Label == "" {
		return ""
	}
	return " (" + t.Label + ")"
}

// pinning plans the threads of every process that was found.
func (m *maker) pinning(w spec.Workload, want spec.Want, o param.Observation) {
	if len(o.Found) == 0 && o.Err == nil {
		m.note(&m.plan.Pending, w.Address, want.Kind, "", "no process of the workload is running; the daemon, or an apply after its start, pins it")
		return
	}
	for _, t := range want.Targets {
		for _, found := range o.Found {
			own, everywhere := 0, union(found)
			for _, s := range found.Settings {
				if s.ID != param.PinCPUs {
					continue
				}
				if want.AllThreads || m.unpinned(found.Target, s, t.Settings[0].Value, everywhere) {
					m.setting(w, found, t.Settings[0], s.Index)
				} else {
					own++
				}
			}
			if own > 0 {
				are := "threads%s are"
				if own == 1 {
					are = "thread%s is"
				}
				m.note(&m.plan.Notes, w.Address, want.Kind, found.Target.Name, "%d "+are+" pinned by the program itself and left alone (threads = \"all\" would move them)", own, label(found.Target))
			}
		}
	}
}

// unpinned reports whether a thread is subject to threads = "unpinned": one that
// rdmatune pinned before, one that has what is wanted already, or one that may run
// wherever any thread of its process may. A thread that is confined to less was
// confined by its program.
func (m *maker) unpinned(t param.Target, s param.Setting, want, everywhere param.Value) bool {
	return s.Value == want || s.Value == everywhere ||
		m.in.State.Find(m.in.BootID, state.Key{Target: t.Key(), ID: s.ID, Index: s.Index}) != nil
}

// union is the CPUs that any thread of a process may run on.
func union(found param.Observed) param.Value {
	all := cpulist.New()
	seen := map[string]bool{}
	for _, s := range found.Settings {
		text, ok := s.Value.AsText()
		if s.ID != param.PinCPUs || !ok || seen[text] {
			continue
		}
		seen[text] = true
		if cpus, err := cpulist.ParseKernel(text); err == nil {
			all = all.Union(cpus)
		}
	}
	return param.Text(cpulist.Format(all))
}

// hint plans what future processes find and what live ones are told, and raises
// the workload's generation when what its connections follow has changed.
func (m *maker) hint(w spec.Workload, want spec.Want, o param.Observation) {
	wanted := want.Targets[0].Settings
	follows := sha256.New()
	settings := make([]param.Setting, 0, len(wanted))
	override, cooldown := true, false
	for _, s := range wanted {
		if n, ok := s.Value.AsInt(); ok && s.ID == param.Cooldown {
			cooldown = n > 0 // the order brings its own
		}
		settings = append(settings, s.Setting)
		if s.ID == param.HintOverride {
			override, _ = s.Value.AsBool()
		}
		if s.ID != param.DrainTimeout && s.ID != param.Cooldown {
			fmt.Fprintf(follows, "%s=%s\n", s.ID, s.Value)
		}
	}
	digest := hex.EncodeToString(follows.Sum(nil)[:8])
	g := m.plan.Generations[w.Address]
	if g.Follows != digest || g.Rejected {
		g = state.Generation{Counter: g.Counter + 1, Follows: digest}
		m.plan.Generations[w.Address] = g
	}
	for _, found := range o.Found {
		if !cooldown {
			found = undeferred(found)
		}
		m.plan.Orders[found.Target.Key()] = param.Order{Workload: w.Address, Generation: g.Counter, Want: settings}
		for _, s := range wanted {
			m.setting(w, found, s, "")
		}
		for _, s := range found.Settings {
			if s.Index == "" || s.ID != param.HintSize && s.ID != param.HintLanes {
				continue
			}
			if s.ID == param.HintLanes {
				// One lane is how a connection is born: only what is or was otherwise is managed.
				key := state.Key{Target: found.Target.Key(), ID: s.ID, Index: s.Index}
				lanes := lanesOf(wanted)
				managed := s.Value != lanes.Value || m.in.State.Find(m.in.BootID, key) != nil
				if managed && (override || s.Origin != "program" && s.Origin != "environment") {
					m.setting(w, found, lanes, s.Index)
				}
				continue
			}
			if !override && (s.Origin == "program" || s.Origin == "environment") {
				m.note(&m.plan.Notes, w.Address, want.Kind, found.Target.Name, "connection %s follows the program's or its environment's own hint (%s), since override = false", s.Index, s.Note)
				continue
			}
			m.setting(w, found, wanted[0], s.Index)
		}
	}
}

// undeferred returns found without what defers its settings.
func undeferred(found param.Observed) param.Observed {
	found.Settings = slices.Clone(found.Settings)
	for i := range found.Settings {
		found.Settings[i].Deferred = ""
	}
	return found
}
