package fence

import (
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/rdmatune/rdmatune/"

// allowed says which packages of this module each package may import. A row ending
// in /... is for all packages below it; the longest row that fits is taken. Adding
// an edge is a reviewed line here.
var allowed = map[string][]string{
	"param":                      {},
	"internal/cpulist":           {},
	"internal/sysfs":             {},
	"internal/ethnl":             {},
	"internal/rdmanl":            {"internal/printable"},
	"internal/procs":             {"param", "internal/sysfs", "internal/cpulist"},
	"internal/gpu":               {"internal/pci"},
	"internal/printable":         {},
	"internal/walog":             {},
	"internal/smallfile":         {},
	"internal/peercred":          {},
	"internal/natural":           {},
	"internal/rundir":            {},
	"internal/pci":               {},
	"internal/fixture":           {},
	"internal/golden":            {},
	"internal/irqbalance":        {"internal/peercred", "internal/procs", "internal/smallfile"},
	"internal/rivals":            {"internal/procs"},
	"internal/cpupolicy":         {"internal/cpulist", "internal/sysfs"},
	"internal/interrupts":        {"internal/cpulist", "internal/pci", "internal/sysfs"},
	"node":                       {"param", "internal/..."},
	"spec":                       {"param", "node", "internal/cpulist", "internal/smallfile"},
	"state":                      {"param", "internal/smallfile"},
	"measure":                    {"param"},
	"experiment":                 {"param", "measure", "internal/smallfile", "internal/walog"},
	"experiment/report":          {"param", "measure", "experiment"},
	"drivers":                    {"param"},
	"drivers/drivertest":         {"param", "drivers", "drivers/...", "node", "internal/..."},
	"drivers/pinning":            {"param", "drivers", "internal/cpulist", "internal/printable", "internal/procs"},
	"drivers/cpufreq":            {"param", "drivers", "internal/cpulist", "internal/cpupolicy", "internal/sysfs"},
	"drivers/dmalatency":         {"param", "drivers", "internal/procs", "internal/smallfile", "internal/sysfs"},
	"drivers/irq":                {"param", "drivers", "internal/cpulist", "internal/interrupts", "internal/sysfs"},
	"drivers/coalesce":           {"param", "drivers", "internal/sysfs", "internal/ethnl"},
	"drivers/verbs":              {"param", "drivers/verbs/internal/..."},
	"drivers/verbs/...":          {"param", "drivers", "drivers/verbs", "drivers/verbs/...", "internal/peercred", "internal/printable", "internal/rundir", "internal/smallfile"},
	"drivers/verbs/internal/...": {"drivers/verbs/internal/..."},
	"plan":                       {"param", "spec", "state", "internal/cpulist", "internal/natural"},
	"reconcile":                  {"param", "node", "spec", "state", "drivers", "plan", "gather", "apply", "experiment", "reconcile/watch", "internal/interrupts", "internal/smallfile"},
	"gather":                     {"param", "node", "spec", "state", "drivers", "plan", "internal/cpulist", "internal/interrupts"},
	"apply":                      {"param", "plan", "drivers", "state", "measure", "experiment"},
	"audit":                      {"param", "node", "internal/procs", "internal/printable"},
	"audit/live":                 {"param", "node", "internal/...", "drivers/verbs/control"},
	"doctor":                     {"param", "node", "internal/...", "audit/live", "drivers/verbs", "drivers/verbs/control"},
	"bench":                      {"param", "measure", "drivers/verbs/control", "drivers/verbs/transport"},
	"bench/ring":                 {"bench"},
	"tune":                       {"param", "measure", "bench"},
	"reconcile/serve":            {"param", "experiment", "reconcile", "reconcile/watch", "drivers/verbs/control", "internal/peercred"},
	"reconcile/watch":            {"internal/printable", "internal/ethnl"},
	"cmd/rdmatune":               {"..."},
	"packaging":                  {"spec"},
	"examples":                   {"..."},
	"internal/fence":             {},
	"test":                       {},
	"test/...":                   {"..."},
}

// banned are imports of other modules and of the standard library that a package
// must not have, with the reason: of other modules not even through another package.
var banned = []struct{ pkg, imports, reason string }{
	{"param", "os", "the vocabulary does no input or output"},
	{"param", "net", "the vocabulary does no input or output"},
	{"plan", "modernc.org/sqlite", "a plan is pure"},
	{"plan", module + "drivers", "a plan is made of observations, not of drivers"},
	{"drivers", module + "plan", "a change is a word of param: drivers need no plan"},
	{"state", module + "plan", "the state holds changes, not plans"},
	{"drivers/verbs/transport", "github.com/hashicorp/hcl/v2", "programs link the transport: it stays small"},
	{"drivers/verbs/transport", "modernc.org/sqlite", "programs link the transport: it stays small"},
	{"drivers/verbs/transport", "github.com/spf13/cobra", "programs link the transport: it stays small"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := map[string]goPackage{}
	for dec := json.NewDecoder(out); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}

// rule is the row of allowed that is about pkg.
func rule(pkg string) (imports []string, ok bool) {
	if r, ok := allowed[pkg]; ok {
		return r, true
	}
	for dir := path.Dir(pkg); dir != "."; dir = path.Dir(dir) {
		if r, ok := allowed[dir+"/..."]; ok {
			return r, true
		}
	}
	return nil, false
}

func permits(rules []string, imported string) bool {
	for _, r := range rules {
		dir, tree := strings.CutSuffix(r, "...")
		if r == imported || tree && strings.HasPrefix(imported, dir) {
			return true
		}
	}
	return false
}

func TestImports(t *testing.T) {
	all := packages(t)
	if len(all) < 10 {
		t.Fatalf("go list found %d packages", len(all))
	}
	for pkg, p := range all {
		rules, ok := rule(pkg)
		if !ok {
			t.Errorf("%s: no rule; add a row that says what it may import", pkg)
			continue
		}
		for _, imp := range p.Imports {
			imported, ours := strings.CutPrefix(imp, module)
			if ours && !permits(rules, imported) {
				t.Errorf("%s imports %s, which its rule does not allow", pkg, imported)
			}
		}
	}
	for row := range allowed {
		if strings.HasSuffix(row, "...") {
			continue
		}
		if _, ok := all[row]; !ok {
			t.Errorf("the rule for %s is about no package", row)
		}
	}
}

func TestBans(t *testing.T) {
	all := packages(t)
	for _, b := range banned {
		p, ok := all[b.pkg]
		if !ok {
			t.Errorf("%s: no such package", b.pkg)
			continue
		}
		deps := p.Deps
		if !strings.Contains(b.imports, ".") {
			deps = p.Imports // nearly all of the standard library depends on os in the end
		}
		for _, dep := range deps {
			if dep == b.imports {
				t.Errorf("%s depends on %s: %s", b.pkg, b.imports, b.reason)
			}
		}
	}
}
