package spec

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/rdmatune/rdmatune/param"
)

// An Edit is a change of one file of a spec.
type Edit struct {
	File     string // as in Spec.Files
	Old, New []byte // its whole text
	Was, Is  string // the source of the argument; Was is "" when it was not written
	Literal  bool   // Was stands for nothing but itself
}

// ErrSame: an edit would change nothing.
var ErrSame = errors.New("the spec says so already")

// SetHint returns the edit that makes size bytes the hint of the workload block name,
// and lanes ("single" or "dual", "" = as it is) its lanes. Everything else keeps its
// text: comments, order, spaces.
func (s *Spec) SetHint(name string, size int64, lanes string) (Edit, error) {
	file, ok := s.fileOf(name)
	if !ok {
		return Edit{}, fmt.Errorf("the spec has no workload %q", name)
	}
	old := s.Files[file].Bytes
	root, ok := s.Files[file].Body.(*hclsyntax.Body)
	if !ok {
		return Edit{}, fmt.Errorf("%s is not in the native syntax", file)
	}
	block := child(root, "workload", name)
	if block == nil {
		return Edit{}, fmt.Errorf("%s: no workload %q", file, name)
	}
	e := Edit{File: file, Old: old, Is: sizeSource(size)}
	splices := []splice{}
	if hint := child(block.Body, "hint"); hint == nil {
		splices = append(splices, newHint(old, block, e.Is, lanes))
	} else {
		if attr := hint.Body.Attributes["size"]; attr != nil {
			e.Was = string(attr.Expr.Range().SliceBytes(old))
			e.Literal = len(attr.Expr.Variables()) == 0 && !strings.Contains(e.Was, "(")
		}
		splices = append(splices, setAttributes(old, hint, [][2]string{{"size", e.Is}, {"lanes", quoted(lanes)}})...)
	}
	e.New = spliced(old, splices)
	if bytes.Contains(old, []byte("\r\n")) {
		e.New = bytes.ReplaceAll(bytes.ReplaceAll(e.New, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	}
	if slices.Equal(e.Old, e.New) {
		return e, ErrSame
	}
	return e, e.check(name, lanes)
}

// check reads the edited text again: the block must now say what it was to say.
func (e Edit) check(name, lanes string) error {
	f, diags := hclsyntax.ParseConfig(e.New, e.File, hcl.InitialPos)
	if diags.HasErrors() {
		return diags
	}
	for attr, want := range map[string]string{"size": e.Is, "lanes": quoted(lanes)} {
		if want == "" {
			continue
		}
		got := ""
		if w := child(f.Body.(*hclsyntax.Body), "workload", name); w != nil {
			if hint := child(w.Body, "hint"); hint != nil && hint.Body.Attributes[attr] != nil {
				got = string(hint.Body.Attributes[attr].Expr.Range().SliceBytes(e.New))
			}
		}
		if got != want {
			return fmt.Errorf("%s: the workload %q is written in a way that this edit cannot follow; set %s = %s by hand", e.File, name, attr, want)
		}
	}
	return nil
}

// A splice replaces the bytes from start to end.
type splice struct {
	start, end int
	text       string
}

// spliced applies splices, which do not overlap, to text.
func spliced(text []byte, list []splice) []byte {
	slices.SortFunc(list, func(a, b splice) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, s := range list {
		out = append(append(out, text[at:s.start]...), s.text...)
		at = s.end
	}
	return append(out, text[at:]...)
}

// child finds a block by type and labels.
func child(b *hclsyntax.Body, typ string, labels ...string) *hclsyntax.Block {
	for _, blk := range b.Blocks {
		if blk.Type == typ && slices.Equal(blk.Labels, labels) {
			return blk
		}
	}
	return nil
}

// indent is the white space before the place at.
func indent(text []byte, at int) string {
	start := bytes.LastIndexByte(text[:at], '\n') + 1
	line := text[start:at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// setAttributes sets those of a block that have a source.
func setAttributes(text []byte, blk *hclsyntax.Block, attrs [][2]string) []splice {
	var out []splice
	var missing []string
	width := 0
	for _, a := range attrs {
		width = max(width, len(a[0]))
	}
	for _, a := range attrs {
		attr := blk.Body.Attributes[a[0]]
		switch {
		case a[1] == "":
		case attr != nil:
			r := attr.Expr.Range()
			out = append(out, splice{r.Start.Byte, r.End.Byte, a[1]})
		default:
			missing = append(missing, fmt.Sprintf("%-*s = %s", width, a[0], a[1]))
		}
	}
	if len(missing) == 0 {
		return out
	}
	inner := indent(text, blk.DefRange().Start.Byte) + "  "
	closing := blk.CloseBraceRange.Start.Byte
	if blk.OpenBraceRange.Start.Line != blk.CloseBraceRange.Start.Line {
		for i := range missing {
			missing[i] = inner + missing[i] + "\n"
		}
		return append(out, beforeBrace(text, closing, inner[:len(inner)-2], strings.Join(missing, "")))
	}
	// A block on one line has one argument at most: it is broken up.
	open := blk.OpenBraceRange.End.Byte
	body := strings.TrimSpace(string(spliced(text[open:closing], shift(out, -open))))
	if body != "" {
		missing = append([]string{body}, missing...)
	}
	for i := range missing {
		missing[i] = "\n" + inner + missing[i]
	}
	return []splice{{open, closing, strings.Join(missing, "") + "\n" + inner[:len(inner)-2]}}
}

func shift(list []splice, by int) []splice {
	out := make([]splice, len(list))
	for i, s := range list {
		out[i] = splice{s.start + by, s.end + by, s.text}
	}
	return out
}

// newHint adds a hint block at the end of a workload.
func newHint(text []byte, workload *hclsyntax.Block, size, lanes string) splice {
	outer := indent(text, workload.DefRange().Start.Byte)
	body := "size = " + size
	if lanes != "" {
		body = "size  = " + size + "\n" + outer + "    lanes = " + quoted(lanes)
	}
	block := outer + "  hint {\n" + outer + "    " + body + "\n" + outer + "  }\n"
	closing := workload.CloseBraceRange.Start.Byte
	if workload.OpenBraceRange.Start.Line == workload.CloseBraceRange.Start.Line {
		open := workload.OpenBraceRange.End.Byte
		text := strings.TrimSpace(string(text[open:closing]))
		if text != "" {
			text = outer + "  " + text + "\n"
		}
		return splice{open, closing, "\n" + text + block + outer}
	}
	return beforeBrace(text, closing, outer, block)
}

// beforeBrace adds lines before a closing brace: as lines of their own where nothing
// but space is before the brace, else behind what is there, such as the end of a comment.
func beforeBrace(text []byte, closing int, outer, lines string) splice {
	start := bytes.LastIndexByte(text[:closing], '\n') + 1
	if len(bytes.TrimSpace(text[start:closing])) == 0 {
		return splice{start, start, lines}
	}
	return splice{closing, closing, "\n" + lines + outer}
}

// quoted is s as a literal; "" stays.
func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}

// fileOf finds the file that has the workload block name.
func (s *Spec) fileOf(name string) (string, bool) {
	for _, w := range s.workloads {
		if w.name == name {
			return w.rng.Filename, true
		}
	}
	return "", false
}

// sizeSource is how a person would write a size.
func sizeSource(size int64) string {
	if size == 0 {
		return "0"
	}
	return fmt.Sprintf("%q", strings.ReplaceAll(param.FormatBytes(size), " ", ""))
}
