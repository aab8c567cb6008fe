package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/node"
)

func TestReconcileBlock(t *testing.T) {
	all := Reconcile{Sweep: 5 * time.Second, ContestedAfter: 3, Window: time.Minute, RestoreOnStop: true, AllowLinkBounce: true, Experiments: 50}
	for name, test := range map[string]struct {
		hcl  string
		want Reconcile
		err  string // a part of the first diagnostic's place and detail
	}{
		"none":  {"", DefaultReconcile, ""},
		"empty": {"reconcile {}", DefaultReconcile, ""},
		"all": {"variable \"after\" { default = 3 }\nreconcile {\n sweep = \"5s\"\n contested_after = var.after\n contested_window = \"1m\"\n" +
			" on_stop = \"restore\"\n link_bounce = \"allow\"\n irqbalance = \"ignore\"\n keep_experiments = 50\n}", all, ""},
		"too often":   {"reconcile {\n sweep = \"10ms\"\n}", Reconcile{}, "n.hcl:2,10: a duration from 1s to 1h0m0s is required, found 10ms"},
		"too long":    {"reconcile {\n contested_window = \"25h\"\n}", Reconcile{}, "n.hcl:2,21: a duration from 1s to 24h0m0s is required"},
		"never":       {"reconcile {\n contested_after = 0\n}", Reconcile{}, "n.hcl:2,20:"},
		"no record":   {"reconcile {\n keep_experiments = 0\n}", Reconcile{}, "n.hcl:2,21:"},
		"other word":  {"reconcile {\n on_stop = \"restor\"\n}", Reconcile{}, "\"restore\""},
		"no argument": {"reconcile {\n sweeps = \"5s\"\n}", Reconcile{}, "n.hcl:2,2: An argument named \"sweeps\" is not expected"},
		"twice":       {"reconcile {}\nreconcile {}", Reconcile{}, "n.hcl:2,1: A spec has at most one reconcile block; the first is at"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "n.hcl")
			if err := os.WriteFile(path, []byte(test.hcl), 0o644); err != nil {
				t.Fatal(err)
			}
			s, diags := Load(path, Options{})
			if test.err != "" {
				got := ""
				for _, d := range diags {
					if d.Severity == hcl.DiagError {
						got += filepath.Base(Place(*d.Subject)) + ": " + d.Detail + "\n"
					}
				}
				if !strings.Contains(strings.ToLower(got), strings.ToLower(test.err)) {
					t.Errorf("got %q, want %q in it", got, test.err)
				}
				return
			}
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			r, diags := s.Resolve(&node.Facts{})
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			if r.Reconcile != test.want {
				t.Errorf("got %+v, want %+v", r.Reconcile, test.want)
			}
		})
	}
}
