package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	version "github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
)

// A Spec is a loaded spec: syntactically and structurally right, and right on
// every node as far as that can be known without one.
type Spec struct {
	// Path is the absolute path that the spec was asked for by; Root is where it led,
	// through symbolic links: the directory or the single file that was loaded.
	Path, Root string
	// Digest identifies the texts of the files and the values of the variables.
	Digest string
	// Files holds the parsed files by the name that diagnostics use.
	Files map[string]*hcl.File

	variables map[string]cty.Value
	locals    map[string]*hcl.Attribute
	workloads []*workload
	reconcile *workload // the reconcile block, nil without one

	// What it was loaded from besides the texts: the files' names in their order, and what
	// gave the variables their values.
	names   []string
	vars    []VarSource
	environ []string
}

func newSpec() *Spec {
	return &Spec{Files: map[string]*hcl.File{}, locals: map[string]*hcl.Attribute{}}
}

// Empty reports whether the spec has no workload, and so asks for nothing.
func (s *Spec) Empty() bool { return len(s.workloads) == 0 }

// A workload is one workload block, before for_each.
type workload struct {
	name    string
	forEach *hcl.Attribute
	body    *body
	rng     hcl.Range
}

// A body is the content of a block, checked against the schema.
type body struct {
	block  *block
	attrs  map[string]*hcl.Attribute
	blocks map[string]*body
	rng    hcl.Range // the block's header
}

// Options are Load's inputs besides the files.
type Options struct {
	// Vars are values from the command line, in its order.
	Vars []VarSource
	// Environ is searched for RDMATUNE_VAR_name=value.
	Environ []string
}

// Load reads the spec at path: one file, or a directory's *.hcl files in the order
// of their names. It returns the spec also with warnings; with errors the spec can
// only be used for its Path, Root and Files, to print them.
func Load(path string, o Options) (*Spec, hcl.Diagnostics) {
	s := newSpec()
	s.vars = o.Vars
	var err error
	if s.Path, err = filepath.Abs(path); err != nil {
		return s, unreadable("Cannot read the spec", err)
	}
	s.Root = s.Path
	if real, err := filepath.EvalSymlinks(s.Root); err == nil {
		s.Root = real
	}
	if s.names, err = specFiles(path); err != nil {
		return s, unreadable("Cannot read the spec", err)
	}
	return s, s.load(o, readFile)
}

// load makes s of the files that it has the names of.
func (s *Spec) load(o Options, read reader) hcl.Diagnostics {
	digest := sha256.New()
	parser := hclparse.NewParser()
	var diags hcl.Diagnostics
	var bodies []hcl.Body
	for _, name := range s.names {
		src, err := read(name)
		if err != nil {
			diags = append(diags, unreadable("Cannot read the spec", err)...)
			continue
		}
		if d := tooComplex(src, name); d != nil {
			s.Files[name] = &hcl.File{Bytes: src}
			diags = diags.Append(d)
			continue
		}
		fmt.Fprintf(digest, "%s %d\n%s", filepath.Base(name), len(src), src)
		f, d := parser.ParseHCL(src, name)
		diags = append(diags, causes(d)...)
		s.Files[name] = f
		if f != nil {
			bodies = append(bodies, f.Body)
		}
	}
	if diags.HasErrors() {
		return diags
	}
	d := &decoder{spec: s}
	d.root(bodies)
	diags = append(diags, d.diags...)
	if diags.HasErrors() {
		return diags
	}
	s.variables, d.diags = resolveVariables(d.variables, o, read)
	diags = append(diags, d.diags...)
	for name, f := range varFiles(o, read) {
		s.Files[name] = f
	}
	if diags.HasErrors() {
		return diags
	}
	s.environ = ours(o.Environ, d.variables)
	for _, name := range sortedKeys(s.variables) {
		fmt.Fprintf(digest, "var %s=%#v\n", name, s.variables[name])
	}
	s.Digest = hex.EncodeToString(digest.Sum(nil))

	// What is wrong on any node shows against a node of which only the types are known.
	_, rd := s.evaluate(nil)
	return append(diags, rd...)
}

// decoder turns parsed bodies into a Spec.
type decoder struct {
	spec      *Spec
	variables map[string]*variable
	diags     hcl.Diagnostics
}

func (d *decoder) add(diags ...*hcl.Diagnostic) { d.diags = append(d.diags, diags...) }

func (d *decoder) root(bodies []hcl.Body) {
	d.variables = map[string]*variable{}
	schema := &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "rdmatune"}, {Type: "variable", LabelNames: []string{"name"}},
		{Type: "locals"}, {Type: "reconcile"}, {Type: "workload", LabelNames: []string{"name"}},
	}}
	seen := map[string]hcl.Range{}
	for _, b := range bodies {
		content, diags := b.Content(schema)
		d.add(d.misplaced(diags)...)
		for _, blk := range content.Blocks {
			switch blk.Type {
			case "rdmatune":
				d.settings(blk)
			case "variable":
				if d.unique(seen, "variable", blk) {
					d.variable(blk)
				}
			case "locals":
				attrs, diags := blk.Body.JustAttributes()
				d.add(diags...)
				for _, name := range sortedKeys(attrs) {
					if old, dup := d.spec.locals[name]; dup {
						d.add(duplicate("local value", name, old.NameRange, attrs[name].NameRange.Ptr()))
						continue
					}
					d.spec.locals[name] = attrs[name]
				}
			case "reconcile":
				if first := d.spec.reconcile; first != nil {
					d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Duplicate block",
						Detail: fmt.Sprintf("A spec has at most one reconcile block; the first is at %s.", Place(first.rng)), Subject: blk.DefRange.Ptr()})
					continue
				}
				d.spec.reconcile = &workload{name: "reconcile", rng: blk.DefRange, body: d.body(reconcileBlock, blk.Body, blk.DefRange)}
			case "workload":
				if d.unique(seen, "workload", blk) {
					d.workload(blk)
				}
			}
		}
	}
	if len(d.spec.workloads) == 0 && !d.diags.HasErrors() {
		d.add(noWorkload())
	}
}

