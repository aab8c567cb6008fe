package spec

import (
	"fmt"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// EnvPrefix starts the name of an environment variable that gives a variable's value.
const EnvPrefix = "RDMATUNE_VAR_"

// A VarSource is one --var or --var-file of the command line. Later ones win.
type VarSource struct {
	Text string `json:"text,omitempty"` // name=value
	File string `json:"file,omitempty"` // an HCL file of assignments; used when Text is empty
}

// A variable is one variable block.
type variable struct {
	name         string
	typ          cty.Type
	defaultValue cty.Value // cty.NilVal when required
	rng          hcl.Range
}

func (d *decoder) variable(blk *hcl.Block) {
	content, diags := blk.Body.Content(variableBlock.bodySchema())
	d.add(d.misplaced(diags)...)
	v := &variable{name: blk.Labels[0], typ: cty.DynamicPseudoType, defaultValue: cty.NilVal, rng: blk.DefRange}
	if attr, ok := content.Attributes["type"]; ok {
		typ, diags := typeexpr.TypeConstraint(attr.Expr)
		d.add(diags...)
		v.typ = typ
	}
	if attr, ok := content.Attributes["default"]; ok {
		val, diags := attr.Expr.Value(nil)
		d.add(diags...)
		if diags.HasErrors() {
			return
		}
		conv, err := convert.Convert(val, v.typ)
		if err != nil {
			d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid default for variable",
				Detail: fmt.Sprintf("The default of %q does not fit its type: %s.", v.name, err), Subject: attr.Expr.Range().Ptr()})
			return
		}
		v.defaultValue = conv
	}
	if attr, ok := content.Attributes["description"]; ok {
		if val, diags := attr.Expr.Value(nil); diags.HasErrors() || val.Type() != cty.String {
			d.add(diags...)
			d.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid description", Detail: "A string is required.", Subject: attr.Expr.Range().Ptr()})
		}
	}
	d.variables[v.name] = v
}

// resolveVariables gives each declared variable its value: default, then
// environment, then the command line in its order.
func resolveVariables(decl map[string]*variable, o Options, read reader) (map[string]cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	vals := map[string]cty.Value{}
	for name, v := range decl {
		if v.defaultValue != cty.NilVal {
			vals[name] = v.defaultValue
		}
	}
	set := func(name string, val cty.Value, from string, at *hcl.Range) {
		v, ok := decl[name]
		if !ok {
			diags = diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Value for undeclared variable",
				Detail: fmt.Sprintf("%s gives a value for %q, which no variable block declares%s.", from, name, suggest(name, sortedKeys(decl))), Subject: at})
			return
		}
		conv, err := convert.Convert(val, v.typ)
		if err != nil {
			diags = diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid value for variable",
				Detail: fmt.Sprintf("%s gives %q a value that does not fit its type: %s. It is declared at %s.", from, name, err, Place(v.rng)), Subject: at})
			return
		}
		vals[name] = conv
	}
	text := func(name, raw, from string) {
		val := cty.StringVal(raw)
		if v, ok := decl[name]; ok && v.typ != cty.String && v.typ != cty.DynamicPseudoType || ok && v.typ == cty.DynamicPseudoType && looksLikeHCL(raw) {
			expr, d := hclsyntax.ParseExpression([]byte(raw), from, hcl.InitialPos)
			if !d.HasErrors() {
				val, d = expr.Value(nil)
			}
			if d.HasErrors() {
				diags = diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid value for variable",
					Detail: fmt.Sprintf("%s: %.80q is not a value of type %s, for the variable declared at %s.", from, raw, typeexpr.TypeString(v.typ), Place(v.rng))})
				return
			}
		}
		set(name, val, from, nil)
	}
	for _, kv := range o.Environ {
		name, raw, ok := strings.Cut(strings.TrimPrefix(kv, EnvPrefix), "=")
		// As with Terraform, the environment may speak of variables of other specs.
		if _, declared := decl[name]; ok && declared && strings.HasPrefix(kv, EnvPrefix) {
			text(name, raw, EnvPrefix+name)
		}
	}
	for _, src := range o.Vars {
		if src.Text != "" {
			name, raw, ok := strings.Cut(src.Text, "=")
			if !ok {
				diags = diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid --var",
					Detail: fmt.Sprintf("%q is not of the form name=value.", src.Text)})
				continue
			}
			text(strings.TrimSpace(name), raw, "--var "+strings.TrimSpace(name))
			continue
		}
		f, d := parseVarFile(src.File, read)
		diags = append(diags, d...)
		if d.HasErrors() {
			continue
		}
		attrs, d := f.Body.JustAttributes()
		diags = append(diags, d...)
		for _, name := range sortedKeys(attrs) {
			val, d := attrs[name].Expr.Value(nil)
			diags = append(diags, d...)
			if !d.HasErrors() {
				set(name, val, src.File, attrs[name].NameRange.Ptr())
			}
		}
	}
	for _, name := range sortedKeys(decl) {
		if _, ok := vals[name]; !ok && !diags.HasErrors() {
			diags = diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No value for required variable",
				Detail:  fmt.Sprintf("The variable %q has no default. Give it with --var %s=VALUE, --var-file, or %s%s.", name, name, EnvPrefix, name),
				Subject: decl[name].rng.Ptr()})
		}
	}
	return vals, diags
}

// looksLikeHCL tells a value that only HCL can express from plain text, for a
// variable without a type.
func looksLikeHCL(raw string) bool {
	return strings.HasPrefix(raw, "[") || strings.HasPrefix(raw, "{") || strings.HasPrefix(raw, `"`)
}

func parseVarFile(name string, read reader) (*hcl.File, hcl.Diagnostics) {
	src, err := read(name)
	if err != nil {
		return nil, unreadable("Cannot read --var-file", err)
	}
	return hclsyntax.ParseConfig(src, name, hcl.InitialPos)
}

// varFiles parses the --var-file files once more, for the source lines of diagnostics.
func varFiles(o Options, read reader) map[string]*hcl.File {
	files := map[string]*hcl.File{}
	for _, src := range o.Vars {
		if src.Text == "" {
			if f, _ := parseVarFile(src.File, read); f != nil {
				files[src.File] = f
			}
		}
	}
	return files
}

// suggest returns ` (did you mean "X"?)` for the nearest of names, or "" when none is near.
func suggest(given string, names []string) string {
	best, bestDist := "", 0
	for _, n := range names {
		d := levenshtein.Distance(given, n, nil)
		if d <= max(2, len(n)/3) && (best == "" || d < bestDist) {
			best, bestDist = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}
