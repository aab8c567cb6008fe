package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/node"
)

// TestSource loads specs a second time from what the first time has kept, as JSON, when
// everything on the disk is gone and the environment is another: they are the same.
func TestSource(t *testing.T) {
	const workload = "workload \"w\" {\n  description = \"${var.a} ${var.b} ${var.c}\"\n  irq_affinity {\n    cpus = var.cpus\n  }\n}\n"
	const variables = "variable \"a\" { default = \"a\" }\nvariable \"b\" { default = \"b\" }\nvariable \"c\" { default = \"c\" }\nvariable \"cpus\" { default = \"0-3\" }\n"
	for name, test := range map[string]struct {
		files   map[string]string
		path    string // below the directory
		options func(dir string) Options
		environ []string // that is kept
	}{
		"one file":          {map[string]string{"n.hcl": variables + workload}, "n.hcl", nil, nil},
		"a byte order mark": {map[string]string{"n.hcl": "\xef\xbb\xbf" + variables + workload}, "n.hcl", nil, nil},
		"a directory":       {map[string]string{"b.hcl": workload, "a.hcl": variables, "c.txt": "{"}, "", nil, nil},
		"a warning":         {map[string]string{"n.hcl": variables}, "n.hcl", nil, nil},
		"an empty file":     {map[string]string{"n.hcl": ""}, "", nil, nil},
		"values from everywhere": {map[string]string{"n.hcl": variables + workload, "values": "b = \"from the file\"\ncpus = \"4-5\"\n"}, "n.hcl",
			func(dir string) Options {
				return Options{
					Vars:    []VarSource{{Text: "b=overridden"}, {File: filepath.Join(dir, "values")}, {Text: "c=from the line"}},
					Environ: []string{"PATH=/bin", "RDMATUNE_VAR_a=from the environment", "RDMATUNE_VAR_other=secret"},
				}
			}, []string{"RDMATUNE_VAR_a=from the environment"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var o Options
			if test.options != nil {
				o = test.options(dir)
			}
			first, diags := Load(filepath.Join(dir, test.path), o)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			if want := filepath.Join(dir, test.path); first.Path != want || first.Root == "" {
				t.Errorf("path %q, root %q, want %q", first.Path, first.Root, want)
			}
			b, err := json.Marshal(first.Source())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			t.Setenv("RDMATUNE_VAR_c", "another")
			var src Source
			if err := json.Unmarshal(b, &src); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(src.Environ, test.environ) {
				t.Errorf("keeps %q of the environment, want %q", src.Environ, test.environ)
			}
			second, again := src.Load()
			if diff := cmp.Diff(diags.Error(), again.Error()); diff != "" {
				t.Errorf("other diagnostics (-want +got)\n%s", diff)
			}
			if second.Path != first.Path || second.Root != first.Root || second.Digest != first.Digest {
				t.Errorf("%s %s %s, want %s %s %s", second.Path, second.Root, second.Digest, first.Path, first.Root, first.Digest)
			}
			want, _ := first.Resolve(&node.Facts{})
			got, _ := second.Resolve(&node.Facts{})
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(), cmpopts.IgnoreUnexported(Resolved{})); diff != "" {
				t.Errorf("another spec (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(src, second.Source()); diff != "" {
				t.Errorf("another source (-want +got)\n%s", diff)
			}
		})
	}
}

// TestDamagedSource: what lacks a text, or has one that is no spec, says so.
func TestDamagedSource(t *testing.T) {
	for name, test := range map[string]struct {
		src  Source
		want string
	}{
		"a file":     {Source{Names: []string{"n.hcl"}}, "n.hcl: file does not exist"},
		"a variable": {Source{Names: []string{"n.hcl"}, Texts: map[string][]byte{"n.hcl": nil}, Vars: []VarSource{{File: "/etc/hostname"}}}, "/etc/hostname: file does not exist"},
		"the syntax": {Source{Names: []string{"n.hcl"}, Texts: map[string][]byte{"n.hcl": []byte("workload {")}}, "closing brace"},
	} {
		_, diags := test.src.Load()
		if !diags.HasErrors() || !slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return strings.Contains(d.Detail, test.want) }) {
			t.Errorf("%s: %v, want %q", name, diags, test.want)
		}
	}
}

// TestNoPath: also a spec that is not there has a path.
func TestNoPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone")
	if s, diags := Load(path, Options{}); !diags.HasErrors() || s.Path != path || s.Root != path {
		t.Errorf("path %q, root %q, %v", s.Path, s.Root, diags)
	}
}

// TestGiven: what gives variables their values by other flags is something else, and is known
// also while the spec is wrong.
func TestGiven(t *testing.T) {
	name := filepath.Join(t.TempDir(), "n.hcl")
	if err := os.WriteFile(name, []byte("variable \"x\" {}\nlocals {\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(vars ...VarSource) string {
		s, diags := Load(name, Options{Vars: vars, Environ: []string{EnvPrefix + "x=3"}})
		if !diags.HasErrors() {
			t.Error("half a spec was taken")
		}
		return s.Given()
	}
	a, b := VarSource{Text: "x=1"}, VarSource{Text: "x=2"}
	if got := of(); got != "" {
		t.Errorf("%q with no flag given", got)
	}
	seen := map[string]string{}
	for name, got := range map[string]string{
		"a": of(a), "b": of(b), "a, then b": of(a, b), "b, then a": of(b, a), "a file": of(VarSource{File: "x=1"}),
	} {
		if seen[got] != "" || got == "" {
			t.Errorf("%s and %s are both %q", name, seen[got], got)
		}
		seen[got] = name
	}
	if again := of(a, b); seen[again] != "a, then b" {
		t.Errorf("it is %q the second time", again)
	}
}
