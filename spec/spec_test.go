package spec

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata")

// testFacts is a small machine: 8 CPUs in 4 cores, CPU 7 offline, CPU 3 isolated,
// two NICs on one NUMA node, one device that lacks most facts.
func testFacts() *node.Facts {
	s := func(v string) *string { return &v }
	n := func(v int) *int { return &v }
	k := func(v int64) *int64 { return &v }
	f := &node.Facts{
		Hostname: s("small"), Kernel: s("6.1.0"),
		CPUs: node.CPUs{Online: s("0-6"), Offline: s("7"), Possible: s("0-7"), Isolated: s("3"), Allowed: s("0-5"), Cores: map[string]string{}},
		NUMA: []node.NUMA{{ID: 0, CPUs: "0-6"}, {ID: 8, CPUs: ""}},
		GPUs: []node.GPU{{PCI: "0000:19:00.0", NUMANode: n(0), LocalCPUs: s("0-6")}},
		Why:  map[string]string{"rdma.odd0.local_cpus": "/sys/class/infiniband/odd0/device/local_cpulist: permission denied"},
	}
	for c := range 7 {
		core := c / 2 * 2
		f.CPUs.Cores[fmt.Sprint(c)] = fmt.Sprintf("%d-%d", core, min(core+1, 6))
	}
	f.CPUs.Cores["6"] = "6"
	for i, name := range []string{"mlx5_0", "mlx5_1"} {
		d := node.RDMA{Name: name, PCI: s(fmt.Sprintf("0000:1%d:00.0", 8+i)), NUMANode: n(0), LocalCPUs: s("0-6"),
			Netdevs: []string{fmt.Sprintf("eth%d", i)}, Driver: s("mlx5_core"), Firmware: s("28.39"), LinkLayer: s("Ethernet"), State: s("ACTIVE")}
		for v := range 3 {
			d.IRQs = append(d.IRQs, node.IRQ{Key: fmt.Sprintf("%s/%d", *d.PCI, v), Number: 40 + 3*i + v})
		}
		f.RDMA = append(f.RDMA, d)
	}
	f.RDMA = append(f.RDMA,
		node.RDMA{Name: "odd0", PCI: s("0000:20:00.0"), IRQs: []node.IRQ{}},
		node.RDMA{Name: "soft0", Driver: s("soft"), Netdevs: []string{"lo"}, LocalCPUs: s("0-6")})
	for c := range 7 {
		f.Cpufreq = append(f.Cpufreq, node.Policy{Policy: fmt.Sprintf("policy%d", c), CPUs: s(fmt.Sprint(c)), Driver: s("acpi-cpufreq"),
			Governor: s("schedutil"), MinKHz: k(1_200_000), MaxKHz: k(3_000_000), HardwareMinKHz: k(1_200_000), HardwareMaxKHz: k(3_000_000),
			AvailableKHz: []int64{1_200_000, 1_800_000, 2_200_000, 2_600_000, 3_000_000}, Governors: []string{"performance", "schedutil"}})
	}
	return f
}

// TestSpecs loads and resolves each archive's *.hcl files and compares all that
// comes out of it with the archive's want section.
func TestSpecs(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			want := -1
			o := Options{Environ: []string{"RDMATUNE_VAR_from_env=7", "RDMATUNE_VAR_other_spec=1"}}
			for i, f := range ar.Files {
				switch {
				case f.Name == "want":
					want = i
				case strings.HasSuffix(f.Name, ".vars"):
					o.Vars = append(o.Vars, VarSource{File: f.Name})
					fallthrough
				default:
					if err := os.WriteFile(f.Name, f.Data, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			for line := range strings.Lines(string(ar.Comment)) {
				if text, ok := strings.CutPrefix(strings.TrimSpace(line), "--var "); ok {
					o.Vars = append(o.Vars, VarSource{Text: text})
				}
			}
			got := runSpec(o)
			if *update {
				if want < 0 {
					ar.Files = append(ar.Files, txtar.File{Name: "want"})
					want = len(ar.Files) - 1
				}
				ar.Files[want].Data = []byte(got)
				if err := os.WriteFile(filepath.Join(packageDir, name), txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want < 0 {
				t.Fatal("the archive has no want section; run with -update")
			}
			if diff := cmp.Diff(string(ar.Files[want].Data), got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

var packageDir, _ = os.Getwd()

// runSpec returns diagnostics and the resolved spec as text.
func runSpec(o Options) string {
	var b bytes.Buffer
	s, diags := Load(".", o)
	if diags.HasErrors() {
		b.WriteString("while loading:\n")
	} else {
		r, rd := s.Resolve(testFacts())
		// Load's warnings come again where they do not depend on the node.
		diags = rd
		dump(&b, r)
	}
	if err := WriteDiagnostics(&b, s.Files, diags, 100, false); err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

func dump(b *bytes.Buffer, r *Resolved) {
	for _, w := range r.Workloads {
		fmt.Fprintf(b, "%s device=%q", w.Address, w.Device)
		if !w.Match.IsEmpty() {
			fmt.Fprintf(b, " match=%+v", w.Match)
		}
		if w.Continue {
			b.WriteString(" on_failure=continue")
		}
		b.WriteByte('\n')
		for _, g := range w.Guards {
			fmt.Fprintf(b, "  guard %q: %s of %d bytes, %d messages, peer %q, p50 <= %s, p99 <= %s, bandwidth >= %d, warn %v\n",
				g.Name, g.Kind, g.Size, g.Count, g.Peer, g.P50Max, g.P99Max, g.BandwidthMin, g.Warn)
		}
		for _, want := range w.Wants {
			fmt.Fprintf(b, "  %s", want.Kind)
			if want.AllThreads {
				b.WriteString(" all-threads")
			}
			if want.AllOrNone {
				b.WriteString(" all-or-none")
			}
			if want.Unavailable != "" {
				fmt.Fprintf(b, " unavailable: %s", want.Unavailable)
			}
			b.WriteByte('\n')
			for _, t := range want.Targets {
				fmt.Fprintf(b, "    %q", t.Name)
				for _, s := range t.Settings {
					row, _ := param.Lookup(s.ID)
					fmt.Fprintf(b, " %s=%s", row.Attr, param.Format(s.ID, s.Value))
				}
				b.WriteByte('\n')
			}
		}
	}
}

// TestDiagnosticsForATerminal: what a spec has that a terminal would obey is not written as
// it is, and the column and the underline stay where they are.
func TestDiagnosticsForATerminal(t *testing.T) {
	name := filepath.Join(t.TempDir(), "n.hcl")
	if err := os.WriteFile(name, []byte("locals {\n  a = \"\x1b[31m\a\x7f\" + nothing\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, diags := Load(name, Options{})
	var b strings.Builder
	if err := WriteDiagnostics(&b, s.Files, diags, 100, false); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if !diags.HasErrors() || strings.ContainsAny(got, "\x1b\a\x7f") || !strings.Contains(got, "   2:   a = \"?[31m??\" + nothing\n") {
		t.Errorf("%q", got)
	}
}
