// Package examples holds real specs for real workloads. Its test plans each
// against a simulated node and holds the plan to the golden file beside it.
package examples

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/audit/live"
	"github.com/rdmatune/rdmatune/doctor"
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/coalesce"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/dmalatency"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// machines are the simulated nodes of examples that are not for sim:dgx.
var machines = map[string]string{"virtual-machine.hcl": "sim:vm", "shared-nic.hcl": "sim:shared"}

func TestExamplesPlan(t *testing.T) {
	specs, err := filepath.Glob("*.hcl")
	if err != nil || len(specs) < 4 {
		t.Fatalf("found %d examples: %v", len(specs), err)
	}
	for _, name := range specs {
		t.Run(name, func(t *testing.T) {
			machine := cmp.Or(machines[name], "sim:dgx")
			got := planOn(t, machine, name)
			golden.Check(t, strings.TrimSuffix(name, ".hcl")+".plan", got)
			if again := planOn(t, machine, name); !bytes.Equal(got, again) {
				t.Error("planning twice gives different bytes")
			}
		})
	}
}

// planOn returns the diagnostics and the plan of a spec, as plan prints them.
func planOn(t *testing.T, ref, name string) []byte {
	t.Helper()
	ctx := t.Context()
	n, err := node.Open(ref, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	facts, err := n.Facts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s, diags := spec.Load(name, spec.Options{})
	var b bytes.Buffer
	if !diags.HasErrors() {
		var r *spec.Resolved
		r, diags = s.Resolve(facts)
		if !diags.HasErrors() {
			set := drivers.NewSet(
				pinning.New(n, nil), cpufreq.New(n.FS()), dmalatency.New(n.FS(), n.Procs(), n.RunDir(), nil), irq.New(n.FS()), coalesce.New(n),
				control.NewDriver(n.RunDir(), func(int, param.Match) (bool, error) { return false, nil }))
			in := plan.Input{Spec: r, State: &state.Document{}, BootID: "test"}
			for _, w := range r.Workloads {
				for _, want := range w.Wants {
					in.Observed = append(in.Observed, set.Observe(ctx, want.Kind, w.Scope(want.Kind)))
				}
			}
			in.Live = others(t, n, facts, r)
			p := plan.Make(in)
			diags = append(diags, p.Diags...)
			if err := p.WriteText(&b, plan.Style{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out bytes.Buffer
	if err := spec.WriteDiagnostics(&out, s.Files, diags, 100, false); err != nil {
		t.Fatal(err)
	}
	if diags.HasErrors() {
		t.Errorf("the example does not plan:\n%s", out.String())
	}
	out.Write(b.Bytes())
	return out.Bytes()
}

// others is what plan is told of who else uses each workload's device.
func others(t *testing.T, n *node.Node, facts *node.Facts, r *spec.Resolved) []plan.Live {
	t.Helper()
	v, err := live.Look(t.Context(), n, live.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	var out []plan.Live
	for _, w := range r.Workloads {
		l := plan.Live{Workload: w.Address}
		for _, u := range doctor.Users(v, w.Device) {
			l.Others = append(l.Others, u.Name+": "+u.Processes)
		}
		out = append(out, l)
	}
	return out
}

// TestInterruptsOffPinnedCPUs: in every example, and in the first one of the language's
// reference, no interrupt may go to a CPU that a workload is pinned to, its own or
// another's.
func TestInterruptsOffPinnedCPUs(t *testing.T) {
	specs, err := filepath.Glob("*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	_, first, begins := strings.Cut(string(doc), "```hcl\n")
	first, _, ends := strings.Cut(first, "```")
	if !begins || !ends {
		t.Fatal("the reference has no example")
	}
	language := filepath.Join(t.TempDir(), "language.hcl")
	if err := os.WriteFile(language, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(specs, language) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if plan := planOn(t, cmp.Or(machines[name], "sim:dgx"), name); bytes.Contains(plan, []byte("Warning:")) && name == language {
				t.Errorf("its plan warns:\n%s", plan)
			}
			n, err := node.Open(cmp.Or(machines[name], "sim:dgx"), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			facts, err := n.Facts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s, diags := spec.Load(name, spec.Options{})
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			r, diags := s.Resolve(facts)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			pinned := cpusOf(t, r, param.PinCPUs)
			placed := cpusOf(t, r, param.IRQCPUs)
			if pinned.IsEmpty() {
				t.Fatal("no workload is pinned")
			}
			if name == language && placed.IsEmpty() {
				t.Error("no interrupt is placed")
			}
			if both := pinned.Intersection(placed); !both.IsEmpty() {
				t.Errorf("interrupts on CPU %s, where workloads are pinned", cpulist.Format(both))
			}
		})
	}
}

// cpusOf are all CPUs that the workloads of r want a setting on.
func cpusOf(t *testing.T, r *spec.Resolved, id param.ID) cpulist.Set {
	t.Helper()
	all := cpulist.New()
	for _, w := range r.Workloads {
		for _, want := range w.Wants {
			for _, target := range want.Targets {
				for _, s := range target.Settings {
					if text, ok := s.Value.AsText(); ok && s.ID == id {
						set, err := cpulist.ParseKernel(text)
						if err != nil {
							t.Fatal(err)
						}
						all = all.Union(set)
					}
				}
			}
		}
	}
	return all
}
