package plan

import (
	"strings"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// original is what a setting that already has its wanted value goes back to. What
// inherited the value from an earlier apply goes back to what there was before it:
// a thread born since to what its process had, a transport started since to nothing.
func (m *maker) original(workload string, k state.Key, found param.Value) param.Value {
	switch k.Target.Kind {
	case param.Pinning:
		if v, ok := m.processOriginal(k.Target); ok {
			return v
		}
	case param.Hint:
		if !isPublished(k.Target) && m.in.State.Find(m.in.BootID, state.Key{Target: Published(workload), ID: k.ID}) != nil {
			return param.Absent()
		}
	}
	return found
}

// processOriginal is the original of a process's main thread, or of its first
// managed one.
func (m *maker) processOriginal(t param.Target) (param.Value, bool) {
	if m.processes == nil {
		m.processes = map[param.Target]param.Value{}
		for _, e := range m.in.State.Entries {
			key := e.Target.Key()
			if e.BootID != m.in.BootID || key.Kind != param.Pinning {
				continue
			}
			if _, have := m.processes[key]; !have || strings.HasPrefix(e.Index, key.Name+"@") {
				m.processes[key] = e.Original
			}
		}
	}
	v, ok := m.processes[t.Key()]
	return v, ok
}

// attainable returns the part of a setting's original that this machine can have: an
// affinity may name CPUs that could be plugged in and are not. waits says what is needed
// for a write to get nearer to it than have, the value that it has.
func (m *maker) attainable(id param.ID, original, have param.Value) (_ param.Value, waits string) {
	want, ok := affinity(id, original)
	if !ok || have == original || m.in.Online.IsEmpty() {
		return original, ""
	}
	want = want.Intersection(m.in.Present)
	if want.IsEmpty() {
		return original, ""
	}
	now := want.Intersection(m.in.Online)
	if is, ok := affinity(id, have); now.IsEmpty() || ok && now.IsSubsetOf(is) && is.IsSubsetOf(want) && !is.Equals(want) {
		waits = "CPUs " + cpulist.Format(want.Difference(m.in.Online)) + " are offline"
	}
	return param.Text(cpulist.Format(want)), waits
}

// ours is e.Ours, also of what the kernel made of an affinity that an apply wrote and
// did not live to read back.
func (m *maker) ours(e state.Entry, have param.Value) bool {
	if e.Ours(have) {
		return true
	}
	if e.Maybe == nil || m.in.Online.IsEmpty() {
		return false
	}
	wrote, ok := affinity(e.ID, *e.Maybe)
	is, known := affinity(e.ID, have)
	return ok && known && !is.IsEmpty() && is.IsSubsetOf(wrote) && wrote.Intersection(m.in.Online).IsSubsetOf(is)
}

// affinity returns the CPUs that v stands for, where id is of a thread.
func affinity(id param.ID, v param.Value) (cpulist.Set, bool) {
	text, ok := v.AsText()
	if !ok || id != param.PinCPUs {
		return cpulist.New(), false
	}
	set, err := cpulist.ParseKernel(text)
	return set, err == nil
}
