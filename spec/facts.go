package spec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/rdmatune/rdmatune/node"
)

// The type of node.* in a spec. It is fixed, so that a misspelt fact is an error
// already while loading.
var (
	numaType = cty.Object(map[string]cty.Type{"id": cty.Number, "cpus": cty.String})
	rdmaType = cty.Object(map[string]cty.Type{
		"name": cty.String, "pci": cty.String, "numa_node": cty.Number, "local_cpus": cty.String,
		"netdevs": cty.List(cty.String), "driver": cty.String, "firmware": cty.String,
		"link_layer": cty.String, "state": cty.String,
	})
	gpuType  = cty.Object(map[string]cty.Type{"pci": cty.String, "numa_node": cty.Number, "local_cpus": cty.String})
	cpusType = cty.Object(map[string]cty.Type{
		"online": cty.String, "offline": cty.String, "possible": cty.String, "isolated": cty.String, "allowed": cty.String,
	})
	nodeType = cty.Object(map[string]cty.Type{
		"hostname": cty.String, "kernel": cty.String, "cpus": cpusType, "numa": cty.Map(numaType),
		"rdma": cty.Map(rdmaType), "gpu": cty.Map(gpuType), "simulated": cty.Bool, "virtualised": cty.String,
	})
)

// nodeValue is the value of node for facts, or the typed unknown for nil.
func nodeValue(f *node.Facts) cty.Value {
	if f == nil {
		return cty.UnknownVal(nodeType)
	}
	numa, rdma, gpu := map[string]cty.Value{}, map[string]cty.Value{}, map[string]cty.Value{}
	for _, n := range f.NUMA {
		numa[strconv.Itoa(n.ID)] = cty.ObjectVal(map[string]cty.Value{"id": cty.NumberIntVal(int64(n.ID)), "cpus": cty.StringVal(n.CPUs)})
	}
	for _, r := range f.RDMA {
		netdevs := cty.ListValEmpty(cty.String)
		if len(r.Netdevs) > 0 {
			vals := make([]cty.Value, len(r.Netdevs))
			for i, n := range r.Netdevs {
				vals[i] = cty.StringVal(n)
			}
			netdevs = cty.ListVal(vals)
		}
		rdma[r.Name] = cty.ObjectVal(map[string]cty.Value{
			"name": cty.StringVal(r.Name), "pci": str(r.PCI), "numa_node": num(r.NUMANode), "local_cpus": str(r.LocalCPUs),
			"netdevs": netdevs, "driver": str(r.Driver), "firmware": str(r.Firmware),
			"link_layer": str(r.LinkLayer), "state": str(r.State),
		})
	}
	for _, g := range f.GPUs {
		gpu[g.PCI] = cty.ObjectVal(map[string]cty.Value{"pci": cty.StringVal(g.PCI), "numa_node": num(g.NUMANode), "local_cpus": str(g.LocalCPUs)})
	}
	return cty.ObjectVal(map[string]cty.Value{
		"hostname": str(f.Hostname), "kernel": str(f.Kernel),
		"cpus": cty.ObjectVal(map[string]cty.Value{
			"online": str(f.CPUs.Online), "offline": str(f.CPUs.Offline), "possible": str(f.CPUs.Possible),
			"isolated": str(f.CPUs.Isolated), "allowed": str(f.CPUs.Allowed),
		}),
		"numa": mapOf(numa, numaType), "rdma": mapOf(rdma, rdmaType), "gpu": mapOf(gpu, gpuType),
		"simulated": cty.BoolVal(f.Simulated), "virtualised": str(f.Virtualised),
	})
}

func str(p *string) cty.Value {
	if p == nil {
		return cty.NullVal(cty.String)
	}
	return cty.StringVal(*p)
}

func num(p *int) cty.Value {
	if p == nil {
		return cty.NullVal(cty.Number)
	}
	return cty.NumberIntVal(int64(*p))
}

func mapOf(m map[string]cty.Value, t cty.Type) cty.Value {
	if len(m) == 0 {
		return cty.MapValEmpty(t)
	}
	return cty.MapVal(m)
}

