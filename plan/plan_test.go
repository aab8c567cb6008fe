package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

const boot = "boot-1"

func at(line int) hcl.Range {
	return hcl.Range{Filename: "n.hcl", Start: hcl.Pos{Line: line, Column: 3}, End: hcl.Pos{Line: line, Column: 9}}
}

func want(id param.ID, v param.Value, line int) spec.Setting {
	return spec.Setting{Setting: param.Setting{ID: id, Value: v}, Range: at(line)}
}

func irqWant(cpus string, targets ...string) spec.Want {
	w := spec.Want{Kind: param.IRQ, Range: at(1)}
	for _, t := range targets {
		w.Targets = append(w.Targets, spec.TargetWant{Name: t, Settings: []spec.Setting{want(param.IRQCPUs, param.Text(cpus), 2)}})
	}
	return w
}

func irqFound(name, cpus string) param.Observed {
	return param.Observed{Target: param.Target{Kind: param.IRQ, Name: name, Incarnation: "i", Label: "mlx5_comp" + name},
		Settings: []param.Setting{{ID: param.IRQCPUs, Value: param.Text(cpus)}}}
}

func pinWant(cpus string) spec.Want {
	return spec.Want{Kind: param.Pinning, Range: at(3), Targets: []spec.TargetWant{{Settings: []spec.Setting{want(param.PinCPUs, param.Text(cpus), 4)}}}}
}

// process is a found process with threads given as "TID@START=CPUS".
func process(pid string, threads ...string) param.Observed {
	o := param.Observed{Target: param.Target{Kind: param.Pinning, Name: pid, Incarnation: "s" + pid, Label: "app"}}
	for _, t := range threads {
		index, cpus, _ := strings.Cut(t, "=")
		o.Settings = append(o.Settings, param.Setting{ID: param.PinCPUs, Index: index, Value: param.Text(cpus)})
	}
	return o
}

func hintWant(size int64, override bool) spec.Want {
	return spec.Want{Kind: param.Hint, Range: at(5), Targets: []spec.TargetWant{{Settings: []spec.Setting{
		want(param.HintSize, param.Int(size), 6), want(param.HintOverride, param.Bool(override), 7), want(param.Cooldown, param.Int(0), 8),
	}}}}
}

// hintFound is a published hint or, with a process id, what a transport follows;
// conns are its connections' hints.
func hintFound(name string, size param.Value, conns ...param.Value) param.Observed {
	t := param.Target{Kind: param.Hint, Name: name}
	if name[0] != 'p' {
		t.Incarnation, t.Label = "s"+name, "bench"
	}
	override, cooldown := param.Bool(true), param.Int(0)
	if size.IsAbsent() {
		override, cooldown = param.Absent(), param.Absent()
	}
	o := param.Observed{Target: t, Settings: []param.Setting{
		{ID: param.HintSize, Value: size}, {ID: param.HintOverride, Value: override}, {ID: param.Cooldown, Value: cooldown},
	}}
	for i, c := range conns {
		o.Settings = append(o.Settings, param.Setting{ID: param.HintSize, Index: fmt.Sprint(i + 1), Value: c})
	}
	return o
}

func input(doc *state.Document, w ...spec.Workload) Input {
	if doc == nil {
		doc = &state.Document{}
	}
	return Input{Spec: &spec.Resolved{Workloads: w}, State: doc, BootID: boot, Unreadable: map[param.Target]error{}}
}

func (in Input) found(workload string, k param.Kind, os ...param.Observed) Input {
	in.Observed = append(in.Observed, param.Observation{Workload: workload, Kind: k, Found: os})
	return in
}

func entry(t param.Target, id param.ID, index string, original, written param.Value, workloads ...string) state.Entry {
	return state.Entry{BootID: boot, Target: t.Key(), ID: id, Index: index, Original: original, Written: written, Workloads: workloads}
}

func document(es ...state.Entry) *state.Document {
	return &state.Document{Entries: es, Generations: map[string]state.Generation{}}
}

