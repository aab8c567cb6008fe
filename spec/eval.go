package spec

import (
	"fmt"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/rdmatune/rdmatune/node"
)

// maxInstances bounds for_each: more workloads than this on one node is a mistake.
const maxInstances = 4096

// An instance is one workload after for_each, with its arguments evaluated.
// Arguments are keyed by path: "device", "hint.size", "hint.switch.cooldown".
type instance struct {
	workload *workload
	key      string // for_each key
	hasKey   bool
	each     cty.Value // cty.NilVal without for_each

	values map[string]cty.Value // canonical; absent when not set
	state  map[string]progress
}

type progress uint8

const (
	untouched progress = iota
	underWay
	done
)

// address is the workload's address without the leading "workload.".
func (in *instance) address() string {
	if !in.hasKey {
		return in.workload.name
	}
	return fmt.Sprintf("%s[%q]", in.workload.name, in.key)
}

// evaluator evaluates a spec in dependency order: an argument that is referred to
// is evaluated first, wherever it stands.
type evaluator struct {
	spec  *Spec
	facts *node.Facts // nil while loading
	funcs map[string]function.Function
	vars  cty.Value
	node  cty.Value

	locals     map[string]cty.Value
	localState map[string]progress
	path       []string // what is under way, for a cycle's message

	diags hcl.Diagnostics
	said  map[string]bool
}

// evaluate evaluates every workload against f, or against a node of which only the
// types are known when f is nil.
func (s *Spec) evaluate(f *node.Facts) ([]*instance, hcl.Diagnostics) {
	e := &evaluator{
		spec: s, facts: f, funcs: functions(f), vars: object(s.variables), node: nodeValue(f),
		locals: map[string]cty.Value{}, localState: map[string]progress{}, said: map[string]bool{},
	}
	for _, name := range sortedKeys(s.locals) {
		e.local(name)
	}
	var all []*instance
	for _, w := range s.workloads {
		for _, in := range e.instances(w) {
			e.body(in, "", w.body)
			all = append(all, in)
		}
	}
	if !e.diags.HasErrors() { // else a limit may be missing that is there, and wrong
		for _, in := range all {
			e.checkGuards(in)
		}
	}
	if w := s.reconcile; w != nil {
		in := e.instances(w)[0]
		e.body(in, "", w.body)
		all = append(all, in)
	}
	return all, e.diags
}

// add appends diagnostics once each: for_each repeats what is wrong in every instance.
func (e *evaluator) add(diags ...*hcl.Diagnostic) {
	for _, d := range diags {
		key := d.Summary + "\x00" + d.Detail
		if d.Subject != nil {
			key += "\x00" + d.Subject.String()
		}
		if !e.said[key] {
			e.said[key] = true
			e.diags = append(e.diags, d)
		}
	}
}

func (e *evaluator) instances(w *workload) []*instance {
	single := func(in *instance) []*instance {
		in.workload, in.values, in.state = w, map[string]cty.Value{}, map[string]progress{}
		return []*instance{in}
	}
	if w.forEach == nil {
		return single(&instance{each: cty.NilVal})
	}
	before := len(e.diags)
	v := e.expr(w.forEach.Expr, nil)
	if len(e.diags) > before && e.diags.HasErrors() {
		return nil
	}
	if v.IsKnown() && v.IsNull() {
		e.add(e.nullError(w.forEach, "for_each"))
		return nil
	}
	if !v.IsWhollyKnown() {
		if e.facts != nil {
			e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid for_each", Detail: "Its value is not known.", Subject: w.forEach.Expr.Range().Ptr()})
			return nil
		}
		return single(&instance{key: "(known on the node)", hasKey: true, each: cty.ObjectVal(map[string]cty.Value{
			"key": cty.UnknownVal(cty.String), "value": cty.DynamicVal,
		})})
	}
	t := v.Type()
	isSet := t.IsSetType() && (t.ElementType() == cty.String || v.LengthInt() == 0)
	if !isSet && !t.IsMapType() && !t.IsObjectType() {
		fix := ""
		if t.IsTupleType() || t.IsListType() {
			fix = " Wrap the list in toset(...)."
		}
		e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid for_each",
			Detail: fmt.Sprintf("A map or a set of strings is required, found %s.%s", t.FriendlyName(), fix), Subject: w.forEach.Expr.Range().Ptr()})
		return nil
	}
	if v.LengthInt() > maxInstances {
		e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid for_each",
			Detail: fmt.Sprintf("It has %d elements; at most %d are allowed.", v.LengthInt(), maxInstances), Subject: w.forEach.Expr.Range().Ptr()})
		return nil
	}
	var out []*instance
	for it := v.ElementIterator(); it.Next(); {
		k, val := it.Element()
		if isSet {
			k = val
		}
		if k.IsNull() || !validKey(k.AsString()) {
			e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid for_each",
				Detail: "A key must be 1 to 63 printable characters without quotes or backslashes.", Subject: w.forEach.Expr.Range().Ptr()})
			return nil
		}
		out = append(out, single(&instance{key: k.AsString(), hasKey: true,
			each: cty.ObjectVal(map[string]cty.Value{"key": k, "value": val})})...)
	}
	return out
}