// nullError says that a required argument is null, and why when a fact made it so.
func (e *evaluator) nullError(attr *hcl.Attribute, name string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: fmt.Sprintf("No value for %q", name),
		Detail: "The value is null." + e.nodeEvidence(attr.Expr), Subject: attr.Expr.Range().Ptr()}
}

// nodeEvidence says what was found on the node for each fact that x refers to, as
// path = value. Sentences start with a space, so that they can follow a detail.
func (e *evaluator) nodeEvidence(x hcl.Expression) string {
	if e.facts == nil {
		return ""
	}
	var b strings.Builder
	for _, t := range x.Variables() {
		if t.RootName() != "node" {
			continue
		}
		v, diags := t.TraverseAbs(&hcl.EvalContext{Variables: map[string]cty.Value{"node": e.node}})
		if diags.HasErrors() {
			continue
		}
		path := traversalText(t)
		switch {
		case v.IsNull():
			why := e.facts.Why[factPath(t)]
			if why == "" {
				why = "this node does not say"
			}
			fmt.Fprintf(&b, " Found on the node: %s is null (%s).", path, why)
		case v.Type().IsPrimitiveType():
			fmt.Fprintf(&b, " Found on the node: %s = %s.", path, describe(v))
		}
	}
	return b.String()
}

// explain adds to a diagnostic of HCL's own what the node has: names near a
// misspelt one, and why a fact is null.
func (e *evaluator) explain(d *hcl.Diagnostic, x hcl.Expression, ctx *hcl.EvalContext, in *instance) {
	for _, t := range x.Variables() {
		for i := 1; i < len(t); i++ {
			name, ok := step(t, i)
			if !ok {
				break
			}
			parent, diags := t[:i].TraverseAbs(ctx)
			if diags.HasErrors() || parent.IsNull() {
				break
			}
			names := childNames(parent)
			if t.RootName() == "self" && i == 1 {
				names = append(sortedKeys(in.workload.body.attrs), sortedKeys(in.workload.body.blocks)...)
			}
			if names == nil || contains(names, name) {
				continue
			}
			have := "; there are none"
			if len(names) > 0 && len(names) <= 40 {
				have = "; there are " + strings.Join(names, ", ")
			}
			d.Detail = strings.TrimSuffix(d.Detail, ".") + fmt.Sprintf(". %s has no %q%s%s.", traversalText(t[:i]), name, have, suggest(name, names))
			return
		}
	}
	if d.Summary == "Invalid index" {
		for _, t := range x.Variables() {
			v, diags := t.TraverseAbs(ctx)
			if names := []string(nil); !diags.HasErrors() && v.Type().IsMapType() {
				if names = childNames(v); len(names) > 0 && len(names) <= 40 {
					d.Detail += fmt.Sprintf(" %s has %s.", traversalText(t), strings.Join(names, ", "))
				}
			}
		}
	}
	d.Detail += e.nodeEvidence(x)
}

// childNames lists the names under an object or a known map, nil for other values.
func childNames(v cty.Value) []string {
	t := v.Type()
	switch {
	case t.IsObjectType():
		return sortedKeys(t.AttributeTypes())
	case t.IsMapType() && v.IsKnown():
		names := []string{}
		for it := v.ElementIterator(); it.Next(); {
			k, _ := it.Element()
			names = append(names, k.AsString())
		}
		return names
	}
	return nil
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// traversalText writes a traversal as the spec does: node.rdma["mlx5_0"].pci.
func traversalText(t hcl.Traversal) string {
	var b strings.Builder
	for i, s := range t {
		switch s := s.(type) {
		case hcl.TraverseRoot:
			b.WriteString(s.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			if name, ok := step(t, i); ok {
				fmt.Fprintf(&b, "[%q]", name)
			} else {
				fmt.Fprintf(&b, "[%s]", describe(s.Key))
			}
		}
	}
	return b.String()
}

// factPath is the key of Facts.Why for a traversal: rdma.mlx5_0.pci.
func factPath(t hcl.Traversal) string {
	var parts []string
	for i := 1; i < len(t); i++ {
		if name, ok := step(t, i); ok {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, ".")
}
