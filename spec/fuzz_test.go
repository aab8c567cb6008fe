package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/node"
)

// load reads text as a spec file and, when it loads, resolves it.
func load(t testing.TB, text string) (*Resolved, hcl.Diagnostics) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "node.hcl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, diags := Load(name, Options{})
	for _, d := range diags {
		if d.Severity == hcl.DiagError && (d.Subject == nil || d.Summary == "" || d.Detail == "") {
			t.Errorf("an error without a place or a detail: %+v", d)
		}
	}
	if diags.HasErrors() {
		return nil, diags
	}
	return s.Resolve(testFacts())
}

// TestHardInputs feeds files that broke other readers of HCL.
func TestHardInputs(t *testing.T) {
	valid := "workload \"w\" {\n  hint { size = 8 }\n}\n"
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"empty", "", true},
		{"only a comment", "# nothing\n", true},
		{"byte order mark", "\xef\xbb\xbf" + valid, true},
		{"carriage returns", strings.ReplaceAll(valid, "\n", "\r\n"), true},
		{"carriage returns and a heredoc", "workload \"w\" {\r\n  description = <<E\r\n  text\r\nE\r\n}\r\n", true},
		{"a long string", "workload \"w\" {\n  description = \"" + strings.Repeat("x", 1<<20) + "\"\n}\n", true},
		{"a brace alone", "}", false},
		{"NUL", "workload \"\x00\" {}\n", false},
		{"invalid UTF-8", "workload \"\xff\" {}\n", false},
		{"an open string", "workload \"w", false},
		{"an open heredoc", "workload \"w\" {\n  description = <<E\n", false},
		{"an attribute where a block belongs", "workload = 3\n", false},
		{"a block where an attribute belongs", "workload \"w\" {\n  device {}\n}\n", false},
		{"no label", "workload {}\n", false},
		{"two labels", "workload \"a\" \"b\" {}\n", false},
		{"a duplicate attribute", "workload \"w\" {\n  device = \"a\"\n  device = \"b\"\n}\n", false},
		{"a duplicate block", "workload \"w\" {\n  match { comm = \"a\" }\n  match { comm = \"b\" }\n}\n", false},
		{"null where a value is required", "workload \"w\" {\n  hint { size = null }\n}\n", false},
		{"a null in for", "locals {\n  a = [for v in null : v]\n}\n", false},
		{"a splat on null", "locals {\n  a = null[*].x\n  b = null.x\n}\n", false},
		{"deep nesting", "locals {\n  a = " + strings.Repeat("[", 400) + strings.Repeat("]", 400) + "\n}\n", true},
		{"nesting without end", "locals {\n  a = " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "\n}\n", false},
		{"parentheses", "locals {\n  a = " + strings.Repeat("(", 100_000) + "\n}\n", false},
		{"templates in templates", "locals {\n  a = " + strings.Repeat("\"${", 100_000) + "\n}\n", false},
		{"negations", "locals {\n  a = " + strings.Repeat("!", 100_000) + "true\n}\n", false},
		{"a long sum", "locals {\n  a = 1" + strings.Repeat("+1", 100_000) + "\n}\n", false},
		{"deep nesting that does not end", "locals {\n  a = " + strings.Repeat("[", 2000) + "\n}\n", false},
		{"a size that is infinite", "workload \"w\" {\n  hint { size = 1 / 0 }\n}\n", false},
		{"a chain that doubles", "locals {\n  a0 = \"xxxxxxxxxxxxxxxx\"\n" + func() (s string) {
			for i := range 60 {
				s += fmt.Sprintf("  a%d = \"${local.a%d}${local.a%d}\"\n", i+1, i, i)
			}
			return s
		}() + "}\n", false},
		{"locals that repeat each other", "locals {\n  a = [for i in range(1000) : i]\n  b = [for i in local.a : local.a]\n  c = [for i in local.a : local.b]\n}\n", false},
		{"nested directives", "locals {\n  a = \"" + strings.Repeat("%{if true}", 100_000) + "\"\n}\n", false},
		{"a huge range", "locals {\n  a = range(100000000)\n}\n", false},
		{"loops within loops", "locals {\n  a = [for a in range(1024) : [for b in range(1024) : [for c in range(1024) : c]]]\n}\n", false},
		{"loops over loops", "locals {\n  a = length([for x in [for y in range(1024) : range(1024)] : [for z in x : [for a in x : a]]])\n}\n", false},
		{"loops in templates", "locals {\n  a = \"%{for a in range(1024)}%{for b in range(1024)}%{for c in range(1024)}x%{endfor}%{endfor}%{endfor}\"\n}\n", false},
		{"a loop in a loop", "locals {\n  a = flatten([for a in range(8) : [for b in range(a) : \"${a}-${b}\"]])\n}\n", true},
		{"a large loop in a loop", "locals {\n  a = [for a in range(500) : length([for b in range(500) : b])]\n}\n", true},
		{"a huge for_each", "workload \"w\" {\n  for_each = toset([for n in range(1000) : \"${n}-${floor(n / 7)}\"])\n  hint { size = 8 }\n}\n", true},
		{"keys that are no keys", "workload \"w\" {\n  for_each = toset([\"a\\nb\"])\n}\n", false},
		{"an empty key", "workload \"w\" {\n  for_each = { \"\" = 1 }\n}\n", false},
		{"self in for_each", "workload \"w\" {\n  for_each = toset([self.device])\n}\n", false},
		{"a block that refers to itself", "workload \"w\" {\n  cpu_pinning { cpus = self.cpu_pinning.cpus }\n}\n", false},
		{"self alone", "workload \"w\" {\n  description = self\n}\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, diags := load(t, tt.text)
			if diags.HasErrors() == tt.ok {
				t.Errorf("errors: %v", diags)
			}
		})
	}
}

func TestLargeFileIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "large.hcl")
	if err := os.WriteFile(name, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, diags := Load(name, Options{}); !diags.HasErrors() || !strings.Contains(diags.Error(), "larger than") {
		t.Errorf("%v", diags)
	}
	pipe := filepath.Join(t.TempDir(), "pipe.hcl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, filepath.Dir(pipe)} {
		if _, diags := Load(path, Options{}); !diags.HasErrors() || !strings.Contains(diags.Error(), "not a regular file") {
			t.Errorf("a pipe: %v", diags)
		}
	}
	if _, diags := Load(os.DevNull, Options{}); !diags.HasErrors() || !strings.Contains(diags.Error(), "not a regular file") {
		t.Errorf("a device: %v", diags)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("workload \"w\" {\n  device = \"mlx5_0\"\n  cpu_pinning { cpus = cpus_near(self.device, { cores = 1 }) }\n}\n")
	f.Add("locals {\n  a = local.b\n  b = local.a\n}\n")
	f.Add("workload \"w\" {\n  for_each = { a = node.rdma[\"odd0\"].local_cpus }\n  hint { size = each.value }\n}\n")
	f.Add("variable \"v\" {\n  type = list(number)\n  default = [1]\n}\n")
	f.Fuzz(func(t *testing.T, text string) { load(t, text) })
}

// TestWarnings: what is allowed and works against its purpose is said, by facts that
// few machines have.
func TestWarnings(t *testing.T) {
	text := `workload "w" {
  device = "mlx5_0"
  frequency_lock {
    cpus      = "0"
    frequency = "3000MHz"
  }
  hint { size = 8 }
}
`
	name := filepath.Join(t.TempDir(), "node.hcl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, diags := Load(name, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	sixty, all, two, pf := 60, 100, 2, "0000:18:00.0"
	for summary, change := range map[string]func(*node.Facts){
		"A second limit below the lock": func(f *node.Facts) { f.PState = &node.PState{MaxPerfPct: &sixty} },
		"Hint on a virtual function":    func(f *node.Facts) { f.RDMA[0].PhysFn = &pf },
		"Hint on a shared NIC":          func(f *node.Facts) { f.RDMA[0].VFs = &two },
		"Hint on a virtual machine":     func(f *node.Facts) { f.Virtualised = &pf },
		"": func(f *node.Facts) {
			zero := 0
			f.PState, f.RDMA[0].VFs = &node.PState{MaxPerfPct: &all}, &zero
		},
	} {
		f := testFacts()
		change(f)
		_, diags := s.Resolve(f)
		var got []string
		for _, d := range diags {
			if d.Summary != "Hint without base tuning" {
				got = append(got, d.Summary)
			}
		}
		if want := []string{summary}; !slices.Equal(got, want) && (summary != "" || len(got) != 0) {
			t.Errorf("%q: %q", summary, got)
		}
	}
}

// TestTurboOff: a lock above the base frequency says that it cannot hold where turbo is off,
// by the node or by the spec itself.
func TestTurboOff(t *testing.T) {
	yes, no, base := true, false, int64(2_000_000)
	for _, c := range []struct {
		turbo   string // of the spec
		noTurbo *bool  // of the node
		mhz     string
		warns   bool
	}{
		{"", &yes, "3000MHz", true},
		{"", &yes, "2000MHz", false},
		{"", &no, "3000MHz", false},
		{"", nil, "3000MHz", false},
		{"turbo = true", &yes, "3000MHz", false},
		{"turbo = false", &no, "3000MHz", true},
	} {
		name := filepath.Join(t.TempDir(), "n.hcl")
		text := fmt.Sprintf("workload \"w\" {\n  device = \"mlx5_0\"\n  frequency_lock {\n    cpus = \"0\"\n    frequency = %q\n    %s\n  }\n}\n", c.mhz, c.turbo)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, diags := Load(name, Options{})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		f := testFacts()
		f.PState = &node.PState{NoTurbo: c.noTurbo}
		for i := range f.Cpufreq {
			f.Cpufreq[i].BaseKHz = &base
		}
		_, diags = s.Resolve(f)
		warns := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return strings.HasPrefix(d.Detail, "Turbo is off, and ") })
		if warns != c.warns {
			t.Errorf("%+v: %v", c, diags)
		}
	}
}