// body evaluates every argument of b, which stands at prefix ("" or "hint.").
func (e *evaluator) body(in *instance, prefix string, b *body) {
	for _, a := range b.block.attrs {
		if b.attrs[a.name] != nil {
			e.argument(in, prefix+a.name)
		}
	}
	for _, sub := range b.block.blocks {
		sb := b.blocks[sub.name]
		if sb == nil {
			continue
		}
		if !sub.many {
			e.body(in, prefix+sub.name+".", sb)
			continue
		}
		for _, name := range sortedKeys(sb.blocks) {
			e.body(in, prefix+sub.name+"."+name+".", sb.blocks[name])
		}
	}
}

// lookup finds the argument at path in w's source; ok is false when it is not set.
func lookup(b *body, path string) (attr *hcl.Attribute, row attribute, ok bool) {
	steps := strings.Split(path, ".")
	for _, s := range steps[:len(steps)-1] {
		if b = b.blocks[s]; b == nil {
			return nil, attribute{}, false
		}
	}
	last := steps[len(steps)-1]
	row, _ = b.block.attr(last)
	return b.attrs[last], row, b.attrs[last] != nil
}

// argument evaluates one argument of an instance, after those that it refers to.
func (e *evaluator) argument(in *instance, path string) {
	attr, row, ok := lookup(in.workload.body, path)
	if !ok || in.state[path] == done {
		return
	}
	name := in.address() + "." + path
	if in.state[path] == underWay {
		e.cycle(name, attr.Expr.Range())
		return
	}
	in.state[path] = underWay
	e.path = append(e.path, name)
	v := e.expr(attr.Expr, in)
	e.path = e.path[:len(e.path)-1]
	in.state[path] = done

	if !v.IsWhollyKnown() {
		in.values[path] = cty.UnknownVal(row.canonicalType())
		return
	}
	if v.IsNull() {
		if row.required {
			e.add(e.nullError(attr, row.name))
		}
		return
	}
	out, notice, err := row.value(v)
	if err != nil {
		e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: fmt.Sprintf("Invalid value for %q", row.name),
			Detail: sentence(err.Error()) + e.nodeEvidence(attr.Expr), Subject: attr.Expr.Range().Ptr(), Context: attr.Range.Ptr()})
		return
	}
	if notice != "" {
		e.add(&hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Ambiguous unit", Detail: sentence(notice), Subject: attr.Expr.Range().Ptr()})
	}
	in.values[path] = out
}

// canonicalType is the type of the values that the row's parser returns.
func (a attribute) canonicalType() cty.Type {
	if a.name == "env" {
		return cty.Map(cty.String)
	}
	return cty.DynamicPseudoType
}

func (e *evaluator) cycle(name string, at hcl.Range) {
	i := len(e.path) - 1
	for i > 0 && e.path[i] != name {
		i--
	}
	e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cycle",
		Detail: fmt.Sprintf("The value depends on itself: %s -> %s.", strings.Join(e.path[i:], " -> "), name), Subject: at.Ptr()})
}

