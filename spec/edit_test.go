package spec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSetHint edits and looks at every character that is left.
func TestSetHint(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		size  int64
		lanes string
		want  string
		was   string
	}{
		"in place": {
			text: "# mine\nworkload \"a\" { device = \"x\" }\n\nworkload \"w\" {\n\tdevice   =   \"mlx5_0\"   # the NIC\n  hint {\n    # a comment\n    size  = \"16KiB\" # why\n    lanes = \"dual\"\n  }\n}\n",
			size: 8192, was: `"16KiB"`,
			want: "# mine\nworkload \"a\" { device = \"x\" }\n\nworkload \"w\" {\n\tdevice   =   \"mlx5_0\"   # the NIC\n  hint {\n    # a comment\n    size  = \"8KiB\" # why\n    lanes = \"dual\"\n  }\n}\n",
		},
		"an expression": {
			text: "workload \"w\" {\n  hint { size = median_hint({ \"4KiB\" = 1 }) }\n}\n", size: 0, was: `median_hint({ "4KiB" = 1 })`,
			want: "workload \"w\" {\n  hint { size = 0 }\n}\n",
		},
		"on one line, and lanes": {
			text: "workload \"w\" {\n  hint { size = 1 }\n}\n", size: 4096, lanes: "dual", was: "1",
			want: "workload \"w\" {\n  hint {\n    size = \"4KiB\"\n    lanes = \"dual\"\n  }\n}\n",
		},
		"a workload on one line": {
			text: "workload \"w\" { device = \"x\" }\n", size: 4096,
			want: "workload \"w\" {\n  device = \"x\"\n  hint {\n    size = \"4KiB\"\n  }\n}\n",
		},
		"an empty workload": {
			text: "workload \"w\" {}\n", size: 4096,
			want: "workload \"w\" {\n  hint {\n    size = \"4KiB\"\n  }\n}\n",
		},
		"a comment before the brace": {
			text: "workload \"w\" {\n  device = \"x\"\n  /* multi\n   line */ }\n", size: 4096,
			want: "workload \"w\" {\n  device = \"x\"\n  /* multi\n   line */ \n  hint {\n    size = \"4KiB\"\n  }\n}\n",
		},
		"Windows lines, more of them": {
			text: "workload \"w\" {\r\n  device = \"x\"\r\n}\r\n", size: 4096,
			want: "workload \"w\" {\r\n  device = \"x\"\r\n  hint {\r\n    size = \"4KiB\"\r\n  }\r\n}\r\n",
		},
		"Windows lines": {
			text: "workload \"w\" {\r\n  hint {\r\n    size = 1 // x\r\n  }\r\n}\r\n", size: 4096, was: "1",
			want: "workload \"w\" {\r\n  hint {\r\n    size = \"4KiB\" // x\r\n  }\r\n}\r\n",
		},
		"no hint yet": {
			text: "workload \"w\" {\n  device = \"mlx5_0\"\n}\n", size: 5000, lanes: "dual",
			want: "workload \"w\" {\n  device = \"mlx5_0\"\n  hint {\n    size  = \"5000B\"\n    lanes = \"dual\"\n  }\n}\n",
		},
		"lanes, too": {
			text: "workload \"w\" {\n  hint {\n    size = 1\n  }\n}\n", size: 1 << 20, lanes: "single", was: "1",
			want: "workload \"w\" {\n  hint {\n    size = \"1MiB\"\n    lanes = \"single\"\n  }\n}\n",
		},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "node.hcl")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, diags := Load(dir, Options{})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		e, err := s.SetHint("w", tc.size, tc.lanes)
		if diff := cmp.Diff(tc.want, string(e.New)); err != nil || diff != "" || e.Was != tc.was || e.File != file || string(e.Old) != tc.text {
			t.Errorf("%s: %v, %q was %q (-want +got)\n%s", name, err, e.File, e.Was, diff)
		}
		if _, err := s.SetHint("nonsense", 1, ""); err == nil {
			t.Errorf("%s: a workload that is not there was edited", name)
		}
		if err := os.WriteFile(file, e.New, 0o600); err != nil {
			t.Fatal(err)
		}
		again, diags := Load(dir, Options{})
		if diags.HasErrors() {
			t.Fatalf("%s: the edited spec: %v", name, diags)
		}
		if _, err := again.SetHint("w", tc.size, tc.lanes); err == nil {
			t.Errorf("%s: the same edit again changes something", name)
		}
	}
}
