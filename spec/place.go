package spec

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
)

// topLevel are the blocks of a file.
var topLevel = []*block{settingsBlock, variableBlock, localsBlock, reconcileBlock, workloadBlock}

// homes returns where blocks of a type go, in words.
func homes(name string) []string {
	var out []string
	var walk func(inside string, blocks []*block)
	walk = func(inside string, blocks []*block) {
		for _, b := range blocks {
			if b.name == name {
				out = append(out, inside)
			}
			walk(fmt.Sprintf("inside a %s block", b.name), b.blocks)
		}
	}
	walk("at the top of a file, outside of every other block", topLevel)
	return out
}

// misplaced adds to what HCL says of a block that it did not expect, where such blocks go.
func (d *decoder) misplaced(diags hcl.Diagnostics) hcl.Diagnostics {
	for _, diag := range diags {
		if diag.Summary != "Unsupported block type" || diag.Subject == nil {
			continue
		}
		f := d.spec.Files[diag.Subject.Filename]
		if f == nil || !diag.Subject.CanSliceBytes(f.Bytes) {
			continue
		}
		name := string(diag.Subject.SliceBytes(f.Bytes))
		for _, home := range homes(name) {
			diag.Detail = fmt.Sprintf("A %s block goes %s.", name, home)
		}
	}
	return diags
}
