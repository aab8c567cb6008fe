package spec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/param"
)

const reference = "../docs/language.md"

// TestReference holds the language reference to the schema and the functions.
func TestReference(t *testing.T) {
	doc, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	region := regexp.MustCompile(`(?s)(<!-- blocks:[^\n]*-->\n)(.*?)(<!-- /blocks -->)`)
	m := region.FindSubmatch(doc)
	if m == nil {
		t.Fatalf("%s has no region for blocks", reference)
	}
	var b bytes.Buffer
	for _, blk := range topLevel {
		describeBlock(t, &b, blk, "")
	}
	if *update {
		doc = region.ReplaceAll(doc, slices.Concat([]byte("$1"), bytes.ReplaceAll(b.Bytes(), []byte("$"), []byte("$$")), []byte("$3")))
		if err := os.WriteFile(reference, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(m[2]), b.String()); diff != "" {
		t.Errorf("%s does not say what the schema says (-update rewrites it): -doc +schema\n%s", reference, diff)
	}
	for name := range functions(nil) {
		if !strings.Contains(string(doc), "`"+name+"`") && !strings.Contains(string(doc), "`"+name+"(") {
			t.Errorf("%s does not mention the function %s", reference, name)
		}
	}
}

func describeBlock(t *testing.T, b *bytes.Buffer, blk *block, parent string) {
	name := parent + blk.name
	if blk.later != "" {
		fmt.Fprintf(b, "\n### %s\n\nNot in this version.\n", name)
		return
	}
	label := ""
	if len(blk.labels) > 0 {
		label = fmt.Sprintf(" \"%s\"", strings.ToUpper(blk.labels[0]))
	}
	place := ""
	for _, home := range homes(blk.name) {
		place = " It goes " + home + "."
	}
	if blk.name == localsBlock.name {
		place = " They go" + strings.TrimPrefix(place, " It goes")
	}
	example := ""
	if blk.example != "" {
		example = "```hcl\n" + blk.example + "\n```\n\n"
	}
	fmt.Fprintf(b, "\n### %s%s\n\n%s%s\n\n%s| argument | value | default | |\n| --- | --- | --- | --- |\n", name, label, blk.doc, place, example)
	if blk == workloadBlock {
		b.WriteString("| `for_each` | map, set of strings | | One workload for each element. |\n")
	}
	for _, a := range blk.attrs {
		if a.later != "" {
			fmt.Fprintf(b, "| `%s` | | | Not in this version. |\n", a.name)
			continue
		}
		def := a.def
		if a.required {
			def = "required"
		}
		if a.typ == "" {
			t.Errorf("%s.%s: no type for the reference", blk.name, a.name)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", a.name, a.typ, def, a.doc)
	}
	prefix := name + "."
	if blk == workloadBlock {
		prefix = ""
	}
	for _, sub := range blk.blocks {
		describeBlock(t, b, sub, prefix)
	}
}

// TestReferenceExamples: every example of the reference is a spec that loads.
func TestReferenceExamples(t *testing.T) {
	doc, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for i, m := range regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllSubmatch(doc, -1) {
		name := filepath.Join(t.TempDir(), fmt.Sprintf("example%d.hcl", i))
		if err := os.WriteFile(name, m[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, diags := Load(name, Options{}); len(diags.Errs()) > 0 {
			t.Errorf("example %d: %v\n%s", i, diags, m[1])
		}
		all += string(m[1])
	}
	var blocks func(*block)
	blocks = func(b *block) {
		// These say where they belong, and an example shows it.
		if b.later == "" && b.name != "cpu_dma_latency" && b.name != "coalescing" && b.name != "switch" && !regexp.MustCompile(`(?m)^ *`+b.name+`( "\w+")? \{$`).MatchString(all) {
			t.Errorf("no example has a block %s", b.name)
		}
		for _, sub := range b.blocks {
			blocks(sub)
		}
	}
	for _, b := range topLevel {
		blocks(b)
	}
}

// TestTableRows checks that every parameter has its attribute in the language.
func TestTableRows(t *testing.T) {
	// What a spec says in other words than the driver.
	elsewhere := map[param.ID]string{param.MinKHz: "frequency", param.MaxKHz: "frequency"}
	for _, row := range param.Table {
		blk := workloadBlock.sub(string(row.Kind))
		if blk == nil {
			t.Errorf("%s: no block %s", row.ID, row.Kind)
			continue
		}
		name := row.Attr
		if other, ok := elsewhere[row.ID]; ok {
			name = other
		}
		_, ok := blk.attr(name)
		for _, sub := range blk.blocks {
			_, inner := sub.attr(name)
			ok = ok || inner
		}
		if !ok {
			t.Errorf("%s: the block %s has no argument %s", row.ID, row.Kind, name)
		}
	}
}
