package gather

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
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
