package gather

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

const wholeNode = `
workload "nic" {
  for_each = { for i in range(16) : tostring(i) => "mlx5_${i}" }
  device   = each.value
  irq_affinity {
    cpus = cpus_near(each.value, { cores = 4 })
  }
}
workload "clock" {
  frequency_lock {
    frequency = "2450MHz"
    cpus      = "0-255"
  }
}
`

func source(t testing.TB, ref, text string) (Source, *spec.Spec) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n.hcl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	sp, diags := spec.Load(path, spec.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	n, err := node.Open(ref, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	boot, err := n.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return Source{Node: n, Drivers: drivers.NewSet(cpufreq.New(n.FS()), irq.New(n.FS())), BootID: boot}, sp
}

// TestPartial: a workload whose device is not there is frozen, and the rest is gathered.
func TestPartial(t *testing.T) {
	src, sp := source(t, "sim:small", `
workload "there" {
  device = "mlx5_0"
  irq_affinity {
    cpus = "1"
  }
}
workload "gone" {
  device = "mlx5_9"
  irq_affinity {
    cpus = "1"
  }
}
workload "half" {
  device = "mlx5_1"
  frequency_lock {
    frequency = "2600MHz"
    cpus      = "3"
  }
  irq_affinity {
    cpus = "99"
  }
}
`)
	g, err := src.Gather(t.Context(), sp, false)
	if err != nil || !g.Diags.HasErrors() || len(g.Input.Observed) > 0 {
		t.Fatalf("not partial: %v, %v, %d observations; want an error and none", err, g.Diags, len(g.Input.Observed))
	}
	src.Partial = true
	g, err = src.Gather(t.Context(), sp, false)
	if err != nil || !g.Diags.HasErrors() || !g.Input.Frozen[spec.Part{Workload: "gone"}] || !g.Input.Frozen[spec.Part{Workload: "half", Kind: param.IRQ}] || len(g.Input.Frozen) != 2 {
		t.Fatalf("partial: %v, %v, frozen %v", err, g.Diags, g.Input.Frozen)
	}
	p := plan.Make(g.Input)
	wanted := map[string]bool{}
	for _, c := range p.Changes {
		wanted[c.Workload+"."+string(c.Target.Kind)] = true
	}
	if p.Errored() || !wanted["there.irq_affinity"] || !wanted["half.frequency_lock"] || len(wanted) != 2 {
		t.Errorf("the plan of the rest: %v, %v", p.Diags, wanted)
	}
	// Facts that are known are not found again.
	src.Known = &node.Facts{}
	if g, err = src.Gather(t.Context(), sp, false); err != nil || g.Facts != src.Known {
		t.Errorf("known facts: %v, %p, want %p", err, g.Facts, src.Known)
	}
}

// BenchmarkGather is what a look at a node of 256 CPUs and 4,000 interrupts costs above
// the kernel: its files are in memory.
func BenchmarkGather(b *testing.B) {
	src, sp := source(b, "sim:large", wholeNode)
	b.ReportAllocs()
	for b.Loop() {
		g, err := src.Gather(b.Context(), sp, false)
		if err != nil || g.Diags.HasErrors() {
			b.Fatal(err, g.Diags)
		}
		if p := plan.Make(g.Input); p.Summary().Change != 4256 {
			b.Fatalf("%+v", p.Summary())
		}
		src.Known = g.Facts
	}
}

// TestConfirm: an interrupt shows the CPUs from before a request while the kernel carries
// that out, and what it was asked for at another look. It is not taken for restored; one that
// goes on showing other CPUs is.
func TestConfirm(t *testing.T) {
	written, before, other := param.Text("3"), param.Text("2-3"), param.Text("0")
	for name, c := range map[string]struct {
		shows []param.Value // one read after the other; the last for ever
		want  param.Value
	}{
		"as written":           {[]param.Value{written}, written},
		"moved at this moment": {[]param.Value{before, written}, written},
		"again and again":      {[]param.Value{before, before, before, before, written, before}, written},
		"restored":             {[]param.Value{before}, before},
		"somebody else's":      {[]param.Value{other}, other},
	} {
		synctest.Test(t, func(t *testing.T) {
			src, _ := source(t, "sim:small", "")
			target := param.Target{Kind: param.IRQ, Name: "0000:01:00.0/1"}
			src.Drivers = drivers.NewSet(&showing{values: c.shows})
			doc := &state.Document{}
			doc.Put(state.Entry{BootID: src.BootID, Target: target, ID: param.IRQCPUs, Original: before, Written: written, Workloads: []string{"w"}})
			if err := doc.Save(src.Node.StateDir()); err != nil {
				t.Fatal(err)
			}
			g, err := src.Gather(t.Context(), nil, false)
			if err != nil || len(g.Input.Remembered) != 1 {
				t.Fatalf("%s: %+v, %v", name, g, err)
			}
			if got := g.Input.Remembered[0].Settings[0].Value; got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		})
	}
}

// showing is an interrupt whose reads show one value after the other.
type showing struct {
	drivers.Driver
	values []param.Value
}

func (*showing) Kind() param.Kind { return param.IRQ }

func (d *showing) Read(context.Context, param.Target) ([]param.Setting, error) {
	v := d.values[0]
	if len(d.values) > 1 {
		d.values = d.values[1:]
	}
	return []param.Setting{{ID: param.IRQCPUs, Value: v}}, nil
}
