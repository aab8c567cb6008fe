package spec

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxRounds is how often the for expressions of one argument may go round together, those
// within others counted for each round of these: about a second's work.
const maxRounds = 1 << 20

// unknownRounds is what a loop counts over what depends on the loop that it is in.
const unknownRounds = 1024

// tooManyRounds says that evaluating x in ctx would go on for too long: HCL has no bound on
// that of its own.
func tooManyRounds(x hcl.Expression, ctx *hcl.EvalContext) *hcl.Diagnostic {
	node, ok := x.(hclsyntax.Node)
	if !ok {
		return nil
	}
	c := counter{ctx: ctx, rounds: []int{1}}
	hclsyntax.Walk(node, &c)
	return c.found
}

// A counter is on its way through an expression.
type counter struct {
	ctx    *hcl.EvalContext
	rounds []int // of the loops around, outermost first, each with those around it
	found  *hcl.Diagnostic
}

// Enter implements hclsyntax.Walker.
func (c *counter) Enter(n hclsyntax.Node) hcl.Diagnostics {
	f, ok := n.(*hclsyntax.ForExpr)
	if !ok || c.found != nil {
		return nil
	}
	if c.found = tooManyRounds(f.CollExpr, c.ctx); c.found != nil {
		return nil
	}
	rounds := unknownRounds
	if v, diags := f.CollExpr.Value(c.ctx); !diags.HasErrors() && v.IsWhollyKnown() && !v.IsNull() && v.CanIterateElements() {
		rounds = max(v.LengthInt(), 1)
	}
	around := c.rounds[len(c.rounds)-1]
	if rounds > maxRounds/around {
		c.found = &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Too many rounds",
			Detail:  fmt.Sprintf("The for expressions of an argument go round at most %d times together.", maxRounds),
			Subject: f.SrcRange.Ptr()}
		return nil
	}
	c.rounds = append(c.rounds, around*rounds)
	return nil
}

// Exit implements hclsyntax.Walker.
func (c *counter) Exit(n hclsyntax.Node) hcl.Diagnostics {
	if _, ok := n.(*hclsyntax.ForExpr); ok && c.found == nil {
		c.rounds = c.rounds[:len(c.rounds)-1]
	}
	return nil
}
