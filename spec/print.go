package spec

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// maxShown bounds the diagnostics that are written: beyond it, more do not help.
const maxShown = 50

// WriteDiagnostics writes diagnostics for a person, as wide as width: each with its
// file, line and column, the source line, and the span underlined. files may be nil.
// It is hcl's own text with what that leaves out: the column, and an underline where
// there are no colours. What is there twice is written once.
func WriteDiagnostics(w io.Writer, files map[string]*hcl.File, diags hcl.Diagnostics, width uint, color bool) error {
	diags = once(diags)
	for i, d := range diags {
		if i == maxShown {
			_, err := fmt.Fprintf(w, "And %d more.\n\n", len(diags)-i)
			return err
		}
		var b bytes.Buffer
		if err := hcl.NewDiagnosticTextWriter(&b, printableFiles(files, d), width, color).WriteDiagnostic(d); err != nil {
			return err
		}
		if _, err := io.WriteString(w, mark(b.String(), d, files, color)); err != nil {
			return err
		}
	}
	return nil
}

// printableFiles is files with the one that d is about made harmless for a terminal: its
// control characters are no more than question marks, which changes no place in it.
func printableFiles(files map[string]*hcl.File, d *hcl.Diagnostic) map[string]*hcl.File {
	if d.Subject == nil || files[d.Subject.Filename] == nil {
		return files
	}
	f := *files[d.Subject.Filename]
	if !slices.ContainsFunc(f.Bytes, isControl) {
		return files
	}
	f.Bytes = bytes.Clone(f.Bytes)
	for i, c := range f.Bytes {
		if isControl(c) {
			f.Bytes[i] = '?'
		}
	}
	files = maps.Clone(files)
	files[d.Subject.Filename] = &f
	return files
}

// isControl reports whether a terminal may take c, of ASCII, for an order.
func isControl(c byte) bool { return c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f }

// mark adds the column and the underline to the text of one diagnostic.
func mark(text string, d *hcl.Diagnostic, files map[string]*hcl.File, color bool) string {
	if d.Subject == nil {
		return text
	}
	at := d.Subject.Start
	place := fmt.Sprintf("on %s line %d", d.Subject.Filename, at.Line)
	head, rest, ok := strings.Cut(text, place)
	if !ok {
		return text
	}
	text = head + fmt.Sprintf("%s, column %d", place, at.Column) + rest
	f := files[d.Subject.Filename]
	if color || f == nil {
		return text
	}
	prefix := fmt.Sprintf("%4d: ", at.Line)
	var out strings.Builder
	done := false
	for line := range strings.Lines(text) {
		out.WriteString(line)
		source, is := strings.CutPrefix(line, prefix)
		if !is || done {
			continue
		}
		done = true
		source = strings.TrimRight(source, "\r\n")
		before := at.Column - 1
		length := utf8.RuneCountInString(source) - before
		if end := d.Subject.End; end.Line == at.Line {
			length = end.Column - at.Column
		}
		if before < 0 || before > utf8.RuneCountInString(source) {
			continue
		}
		// A tab before the span stays one, so that the underline stands below it.
		pad := strings.Map(func(r rune) rune {
			if r == '\t' {
				return r
			}
			return ' '
		}, string([]rune(source)[:before]))
		fmt.Fprintf(&out, "%s%s%s\n", strings.Repeat(" ", len(prefix)), pad, strings.Repeat("^", max(length, 1)))
	}
	return out.String()
}
