package audit

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/node"
)

// hintSymbol is the function by which a transport is asked for the size below which it
// treats messages as low latency.
const hintSymbol = "get_low_latency_rdma_size_hint"

// What is known of the symbol in a library.
const (
	symbolExported = "exported"
	symbolLocal    = "local only"
	symbolAbsent   = "not built in"
	symbolUnknown  = "not observable"
)

// maxSymbols bounds a symbol table that is looked through, in bytes.
const maxSymbols = 256 << 20

// modules returns the communication libraries among the mapped files, and DeepEP's
// extension, which has a function of the same name.
func modules(n *node.Node, pid int, maps []procs.Mapping) []Module {
	var out []Module
	for _, m := range maps {
		l := LibraryOf(m.Path)
		deepep := l == nil && strings.Contains(m.Path, "deep_ep")
		if l == nil && !deepep {
			continue
		}
		mod := Module{Process: pid, Path: printable.Line(m.Path), Version: versionOf(l, m.Path), Symbol: symbolUnknown}
		if l != nil {
			mod.Library = l.ID
		}
		f, err := n.OpenMapped(pid, m)
		switch {
		case errors.Is(err, node.ErrNotObservable):
		case err != nil:
			mod.Note = err.Error()
		default:
			if mod.Symbol, mod.Note, err = lookUp(f); err != nil {
				mod.Symbol, mod.Note = symbolUnknown, err.Error()
			}
			f.Close()
		}
		if m.Deleted {
			mod.Note = strings.TrimPrefix(mod.Note+"; its file was replaced since it was mapped", "; ")
		}
		if deepep {
			mod.Library = "deepep"
		}
		out = append(out, mod)
	}
	return out
}

// lookUp looks for the hint's symbol in an ELF file.
func lookUp(r io.ReaderAt) (symbol, note string, err error) {
	defer func() {
		// debug/elf checks its input, but it is fed with what any program may map.
		if p := recover(); p != nil {
			err = fmt.Errorf("broken ELF file: %v", p)
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil {
		return "", "", fmt.Errorf("no ELF file: %w", err)
	}
	for _, name := range []string{".dynsym", ".symtab", ".dynstr", ".strtab"} {
		if s := f.Section(name); s != nil && s.Size > maxSymbols {
			return "", "", fmt.Errorf("section %s of %d bytes is too large to look through", name, s.Size)
		}
	}
	dynamic, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return "", "", err
	}
	symbol = symbolAbsent
	for _, s := range dynamic {
		switch {
		case s.Section == elf.SHN_UNDEF:
			if s.Name == hintSymbol {
				note = "it calls the function of another library"
			}
		case s.Name == hintSymbol:
			return symbolExported, "", nil
		case foreign(s.Name):
			return symbolAbsent, "DeepEP's function of that name is another thing: a buffer size in bytes, no threshold", nil
		}
	}
	static, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return "", "", err
	}
	for _, s := range static {
		if s.Section != elf.SHN_UNDEF && s.Name == hintSymbol {
			return symbolLocal, "a program cannot call it", nil
		}
	}
	return symbol, note, nil
}

// foreign reports whether a symbol is DeepEP's C++ function of that name.
func foreign(name string) bool {
	return strings.HasPrefix(name, "_Z") && strings.Contains(name, "deep_ep") && strings.Contains(name, hintSymbol)
}
