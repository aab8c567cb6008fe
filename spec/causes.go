package spec

import (
	"cmp"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Summaries of hcl's syntax errors of which one explains the other: without its closing
// quote, a string goes on in the next line, and in each after it.
const (
	unterminated = "Unterminated template string"
	multiLine    = "Invalid multi-line string"
)

// causes puts the syntax errors of one file in the order of the file, without those that
// follow from another one.
func causes(diags hcl.Diagnostics) hcl.Diagnostics {
	at := func(d *hcl.Diagnostic) int {
		if d.Subject == nil {
			return -1
		}
		return d.Subject.Start.Byte
	}
	rank := func(d *hcl.Diagnostic) int {
		if d.Summary == multiLine {
			return 1
		}
		return 0
	}
	sorted := slices.SortedStableFunc(slices.Values(diags), func(a, b *hcl.Diagnostic) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(rank(a), rank(b)))
	})
	var out hcl.Diagnostics
	open := false // a string, as far as hcl has found
	for _, d := range sorted {
		follows := open && d.Summary == multiLine
		open = open || d.Summary == multiLine || d.Summary == unterminated
		if !follows {
			out = append(out, d)
		}
	}
	return out
}

// once returns diagnostics without those that say the same of the same place again.
func once(diags hcl.Diagnostics) hcl.Diagnostics {
	type key struct {
		severity              hcl.DiagnosticSeverity
		summary, detail, file string
		start, end            hcl.Pos
	}
	seen := map[key]bool{}
	var out hcl.Diagnostics
	for _, d := range diags {
		k := key{severity: d.Severity, summary: d.Summary, detail: d.Detail}
		if d.Subject != nil {
			k.file, k.start, k.end = d.Subject.Filename, d.Subject.Start, d.Subject.End
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, d)
		}
	}
	return out
}
