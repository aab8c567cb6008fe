package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/coalesce"
	"github.com/rdmatune/rdmatune/drivers/cpufreq"
	"github.com/rdmatune/rdmatune/drivers/dmalatency"
	"github.com/rdmatune/rdmatune/drivers/irq"
	"github.com/rdmatune/rdmatune/drivers/pinning"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/gather"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// options are the flags that every command has.
type options struct {
	node     string
	stateDir string
	noColor  bool
	compact  bool // one line for a warning
}

// colorOn reports whether f may be written to in colours.
func (o *options) colorOn(f *os.File) bool {
	return !o.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// width is the width of f's terminal, or 100 where it is none.
func width(f *os.File) uint {
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
		return uint(w)
	}
	return 100
}

// writeDiagnostics prints diagnostics with their source lines. files may be nil.
func (o *options) writeDiagnostics(f *os.File, files map[string]*hcl.File, diags hcl.Diagnostics) error {
	var long hcl.Diagnostics
	for _, d := range diags {
		if d.Severity != hcl.DiagWarning || !o.compact {
			long = append(long, d)
			continue
		}
		place := ""
		if d.Subject != nil {
			place = " (" + spec.Place(*d.Subject) + ")"
		}
		printf(f, "Warning: %s%s\n", d.Summary, place)
	}
	return spec.WriteDiagnostics(f, files, long, width(f), o.colorOn(f))
}

// A session is an open node with its drivers.
type session struct {
	node    *node.Node
	drivers drivers.Set
	bootID  string
}

// open opens the node of the flags and wires its drivers. It writes nothing.
func (o *options) open(ctx context.Context) (*session, error) {
	if st, err := os.Stat(o.stateDir); o.stateDir != "" && err == nil && !st.IsDir() {
		return nil, fmt.Errorf("--state-dir %s: not a directory", o.stateDir)
	}
	n, err := node.Open(o.node, o.stateDir)
	if err != nil {
		return nil, err
	}
	s := &session{node: n}
	if s.bootID, err = n.BootID(); err != nil {
		return nil, err
	}
	if n.Kind() != node.Local {
		if err := s.adopt(ctx); err != nil {
			return nil, err
		}
	}
	s.wire()
	return s, nil
}

// wire makes the drivers of the session's node, as it is now.
func (s *session) wire() {
	n := s.node
	s.drivers = drivers.NewSet(
		pinning.New(n, s.named), cpufreq.New(n.FS()), dmalatency.New(n.FS(), n.Procs(), n.RunDir(), nil), irq.New(n.FS()), coalesce.New(n),
		control.NewDriver(n.RunDir(), n.Procs().Matches),
	)
}

// hold makes the session's process the one that can hold the machine's idle latency.
func (s *session) hold(h *dmalatency.Holder) {
	s.drivers[param.DMALatency] = dmalatency.New(s.node.FS(), s.node.Procs(), s.node.RunDir(), h)
}

// adopt shows the transports of a node that is not this machine as its processes.
func (s *session) adopt(ctx context.Context) error {
	transports, err := control.List(ctx, s.node.RunDir())
	if err != nil {
		return err
	}
	var ps []node.Process
	for _, t := range transports {
		if t.PID == 0 {
			continue // what List left out
		}
		p := node.Process{PID: t.PID, Start: t.Start, Comm: t.Comm, Cmdline: strings.Split(t.Cmdline, " "), Workload: t.Workload, UID: int(t.UID)}
		for _, tid := range t.Threads {
			if tid != t.PID {
				p.Threads = append(p.Threads, tid)
			}
		}
		ps = append(ps, p)
	}
	return s.node.Adopt(ps...)
}

// named returns the processes whose transport names a workload.
func (s *session) named(ctx context.Context, workload string) ([]int, error) {
	transports, err := control.List(ctx, s.node.RunDir())
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, t := range transports {
		if t.Workload == workload {
			pids = append(pids, t.PID)
		}
	}
	return pids, nil
}

func (s *session) close() error { return s.node.Close() }

// specFlags are the flags of commands that read a spec.
type specFlags struct {
	vars []spec.VarSource
}

// varFlag appends to the one list that --var and --var-file share, so that their
// order on the command line counts.
type varFlag struct {
	list *[]spec.VarSource
	file bool
}

func (v varFlag) String() string { return "" }

func (v varFlag) Type() string {
	if v.file {
		return "file"
	}
	return "name=value"
}

func (v varFlag) Set(text string) error {
	if text == "" {
		return errors.New("it is empty")
	}
	src := spec.VarSource{Text: text}
	if v.file {
		src = spec.VarSource{File: text}
	}
	*v.list = append(*v.list, src)
	return nil
}

// load reads the spec of a command's arguments and prints what is wrong with it.
func (o *options) load(args []string, f specFlags, quiet bool) (*spec.Spec, hcl.Diagnostics, error) {
	path := "."
	if len(args) > 0 {
		path = args[0]
	}
	if saved, err := openSaved(args); err != nil || saved != nil {
		return nil, nil, errors.Join(err, fmt.Errorf("%s is a saved plan, not a spec: apply takes it", path))
	}
	s, diags := spec.Load(path, spec.Options{Vars: f.vars, Environ: os.Environ()})
	if diags.HasErrors() && !quiet {
		if err := o.writeDiagnostics(os.Stderr, s.Files, diags); err != nil {
			return nil, nil, err
		}
	}
	if diags.HasErrors() {
		return s, diags, exitCode(exitError)
	}
	return s, diags, nil
}

// A planning is all that went into a plan, and the plan.
type planning struct {
	spec  *spec.Spec // nil for a destroy
	diags hcl.Diagnostics
	doc   *state.Document
	facts *node.Facts
	plan  *plan.Plan // nil when diags has errors
}

func (p *planning) files() map[string]*hcl.File {
	if p.spec == nil {
		return nil
	}
	return p.spec.Files
}

// anotherSpec is the summary of a warning that apply's --replace answers.
const anotherSpec = "Another spec tunes this node"

// makePlan observes the node and plans a spec, or with none the restoring of all. It is
// one look, or a part of the one that ctx belongs to.
func (s *session) makePlan(ctx context.Context, sp *spec.Spec, force bool) (*planning, error) {
	ctx = drivers.Within(ctx)
	g, err := gather.Source{Node: s.node, Drivers: s.drivers, BootID: s.bootID}.Gather(ctx, sp, force)
	if err != nil {
		return nil, err
	}
	p := &planning{spec: sp, doc: g.Doc, facts: g.Facts, diags: g.Diags}
	if p.diags.HasErrors() {
		return p, nil
	}
	if sp != nil {
		if err := apply.CheckRoot(p.doc, sp.Root, false); err != nil {
			p.diags = p.diags.Append(&hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: anotherSpec, Detail: "As for apply: " + err.Error() + "."})
		}
	}
	in := g.Input
	if in.Live, err = s.live(ctx, in.Spec, p.facts); err != nil {
		return nil, err
	}
	if in.Notes, err = s.effects(ctx, in.Spec, p.facts); err != nil {
		return nil, err
	}
	p.plan = plan.Make(in)
	sayBase(p.plan, in.Spec)
	return p, ctx.Err()
}

// specFiles completes the argument of commands that read a spec.
func specFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"hcl", "plan"}, cobra.ShellCompDirectiveFilterFileExt
}

// specArg describes the argument of commands that read a spec.
const specArg = "[FILE or DIRECTORY]"

// printf writes to a person. A closed output is not worth an error of its own.
func printf(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, format, args...)
}