func (e *evaluator) local(name string) cty.Value {
	attr := e.spec.locals[name]
	switch e.localState[name] {
	case done:
		return e.locals[name]
	case underWay:
		e.cycle("local."+name, attr.Expr.Range())
		return cty.DynamicVal
	}
	e.localState[name] = underWay
	e.path = append(e.path, "local."+name)
	v := e.expr(attr.Expr, nil)
	e.path = e.path[:len(e.path)-1]
	if tooLarge(v) {
		e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Value too large",
			Detail: fmt.Sprintf("A local value has at most %d characters and elements.", maxValue), Subject: attr.Expr.Range().Ptr()})
		v = cty.DynamicVal
	}
	e.localState[name], e.locals[name] = done, v
	return v
}

// maxValue bounds a local value as a whole, so that a chain of them cannot double, nor each
// repeat the one before, without end.
const maxValue = 1 << 20

func tooLarge(v cty.Value) bool {
	rest := maxValue
	return !fits(v, &rest)
}

// fits takes the characters and elements of v, those of its elements included, from rest,
// and reports whether there were as many. It looks at no more than that: what a value is
// built of can be there any number of times.
func fits(v cty.Value, rest *int) bool {
	switch {
	case !v.IsKnown() || v.IsNull():
	case v.Type() == cty.String:
		*rest -= len(v.AsString())
	case v.CanIterateElements():
		*rest -= v.LengthInt()
		for it := v.ElementIterator(); *rest >= 0 && it.Next(); {
			if _, e := it.Element(); !fits(e, rest) {
				return false
			}
		}
	}
	return *rest >= 0
}

// expr evaluates an expression; in is nil outside a workload. On error it adds
// diagnostics and returns an unknown value, which causes none of its own.
func (e *evaluator) expr(x hcl.Expression, in *instance) cty.Value {
	vars := map[string]cty.Value{"var": e.vars, "node": e.node}
	before := len(e.diags)
	roots := []string{"var", "local", "node"}
	if in != nil {
		roots = append(roots, "self")
		if in.each != cty.NilVal {
			vars["each"] = in.each
			roots = append(roots, "each")
		}
	}
	locals := map[string]cty.Value{}
	var selfPaths []string
	for _, t := range x.Variables() {
		switch root := t.RootName(); root {
		case "var", "node":
		case "each":
			if in == nil || in.each == cty.NilVal {
				e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No for_each here",
					Detail: "each.key and each.value exist only in a workload that has for_each.", Subject: t.SourceRange().Ptr()})
			}
		case "local":
			if name, ok := step(t, 1); ok && e.spec.locals[name] != nil {
				locals[name] = e.local(name)
			} else {
				for n := range e.spec.locals {
					locals[n] = e.local(n)
				}
			}
		case "self":
			if in == nil {
				e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No workload here",
					Detail: "self is the workload, and exists only in its arguments.", Subject: t.SourceRange().Ptr()})
				break
			}
			paths := selfRefs(in.workload.body, t)
			for _, p := range paths {
				e.argument(in, p)
			}
			selfPaths = append(selfPaths, paths...)
		default:
			sort.Strings(roots)
			e.add(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Unknown name",
				Detail:  fmt.Sprintf("%q is not a name here; there are %s%s.", root, strings.Join(roots, ", "), suggest(root, roots)),
				Subject: t.SourceRange().Ptr()})
		}
	}
	if hasErrors(e.diags[before:]) {
		return cty.DynamicVal
	}
	vars["local"] = object(locals)
	if in != nil {
		vars["self"] = selfValue(in, selfPaths)
	}
	ctx := &hcl.EvalContext{Variables: vars, Functions: e.funcs}
	if d := tooManyRounds(x, ctx); d != nil {
		e.add(d)
		return cty.DynamicVal
	}
	v, diags := x.Value(ctx)
	for _, d := range diags {
		e.explain(d, x, ctx, in)
		e.add(d)
	}
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	return v
}

func hasErrors(ds []*hcl.Diagnostic) bool { return hcl.Diagnostics(ds).HasErrors() }

// sentence makes a message that starts low and ends without a stop into a sentence.
func sentence(s string) string {
	if s == "" {
		return s
	}
	if s[0] >= 'a' && s[0] <= 'z' {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") {
		s += "."
	}
	return s
}