// noWorkload warns of a spec that is empty, where it is loaded and where it is resolved:
// not every command shows both.
func noWorkload() *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "The spec has no workload",
		Detail: "Nothing is asked for: applying this spec restores what an earlier one had set."}
}

// unique checks a block's name and that no other block of the type has it.
func (d *decoder) unique(seen map[string]hcl.Range, what string, blk *hcl.Block) bool {
	name := blk.Labels[0]
	if !identifier.MatchString(name) {
		d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid name",
			Detail:  fmt.Sprintf("%q cannot name a %s: use a letter or underscore, then letters, digits, _ and -, at most 63 in all.", name, what),
			Subject: blk.LabelRanges[0].Ptr()})
		return false
	}
	if old, dup := seen[what+name]; dup {
		d.add(duplicate(what, name, old, blk.DefRange.Ptr()))
		return false
	}
	seen[what+name] = blk.DefRange
	return true
}

func duplicate(what, name string, first hcl.Range, at *hcl.Range) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Duplicate " + what,
		Detail: fmt.Sprintf("A %s %q is already at %s.", what, name, Place(first)), Subject: at}
}

func (d *decoder) settings(blk *hcl.Block) {
	content, diags := blk.Body.Content(settingsBlock.bodySchema())
	d.add(d.misplaced(diags)...)
	attr, ok := content.Attributes["required_version"]
	if !ok {
		return
	}
	val, diags := attr.Expr.Value(nil)
	d.add(diags...)
	if diags.HasErrors() {
		return
	}
	invalid := func(detail string) {
		d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid required_version", Detail: detail, Subject: attr.Expr.Range().Ptr()})
	}
	if val.IsNull() || !val.IsKnown() || val.Type() != cty.String {
		invalid(`A version constraint such as ">= 0.1.0" is required.`)
		return
	}
	c, err := version.NewConstraint(val.AsString())
	if err != nil {
		invalid(fmt.Sprintf("%q is not a version constraint; write it as in \">= 0.1.0\".", val.AsString()))
		return
	}
	if !c.Check(version.Must(version.NewVersion(Version))) {
		d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Unsupported rdmatune version",
			Detail: fmt.Sprintf("The spec requires %s and this is rdmatune %s.", val.AsString(), Version), Subject: attr.Expr.Range().Ptr()})
	}
}

func (d *decoder) workload(blk *hcl.Block) {
	w := &workload{name: blk.Labels[0], rng: blk.DefRange}
	content, rest, diags := blk.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: forEach}}})
	d.add(diags...)
	w.forEach = content.Attributes[forEach]
	w.body = d.body(workloadBlock, rest, blk.DefRange)
	d.spec.workloads = append(d.spec.workloads, w)
}

// body checks a body against the schema, blocks and all.
func (d *decoder) body(b *block, hb hcl.Body, rng hcl.Range) *body {
	content, diags := hb.Content(b.bodySchema())
	d.add(d.misplaced(diags)...)
	out := &body{block: b, attrs: map[string]*hcl.Attribute{}, blocks: map[string]*body{}, rng: rng}
	for _, name := range sortedKeys(content.Attributes) {
		attr := content.Attributes[name]
		if a, _ := b.attr(name); a.later != "" {
			d.add(notYet(fmt.Sprintf("argument %q of a %s block", name, b.name), a.later, attr.NameRange))
			continue
		}
		out.attrs[name] = attr
	}
	for _, blk := range content.Blocks {
		sub := b.sub(blk.Type)
		if sub.later != "" {
			d.add(notYet(fmt.Sprintf("block %q", blk.Type), sub.later, blk.DefRange))
			continue
		}
		if sub.many {
			d.named(out, sub, blk)
			continue
		}
		if first, dup := out.blocks[blk.Type]; dup {
			d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Duplicate block",
				Detail:  fmt.Sprintf("A %s has at most one %s block; the first is at %s.", b.name, blk.Type, Place(first.rng)),
				Subject: blk.DefRange.Ptr()})
			continue
		}
		out.blocks[blk.Type] = d.body(sub, blk.Body, blk.DefRange)
	}
	return out
}

// named adds one of several blocks of a type to out: they stand below the type by
// their names, as in self.guard.tail.
func (d *decoder) named(out *body, sub *block, blk *hcl.Block) {
	group := out.blocks[blk.Type]
	if group == nil {
		group = &body{block: sub, attrs: map[string]*hcl.Attribute{}, blocks: map[string]*body{}, rng: blk.DefRange}
		out.blocks[blk.Type] = group
	}
	seen := map[string]hcl.Range{}
	for name, other := range group.blocks {
		seen[blk.Type+name] = other.rng
	}
	if d.unique(seen, blk.Type, blk) {
		group.blocks[blk.Labels[0]] = d.body(sub, blk.Body, blk.DefRange)
	}
}

func notYet(what, detail string, at hcl.Range) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Not in this version", Detail: "This is about the " + what + ". " + detail, Subject: at.Ptr()}
}

// Place formats a source position the way diagnostics do: file:line,column.
func Place(r hcl.Range) string {
	return fmt.Sprintf("%s:%d,%d", r.Filename, r.Start.Line, r.Start.Column)
}
