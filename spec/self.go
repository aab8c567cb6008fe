package spec

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// step returns the name at position i of a traversal, also when it is written as
// an index with a literal string.
func step(t hcl.Traversal, i int) (string, bool) {
	if i >= len(t) {
		return "", false
	}
	switch s := t[i].(type) {
	case hcl.TraverseAttr:
		return s.Name, true
	case hcl.TraverseIndex:
		if s.Key.Type() == cty.String {
			return s.Key.AsString(), true
		}
	}
	return "", false
}

// selfRefs returns the paths of the arguments that a self traversal reaches: one
// argument, or all of a block.
func selfRefs(b *body, t hcl.Traversal) []string {
	prefix := ""
	for i := 1; ; i++ {
		name, ok := step(t, i)
		if !ok {
			return allPaths(b, prefix)
		}
		if b.attrs[name] != nil {
			return []string{prefix + name}
		}
		if b.blocks[name] == nil {
			return nil // evaluation says that there is no such thing
		}
		b, prefix = b.blocks[name], prefix+name+"."
	}
}

func allPaths(b *body, prefix string) []string {
	var out []string
	for _, name := range sortedKeys(b.attrs) {
		out = append(out, prefix+name)
	}
	for _, name := range sortedKeys(b.blocks) {
		out = append(out, allPaths(b.blocks[name], prefix+name+".")...)
	}
	return out
}

// selfValue builds the value of self out of the arguments at paths.
func selfValue(in *instance, paths []string) cty.Value {
	tree := map[string]any{"name": cty.StringVal(in.workload.name)}
	for _, p := range paths {
		v, ok := in.values[p]
		if !ok {
			v = cty.NullVal(cty.DynamicPseudoType)
		}
		at := tree
		steps := strings.Split(p, ".")
		for _, s := range steps[:len(steps)-1] {
			sub, ok := at[s].(map[string]any)
			if !ok {
				sub = map[string]any{}
				at[s] = sub
			}
			at = sub
		}
		at[steps[len(steps)-1]] = v
	}
	return nested(tree)
}

func nested(tree map[string]any) cty.Value {
	vals := map[string]cty.Value{}
	for k, v := range tree {
		if sub, ok := v.(map[string]any); ok {
			vals[k] = nested(sub)
		} else {
			vals[k] = v.(cty.Value)
		}
	}
	return object(vals)
}

func object(m map[string]cty.Value) cty.Value {
	if len(m) == 0 {
		return cty.EmptyObjectVal
	}
	return cty.ObjectVal(m)
}