// text is the plan as a person sees it, with its diagnostics, generations and what
// the state says afterwards without any write.
func text(t *testing.T, p *Plan) string {
	t.Helper()
	var b bytes.Buffer
	for _, d := range p.Diags {
		fmt.Fprintf(&b, "error at %s: %s: %s\n", spec.Place(*d.Subject), d.Summary, d.Detail)
	}
	if err := p.WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, w := range slices.Sorted(maps.Keys(p.Generations)) {
		g := p.Generations[w]
		fmt.Fprintf(&b, "generation %s %d rejected=%v\n", w, g.Counter, g.Rejected)
	}
	p.Base.Sort()
	for _, e := range p.Base.Entries {
		fmt.Fprintf(&b, "state %s %s %s%s original %s written %s %v\n", e.Target.Kind, e.Target.Name, attr(e.ID), e.Index, e.Original, e.Written, e.Workloads)
	}
	return b.String()
}

func TestMake(t *testing.T) {
	a, b := "a", "b"
	irq0 := irqFound("x/0", "0-3").Target
	proc := process("10").Target
	published := param.Target{Kind: param.Hint, Name: "published/a"}
	transport := hintFound("20", param.Absent()).Target
	workload := func(addr string, w ...spec.Want) spec.Workload { return spec.Workload{Address: addr, Wants: w} }
	managed := func(in Input) Input { return in.found(a, param.IRQ, irqFound("x/0", "7")) }

	tests := []struct {
		name string
		in   Input
		want string
	}{
		{"update, and a value that is right already becomes managed",
			input(nil, workload(a, irqWant("1", "x/0", "x/10", "x/9"))).found(a, param.IRQ, irqFound("x/0", "1"), irqFound("x/10", "0-3"), irqFound("x/9", "0-3")),
			`rdmatune will perform the following actions, in this order:

  # workload.a.irq_affinity: 2 targets will be updated in-place (n.hcl:2,3)
  ~ ["x/9-10"] cpus 0-3 -> 1

Plan: 2 to change, 0 to replace, 0 to restore.
state irq_affinity x/0 cpus original 1 written 1 [a]
`},
		{"no changes",
			input(document(entry(irq0, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a)), workload(a, irqWant("1", "x/0"))).found(a, param.IRQ, irqFound("x/0", "1")),
			`No changes. The node and its connections are as the spec wants them.
state irq_affinity x/0 cpus original 0-3 written 1 [a]
`},
		{"drift",
			managed(input(document(entry(irq0, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a)), workload(a, irqWant("1", "x/0")))),
			`rdmatune will perform the following actions, in this order:

  # workload.a.irq_affinity["x/0"] (mlx5_compx/0) will be updated in-place (n.hcl:2,3)
  ~ ["x/0"] cpus 7 -> 1 # drift

Plan: 1 to change, 0 to replace, 0 to restore.
state irq_affinity x/0 cpus original 0-3 written 1 [a]
`},
		{"a setting that cannot be written here is a note",
			func() Input {
				f := irqFound("x/0", "0-3")
				f.Settings[0].Fixed, f.Settings[0].Note = true, "kernel-managed"
				return input(nil, workload(a, irqWant("1", "x/0", "x/7"))).found(a, param.IRQ, f)
			}(),
			`Notes:
  workload.a.irq_affinity["x/0"]: left alone: kernel-managed
  workload.a.irq_affinity["x/7"]: not available here: it was not found

No changes. What the spec wants beyond this is not available here.
`},
		{"a setting that cannot be read is an error, also when the whole kind cannot",
			func() Input {
				f := irqFound("x/0", "")
				f.Settings[0].Value = param.Unknown("permission denied")
				in := input(nil, workload(a, irqWant("1", "x/0"), pinWant("1"))).found(a, param.IRQ, f)
				in.Observed = append(in.Observed, param.Observation{Workload: a, Kind: param.Pinning, Err: errors.New("/proc: input/output error")})
				return in
			}(),
			`error at n.hcl:2,3: Cannot read a managed setting: cpus of workload.a.irq_affinity["x/0"]: permission denied.
error at n.hcl:3,3: Cannot read cpu_pinning: /proc: input/output error
The plan has errors and cannot be applied.
`},
		{"what the node does not have is a note",
			func() Input {
				in := input(nil, workload(a, spec.Want{Kind: param.Frequency, Unavailable: "no cpufreq"}, irqWant("1", "x/0")))
				in.Observed = append(in.Observed, param.Observation{Workload: a, Kind: param.IRQ, Unavailable: "not available here: no interrupts"})
				return in
			}(),
			`Notes:
  workload.a.frequency_lock: not available here: no cpufreq
  workload.a.irq_affinity: not available here: no interrupts

No changes. What the spec wants beyond this is not available here.
`},
		{"a workload without a process is pending",
			input(nil, workload(a, pinWant("1"))).found(a, param.Pinning),
			`Pending (decided, but not possible now):
  workload.a.cpu_pinning: no process of the workload is running; the daemon, or an apply after its start, pins it

No changes. What the spec wants beyond this is pending.
`},
		{"threads that the program pinned are left alone",
			input(nil, workload(a, pinWant("1"))).found(a, param.Pinning, process("10", "10@1=0-7", "11@2=0-7", "12@3=5", "13@4=1")),
			`rdmatune will perform the following actions, in this order:

  # workload.a.cpu_pinning["10"] (app) will be updated in-place (n.hcl:4,3)
  ~ ["10"] cpus 0-7 -> 1 # 2 threads

Notes:
  workload.a.cpu_pinning["10"]: 1 thread (app) is pinned by the program itself and left alone (threads = "all" would move them)

Plan: 1 to change, 0 to replace, 0 to restore.
state cpu_pinning 10 cpus13@4 original 1 written 1 [a]
`},
		{"threads that bound themselves one by one are left alone, the first too",
			input(nil, workload(a, pinWant("1"))).found(a, param.Pinning, process("10", "10@1=2", "11@2=3")),
			`Notes:
  workload.a.cpu_pinning["10"]: 2 threads (app) are pinned by the program itself and left alone (threads = "all" would move them)

No changes. The node and its connections are as the spec wants them.
`},
		{"threads = all moves them",
			func() Input {
				w := pinWant("1")
				w.AllThreads = true
				return input(nil, workload(a, w)).found(a, param.Pinning, process("10", "10@1=0-7", "12@3=5"))
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.a.cpu_pinning["10"] (app) will be updated in-place (n.hcl:4,3)
  ~ ["10"] cpus   0-7 -> 1
  ~        cpus#2 5 -> 1

Plan: 1 to change, 0 to replace, 0 to restore.
`},
		{"a thread that was pinned before and moved is drift, one that was born since has its process's original",
			input(document(entry(proc, param.PinCPUs, "10@1", param.Text("0-7"), param.Text("1"), a)), workload(a, pinWant("1"))).
				found(a, param.Pinning, process("10", "10@1=4", "14@9=1")),
			`rdmatune will perform the following actions, in this order:

  # workload.a.cpu_pinning["10"] (app) will be updated in-place (n.hcl:4,3)
  ~ ["10"] cpus 4 -> 1 # drift

Plan: 1 to change, 0 to replace, 0 to restore.
state cpu_pinning 10 cpus10@1 original 0-7 written 1 [a]
state cpu_pinning 10 cpus14@9 original 0-7 written 1 [a]
`},
		{"two workloads about one process",
			input(nil, workload(a, pinWant("1")), workload(b, pinWant("2"))).
				found(a, param.Pinning, process("10", "10@1=0-7")).found(b, param.Pinning, process("10", "10@1=0-7")),
			`error at n.hcl:4,3: Conflicting workloads: Workloads "b" and "a" are both about cpu_pinning 10 (app), and want it to have 2 and 1. The other place is n.hcl:4,3.
rdmatune will perform the following actions, in this order:

  # workload.a.cpu_pinning["10"] (app) will be updated in-place (n.hcl:4,3)
  ~ ["10"] cpus 0-7 -> 1

The plan has errors and cannot be applied.
`},
		{"what two workloads share is one change, and restored with the last",
			input(document(entry(irq0, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a, "gone")), workload(a, irqWant("1", "x/0")), workload(b, irqWant("1", "x/0"))).
				found(a, param.IRQ, irqFound("x/0", "1")).found(b, param.IRQ, irqFound("x/0", "1")),
			`No changes. The node and its connections are as the spec wants them.
state irq_affinity x/0 cpus original 0-3 written 1 [a b]
`},
		{"the first hint: future processes first, then live ones, connections by a switch",
			input(nil, workload(a, hintWant(4096, true))).found(a, param.Hint,
				hintFound("published/a", param.Absent()), hintFound("20", param.Absent(), param.Absent(), param.Int(4096))),
			`rdmatune will perform the following actions, in this order:

  # workload.a.hint will be updated in-place (n.hcl:6,3)
  ~ ["published"] size     (unset) -> 4 KiB
  ~               override (unset) -> true  # 7,3
  ~               cooldown (unset) -> 0s    # 8,3

  # workload.a.hint["20"] (bench) will be updated, and connections switched (n.hcl:6,3)
  ~   ["20"] size               (unset) -> 4 KiB
  +/-        connection[1].size (unset) -> 4 KiB # pause
  ~          override           (unset) -> true  # 7,3
  ~          cooldown           (unset) -> 0s    # 8,3

Plan: 1 to change, 1 to replace, 0 to restore.
generation a 1 rejected=false
state hint 20 size2 original 4096 written 4096 [a]
`},
		{"a new process that found the published hint needs nothing, and would go back to none",
			func() Input {
				doc := document()
				for _, s := range hintFound("published/a", param.Int(4096)).Settings {
					doc.Put(entry(published, s.ID, "", param.Absent(), s.Value, a))
				}
				doc.Generations[a] = Make(input(nil, workload(a, hintWant(4096, true)))).Generations[a]
				return input(doc, workload(a, hintWant(4096, true))).found(a, param.Hint,
					hintFound("published/a", param.Int(4096)), hintFound("20", param.Int(4096), param.Int(4096)))
			}(),
			`No changes. The node and its connections are as the spec wants them.
generation a 1 rejected=false
state hint 20 cooldown original (unset) written 0 [a]
state hint 20 override original (unset) written true [a]
state hint 20 size original (unset) written 4096 [a]
state hint 20 size1 original (unset) written 4096 [a]
state hint published/a cooldown original (unset) written 0 [a]
state hint published/a override original (unset) written true [a]
state hint published/a size original (unset) written 4096 [a]
`},
		{"a generation that was rolled back is followed by a new one",
			func() Input {
				doc := document()
				g := Make(input(nil, workload(a, hintWant(4096, true)))).Generations[a]
				g.Counter, g.Rejected = 6, true
				doc.Generations[a] = g
				return input(doc, workload(a, hintWant(4096, true))).found(a, param.Hint, hintFound("published/a", param.Int(4096)))
			}(),
			`No changes. The node and its connections are as the spec wants them.
generation a 7 rejected=false
state hint published/a cooldown original 0 written 0 [a]
state hint published/a override original true written true [a]
state hint published/a size original 4096 written 4096 [a]
`},
		{"override = false leaves a connection to its program",
			func() Input {
				f := hintFound("20", param.Int(4096), param.Int(64))
				f.Settings[1].Value = param.Bool(false)
				f.Settings[3].Origin, f.Settings[3].Note = "environment", "RDMA_LOW_LATENCY_HINT=64"
				return input(nil, workload(a, hintWant(4096, false))).found(a, param.Hint, f)
			}(),
			`Notes:
  workload.a.hint["20"]: connection 1 follows the program's or its environment's own hint (RDMA_LOW_LATENCY_HINT=64), since override = false

No changes. The node and its connections are as the spec wants them.
generation a 1 rejected=false
state hint 20 cooldown original 0 written 0 [a]
state hint 20 override original false written false [a]
state hint 20 size original 4096 written 4096 [a]
`},
		{"a connection in its cooldown is pending, unless the order brings another one",
			func() Input {
				w := hintWant(4096, true)
				w.Targets[0].Settings[2].Value = param.Int(60_000)
				f := hintFound("20", param.Int(4096), param.Absent())
				f.Settings[2].Value = param.Int(60_000)
				f.Settings[3].Deferred = "cooldown, 7m left"
				return input(nil, workload(a, w), workload(b, hintWant(8, true))).found(a, param.Hint, f).
					found(b, param.Hint, func() param.Observed {
						g := hintFound("21", param.Int(8), param.Absent())
						g.Settings[3].Deferred = "cooldown, 7m left"
						return g
					}())
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.b.hint["21"] (bench) will be updated, and connections switched (n.hcl:6,3)
  +/- ["21"] connection[1].size (unset) -> 8 B # pause

Pending (decided, but not possible now):
  workload.a.hint["20"]: size (unset) -> 4 KiB: cooldown, 7m left

Plan: 0 to change, 1 to replace, 0 to restore.
generation a 1 rejected=false
generation b 1 rejected=false
state hint 20 cooldown original 60000 written 60000 [a]
state hint 20 override original true written true [a]
state hint 20 size original 4096 written 4096 [a]
state hint 21 cooldown original 0 written 0 [b]
state hint 21 override original true written true [b]
state hint 21 size original 8 written 8 [b]
`},
		{"what could not be looked at is a note",
			func() Input {
				in := input(nil, workload(a, pinWant("1")))
				in.Observed = append(in.Observed, param.Observation{Workload: a, Kind: param.Pinning, Incomplete: "process 1 could not be examined"})
				return in
			}(),
			`Pending (decided, but not possible now):
  workload.a.cpu_pinning: no process of the workload is running; the daemon, or an apply after its start, pins it

Notes:
  workload.a.cpu_pinning: process 1 could not be examined

No changes. What the spec wants beyond this is pending.
`},
		{"destroy restores what is still ours, and says what is not",
			func() Input {
				in := input(document(
					entry(irq0, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a),
					entry(irqFound("x/1", "").Target, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a),
					entry(irqFound("x/2", "").Target, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a),
					entry(irqFound("gone", "").Target, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a),
					entry(irqFound("x/4", "").Target, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a),
					state.Entry{BootID: "an earlier boot", Target: irq0.Key(), ID: param.IRQCPUs, Original: param.Text("9"), Written: param.Text("1")},
				))
				in.Unreadable[irqFound("x/4", "").Target.Key()] = errors.New("permission denied")
				in.Remembered = []param.Observed{irqFound("x/0", "1"), irqFound("x/1", "0-3"), irqFound("x/2", "5")}
				return in
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.a.irq_affinity["x/0"] (mlx5_compx/0) will be restored
  - ["x/0"] cpus 1 -> 0-3

Notes:
  workload.a.irq_affinity["x/2"]: left alone: somebody has changed cpus to 5 since rdmatune wrote 1; --force restores the original 0-3

Not observable:
  workload.a.irq_affinity["x/4"]: its original is kept: permission denied

Plan: 0 to change, 0 to replace, 1 to restore.
state irq_affinity x/0 cpus original 0-3 written 1 [a]
state irq_affinity x/2 cpus original 0-3 written 1 [a]
state irq_affinity x/4 cpus original 0-3 written 1 [a]
`},
		{"an interrupted apply may have left either value",
			func() Input {
				e := entry(irq0, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a)
				v := param.Text("2")
				e.Maybe = &v
				in := input(document(e))
				in.Remembered = []param.Observed{irqFound("x/0", "2")}
				return in
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.a.irq_affinity["x/0"] (mlx5_compx/0) will be restored
  - ["x/0"] cpus 2 -> 0-3

Plan: 0 to change, 0 to replace, 1 to restore.
state irq_affinity x/0 cpus original 0-3 written 1 [a]
`},
		{"what an interrupted destroy may have put back is no drift",
			func() Input {
				e := entry(irq0, param.IRQCPUs, "", param.Text("0-3"), param.Text("1"), a)
				v := param.Text("0-3")
				e.Maybe = &v
				return input(document(e), workload(a, irqWant("1", "x/0"))).found(a, param.IRQ, irqFound("x/0", "0-3"))
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.a.irq_affinity["x/0"] (mlx5_compx/0) will be updated in-place (n.hcl:2,3)
  ~ ["x/0"] cpus 0-3 -> 1

Plan: 1 to change, 0 to replace, 0 to restore.
state irq_affinity x/0 cpus original 0-3 written 1 [a]
`},
		{"a process that does not answer keeps its originals, its connections' too",
			func() Input {
				in := input(document(entry(transport, param.HintSize, "", param.Absent(), param.Int(4096), a),
					entry(transport, param.HintSize, "1", param.Absent(), param.Int(4096), a)))
				silent := hintFound("20", param.Absent())
				for i := range silent.Settings {
					silent.Settings[i].Value = param.Unknown("no answer")
				}
				in.Remembered = []param.Observed{silent}
				return in
			}(),
			`Not observable:
  workload.a.hint["20"]: its original is kept: the value is not observable
  workload.a.hint["20"]: its original is kept: the value is not observable (no answer)

No changes. What is managed but not observable is left as it is.
state hint 20 size original (unset) written 4096 [a]
state hint 20 size1 original (unset) written 4096 [a]
`},
		{"an unset original is not written back to the kernel",
			func() Input {
				policy := param.Target{Kind: param.Frequency, Name: "policy0"}
				in := input(document(entry(policy, param.Governor, "", param.Absent(), param.Text("performance"), a)))
				in.Remembered = []param.Observed{{Target: policy, Settings: []param.Setting{{ID: param.Governor, Value: param.Text("performance")}}}}
				return in
			}(),
			`Notes:
  workload.a.frequency_lock["policy0"]: governor stays performance: it was unset before, and the kernel takes no unset value back

No changes. The node and its connections are as the spec wants them.
`},
		{"restoring threads takes those along that were born since, and not those that went elsewhere",
			func() Input {
				in := input(document(entry(proc, param.PinCPUs, "10@1", param.Text("0-7"), param.Text("1"), a)))
				in.Remembered = []param.Observed{process("10", "10@1=1", "15@8=1", "16@9=3")}
				return in
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.a.cpu_pinning["10"] (app) will be restored
  - ["10"] cpus 1 -> 0-7 # 2 threads

Plan: 0 to change, 0 to replace, 1 to restore.
state cpu_pinning 10 cpus10@1 original 0-7 written 1 [a]
`},
		{"a hint that is no longer wanted goes with a higher generation",
			func() Input {
				doc := document(entry(published, param.HintSize, "", param.Absent(), param.Int(4096), a),
					entry(transport, param.HintSize, "", param.Absent(), param.Int(4096), a),
					entry(transport, param.HintSize, "1", param.Absent(), param.Int(4096), a))
				doc.Generations[a] = state.Generation{Counter: 4, Follows: "x"}
				in := input(doc)
				p, q := hintFound("published/a", param.Int(4096)), hintFound("20", param.Int(4096), param.Int(4096), param.Int(4096))
				p.Settings, q.Settings = p.Settings[:1], slices.Delete(q.Settings, 1, 3)
				in.Remembered = []param.Observed{p, q}
				return in
			}(),
			`rdmatune will perform the following actions, in this order:

  # workload.a.hint: 2 targets will be restored
  - ["published"] size               4 KiB -> (unset)
  - ["20"]        size               4 KiB -> (unset) # bench
  -               connection[1].size 4 KiB -> (unset) # pause
  -               connection[2].size 4 KiB -> (unset) # pause

Plan: 0 to change, 0 to replace, 2 to restore.
generation a 5 rejected=false
state hint 20 size original (unset) written 4096 [a]
state hint 20 size1 original (unset) written 4096 [a]
state hint published/a size original (unset) written 4096 [a]
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Make(tt.in)
			if diff := cmp.Diff(tt.want, text(t, p)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			var j bytes.Buffer
			if err := p.WriteJSON(&j, nil); err != nil {
				t.Fatal(err)
			}
			var doc struct {
				Changes []struct{ Address string }
				Summary Summary
			}
			if err := json.Unmarshal(j.Bytes(), &doc); err != nil || doc.Summary != p.Summary() || len(doc.Changes) != len(p.groups()) {
				t.Errorf("the JSON differs from the plan: %v\n%s", err, j.String())
			}
		})
	}
}

// TestOrder checks that the plan does not depend on the order of what is found.
func TestOrder(t *testing.T) {
	var first string
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		targets := []string{"x/0", "x/1", "x/2", "x/10"}
		w := spec.Workload{Address: "a", Wants: []spec.Want{irqWant("1", targets...), pinWant("1"), hintWant(1, true)}}
		var irqs, procs, hints []param.Observed
		for _, n := range targets {
			irqs = append(irqs, irqFound(n, "0-3"))
		}
		for i := range 3 {
			pid := fmt.Sprint(9 + i)
			procs = append(procs, process(pid, pid+"@1=0-3", "100@2=0-3"))
			hints = append(hints, hintFound(pid, param.Absent(), param.Absent()))
		}
		hints = append(hints, hintFound("published/a", param.Absent()))
		for _, s := range [][]param.Observed{irqs, procs, hints} {
			r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		}
		p := Make(input(nil, w).found("a", param.IRQ, irqs...).found("a", param.Pinning, procs...).found("a", param.Hint, hints...))
		got := text(t, p)
		if first == "" {
			first = got
		}
		if got != first {
			t.Fatalf("the same findings in another order give another plan:\n%s", cmp.Diff(first, got))
		}
	}
	kinds := []string{"cpu_pinning", "irq_affinity", "a.hint", `["published"]`, `["9"]`, `["10"]`, `["11"]`}
	rest := first
	for _, k := range kinds {
		i := strings.Index(rest, k)
		if i < 0 {
			t.Fatalf("%q does not come where it should in\n%s", k, first)
		}
		rest = rest[i:]
	}
}

func TestOnlyDrift(t *testing.T) {
	p := &Plan{}
	if p.OnlyDrift() {
		t.Error("an empty plan is no drift")
	}
	p.Changes = []Change{{Drift: true}, {Drift: true}}
	if !p.OnlyDrift() {
		t.Error("all drift")
	}
	p.Changes = append(p.Changes, Change{})
	if p.OnlyDrift() {
		t.Error("one is not drift")
	}
}

// A connection is switched also when only its lanes are to be others.
func TestLanesOfConnections(t *testing.T) {
	lanes := func(v param.Value, size int64) spec.Workload {
		w := hintWant(size, true)
		w.Targets[0].Settings = append(w.Targets[0].Settings, want(param.HintLanes, v, 9))
		return spec.Workload{Address: "w", Wants: []spec.Want{w}}
	}
	found := func(size int64, have string) param.Observed {
		o := hintFound("77", param.Int(size), param.Int(size))
		o.Settings = append(o.Settings, param.Setting{ID: param.HintLanes, Index: "1", Value: param.Text(have)},
			param.Setting{ID: param.HintLanes, Value: param.Absent()})
		return o
	}
	for name, tc := range map[string]struct {
		want   param.Value
		size   int64
		have   string
		change string
	}{
		"one to two":             {param.Text("dual"), 8192, "single", "dual"},
		"two to one":             {param.Text("single"), 8192, "dual", "single"},
		"two, not asked for":     {param.Absent(), 8192, "dual", "single"},
		"as it is":               {param.Text("dual"), 8192, "dual", ""},
		"one, not asked for":     {param.Absent(), 8192, "single", ""},
		"without a hint, no two": {param.Text("dual"), 0, "single", ""},
		"two, without a hint":    {param.Text("dual"), 0, "dual", "single"},
	} {
		p := Make(input(nil, lanes(tc.want, tc.size)).found("w", param.Hint, found(tc.size, tc.have)))
		got := ""
		for _, c := range p.Changes {
			if c.Index == "1" && c.ID == param.HintLanes {
				got, _ = c.New.AsText()
				if c.Action != param.Replace {
					t.Errorf("%s: action %s", name, c.Action)
				}
			}
		}
		if got != tc.change {
			t.Errorf("%s: change to %q, want %q: %+v", name, got, tc.change, p.Changes)
		}
	}
	// What an apply has made of it is wanted still, and not taken back.
	target := param.Target{Kind: param.Hint, Name: "77", Incarnation: "s77", Label: "bench"}
	doc := &state.Document{Entries: []state.Entry{entry(target, param.HintLanes, "1", param.Text("single"), param.Text("dual"), "w")}}
	for _, c := range Make(input(doc, lanes(param.Text("dual"), 8192)).found("w", param.Hint, found(8192, "dual"))).Changes {
		if c.ID == param.HintLanes && c.Index == "1" {
			t.Errorf("the lanes of an apply are changed: %+v", c)
		}
	}
}

// TestReleaseDrains: the way back may take as long as the way there did.
func TestReleaseDrains(t *testing.T) {
	published := param.Target{Kind: param.Hint, Name: "published/a"}
	transport := hintFound("20", param.Int(8), param.Int(8))
	in := input(document(
		entry(published, param.DrainTimeout, "", param.Absent(), param.Int(60_000), "a"),
		entry(transport.Target, param.HintSize, "", param.Absent(), param.Int(8), "a"),
	))
	in.Remembered = []param.Observed{transport}
	p := Make(in)
	o := p.Orders[transport.Target.Key()]
	if !o.Release || o.Drain != time.Minute {
		t.Errorf("order %+v, want a release with one minute to drain; changes %v", o, p.Changes)
	}
}

// TestMergedRows: many interrupts of a function that are spread over CPUs, or were, are one
// row, and what is said of some of them only keeps those apart. Few are rows of their own.
func TestMergedRows(t *testing.T) {
	irq := func(function string, i int, from, to string, drift bool) group {
		return group{workload: "a", action: param.Update, target: param.Target{Kind: param.IRQ, Name: fmt.Sprintf("%s/%d", function, i)},
			changes: []Change{{Change: param.Change{ID: param.IRQCPUs, Old: param.Text(from), New: param.Text(to)}, Drift: drift}}}
	}
	var gs []group
	for i := range 8 {
		gs = append(gs, irq("x", i, "0-15", fmt.Sprint(i%6), false))
	}
	few := gs[:4]
	gs = append(gs, irq("x", 8, "0-15", "9", true), irq("x", 9, "0-15", "10", true), irq("x", 10, "0-15", "2-3", false))
	for i := range 5 {
		gs = append(gs, irq("y", i, "0-15", fmt.Sprint(i+8), false))
	}
	for i := range 5 {
		gs = append(gs, irq("z", i, fmt.Sprint(i), "0-15", false))
	}
	for i := range 5 { // as a balancer has left them
		gs = append(gs, irq("b", i, fmt.Sprint(i), fmt.Sprint(15-i), false))
	}
	for _, c := range []struct {
		name   string
		groups []group
		want   string
	}{
		{"many", gs, `
  # workload.a.irq_affinity: 26 targets will be updated in-place
  ~ ["x/0-7"] cpus 0-15 -> one each of 0-5
  ~ ["x/8-9"] cpus 0-15 -> one each of 9-10             # drift
  ~ ["x/10"]  cpus 0-15 -> 2-3
  ~ ["y/0-4"] cpus 0-15 -> one each of 8-12
  ~ ["z/0-4"] cpus one each of 0-4 -> 0-15
  ~ ["b/0-4"] cpus one each of 0-4 -> one each of 11-15
`},
		{"few", few, `
  # workload.a.irq_affinity: 4 targets will be updated in-place
  ~ ["x/0"] cpus 0-15 -> 0
  ~ ["x/1"] cpus 0-15 -> 1
  ~ ["x/2"] cpus 0-15 -> 2
  ~ ["x/3"] cpus 0-15 -> 3
`},
	} {
		var b strings.Builder
		writeSection(&b, c.groups, Style{})
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
