package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/spec"
)

// A variant is one of the specs that the daemon is given.
type variant struct {
	trainer *trainer // nil: the spec has none
	server  *server
	restore bool // on_stop = "restore"
	note    int  // a comment, so that two files differ that want the same
}

// A trainer is a workload on rxe1 with all that a spec can ask for.
type trainer struct {
	pin      string // CPU list
	mhz      int
	governor string
	idle     int    // us
	irq      string // CPU list of which the first takes all vectors
	usecs    int
	latency  int // us, of the whole machine
}

// A server is a workload on rxe0.
type server struct {
	pin, irq string
	usecs    int
}

// canonical is the spec at which samples of different times are compared.
func canonical() variant {
	return variant{
		trainer: &trainer{pin: "2", mhz: 2200, governor: "performance", idle: 2, irq: "2", usecs: 0, latency: 3},
		server:  &server{pin: "0", irq: "1", usecs: 20},
	}
}

// randomVariant draws a spec.
func randomVariant(r *rand.Rand) variant {
	v := variant{restore: r.IntN(4) == 0, note: r.IntN(1000)}
	if r.IntN(5) > 0 {
		v.trainer = &trainer{
			pin: pick(r, "2", "1", "1-2", "2-3"), mhz: pick(r, 1800, 2200, 2600), governor: pick(r, "performance", "powersave"),
			idle: pick(r, 2, 7), irq: pick(r, "0", "1", "2", "1-2"), usecs: pick(r, 0, 50, 250), latency: pick(r, 3, 11),
		}
	}
	if v.trainer == nil || r.IntN(5) > 0 { // a daemon takes a spec without a workload for a mistake
		v.server = &server{pin: pick(r, "0", "1"), irq: pick(r, "0", "1"), usecs: pick(r, 0, 20, 100)}
	}
	return v
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Patience of the daemon: a setting is given up after this many rewrites by others.
const (
	contestedAfter  = 4
	contestedWindow = 20 // seconds
)

// text is the spec as a file.
func (v variant) text() string {
	var b strings.Builder
	stop := "leave"
	if v.restore {
		stop = "restore"
	}
	fmt.Fprintf(&b, "# %d\nreconcile {\n  sweep = \"2s\"\n  contested_after = %d\n  contested_window = \"%ds\"\n  on_stop = %q\n}\n",
		v.note, contestedAfter, contestedWindow, stop)
	if t := v.trainer; t != nil {
		fmt.Fprintf(&b, `
workload "trainer" {
  device = "rxe1"
  match {
    comm = "trainer"
  }
  cpu_pinning {
    cpus = %q
  }
  cpu_dma_latency {
    max_latency = "%dus"
  }
  frequency_lock {
    frequency          = "%dMHz"
    governor           = %q
    cstate_max_latency = "%dus"
  }
  irq_affinity {
    cpus     = %q
    strategy = "single"
  }
  coalescing {
    rx_usecs = %d
  }
}
`, t.pin, t.latency, t.mhz, t.governor, t.idle, t.irq, t.usecs)
	}
	if s := v.server; s != nil {
		fmt.Fprintf(&b, `
workload "server" {
  device = "rxe0"
  match {
    comm = "server"
  }
  cpu_pinning {
    cpus = %q
  }
  irq_affinity {
    cpus     = %q
    strategy = "single"
  }
  coalescing {
    rx_usecs = %d
  }
}
`, s.pin, s.irq, s.usecs)
	}
	return b.String()
}

// invalidText is what somebody left in the middle of an edit.
func invalidText(r *rand.Rand) string {
	return pick(r, "workload \"trainer\" {\n", "workload \"trainer\" {\n  device = \"rxe1\"\n  cpu_pinning {\n    cpus = \"x\"\n  }\n}\n", "<<<<<<< HEAD\n")
}

// first is the first CPU of a list.
func first(list string) string {
	one, _, _ := strings.Cut(list, "-")
	return one
}

// cpus are the CPUs of a list of this file.
func cpus(list string) []int {
	var from, to int
	if n, _ := fmt.Sscanf(list, "%d-%d", &from, &to); n < 2 {
		to = from
	}
	var out []int
	for c := from; c <= to; c++ {
		out = append(out, c)
	}
	return out
}

// TestVariants holds the drawn specs to what the daemon reads: each is valid, and each text
// that is meant to be invalid is that.
func TestVariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	load := func(text string) error {
		path := filepath.Join(t.TempDir(), "node.hcl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, diags := spec.Load(path, spec.Options{})
		if diags.HasErrors() {
			return diags
		}
		return nil
	}
	for range 200 {
		if v := randomVariant(r); load(v.text()) != nil {
			t.Fatalf("%v in:\n%s", load(v.text()), v.text())
		}
		if text := invalidText(r); load(text) == nil {
			t.Fatalf("valid: %s", text)
		}
	}
	if err := load(canonical().text()); err != nil {
		t.Error(err)
	}
}
