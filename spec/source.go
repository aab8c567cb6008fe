package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/rdmatune/rdmatune/internal/smallfile"
)

// A Source is all that a spec was loaded from, so that it can be loaded again when its
// files are gone or have become others.
type Source struct {
	Path    string            `json:"path"`              // as Spec.Path
	Root    string            `json:"root"`              // as Spec.Root
	Names   []string          `json:"names"`             // of the spec's files, in their order
	Texts   map[string][]byte `json:"texts"`             // by name, those of --var-file as well
	Vars    []VarSource       `json:"vars,omitempty"`    // of the command line
	Environ []string          `json:"environ,omitempty"` // what of the environment gave a value
}

// Source returns what s was loaded from. s was loaded without an error.
func (s *Spec) Source() Source {
	src := Source{Path: s.Path, Root: s.Root, Names: s.names, Texts: make(map[string][]byte, len(s.Files)), Vars: s.vars, Environ: s.environ}
	for name, f := range s.Files {
		src.Texts[name] = f.Bytes
	}
	return src
}

// Given identifies the flags that gave variables values, files by their names; it is empty
// without any, and there also when the spec is wrong. Two specs of one root and the same
// Given stay the same when files change.
func (s *Spec) Given() string {
	if len(s.vars) == 0 {
		return ""
	}
	h := sha256.New()
	for _, v := range s.vars {
		if v.Text != "" {
			fmt.Fprintf(h, "text %q\n", v.Text)
		} else if file, err := filepath.Abs(v.File); err == nil {
			fmt.Fprintf(h, "file %q\n", file)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Load makes the spec again, as Load has from the files. Nothing is read from the disk.
func (src Source) Load() (*Spec, hcl.Diagnostics) {
	s := newSpec()
	s.Path, s.Root, s.names, s.vars = src.Path, src.Root, src.Names, src.Vars
	return s, s.load(Options{Vars: src.Vars, Environ: src.Environ}, func(name string) ([]byte, error) {
		text, ok := src.Texts[name]
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		return text, nil
	})
}

// A reader returns the text of a file.
type reader func(name string) ([]byte, error)

// ours returns what of an environment gives the variables their values.
func ours(environ []string, decl map[string]*variable) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(strings.TrimPrefix(kv, EnvPrefix), "=")
		if _, declared := decl[name]; declared && strings.HasPrefix(kv, EnvPrefix) {
			out = append(out, kv)
		}
	}
	return out
}

// maxFile is the largest spec file that is read. Real specs are a few KiB; a
// device node or a runaway log must not fill the memory of a root process.
const maxFile = 4 << 20

// specFiles returns the files that make up the spec at path.
func specFiles(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fileError(err)
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fileError(err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".hcl") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no *.hcl file", path)
	}
	sort.Strings(names)
	return names, nil
}

func readFile(name string) ([]byte, error) {
	src, err := smallfile.Read(name, maxFile, smallfile.Any)
	if err != nil {
		return nil, fileError(err)
	}
	return bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")), nil
}

// fileError puts the path before the reason, as every other message does.
func fileError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	return err
}

// Bounds on the structure of a file. The parser and the evaluator follow nesting by
// recursion: without a bound, a file of brackets ends the program by its stack.
const (
	maxNesting   = 500
	maxOperators = 20_000
)

// tooComplex says that a file is nested too deeply or has too many operators.
func tooComplex(src []byte, name string) *hcl.Diagnostic {
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // what is wrong with them is the parser's to say
	depth, operators, directives := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp,
			hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd,
			hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth--
		case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash,
			hclsyntax.TokenPercent, hclsyntax.TokenQuestion, hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenDot:
			operators++
		}
		if t.Type == hclsyntax.TokenTemplateControl {
			directives++ // these nest by their words, not by their brackets
		}
		if depth > maxNesting || directives > maxNesting || operators > maxOperators {
			return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Too complex",
				Detail:  fmt.Sprintf("A spec file is nested at most %[1]d deep and has at most %[1]d template directives and %[2]d operators.", maxNesting, maxOperators),
				Subject: t.Range.Ptr()}
		}
	}
	return nil
}

// unreadable says that a file cannot be read.
func unreadable(summary string, err error) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: err.Error()}}
}
