package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// newestGlibc is that of the oldest release that packages are for, Debian 12.
const newestGlibc = "2.36"

// glibcParts are the libraries that a program may need: glibc's own, and the loader.
var glibcParts = []string{
	"libc.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2",
	"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
}

// needs is what a program wants to find on a machine.
type needs struct {
	libraries []string
	glibc     string // the lowest version that will do: "2.34"; "" without libraries
}

func (n needs) String() string {
	if len(n.libraries) == 0 {
		return "static"
	}
	return "needs " + strings.Join(n.libraries, ", ") + " of glibc " + n.glibc
}

// check reads from the ELF file at path what it needs, and says what is not as it must
// be for b.
func (b binary) check(path string) (needs, error) {
	f, err := elf.Open(path)
	if err != nil {
		return needs{}, err
	}
	defer f.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[b.arch]; f.Machine != want {
		return needs{}, fmt.Errorf("built for %v, not %v", f.Machine, want)
	}
	var n needs
	if n.libraries, err = f.ImportedLibraries(); err != nil {
		return needs{}, err
	}
	interpreter := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if !b.verbs {
		if interpreter || len(n.libraries) > 0 {
			return n, fmt.Errorf("not static: it needs %v", n.libraries)
		}
		return n, nil
	}
	for _, lib := range n.libraries {
		if !slices.Contains(glibcParts, lib) {
			return n, fmt.Errorf("it needs %s, which is no part of glibc", lib)
		}
	}
	if !interpreter || !slices.Contains(n.libraries, "libc.so.6") {
		return n, errors.New("static: it could not open the verbs library")
	}
	versions, err := f.DynamicVersionNeeds()
	if err != nil {
		return n, err
	}
	for _, v := range versions {
		for _, need := range v.Needs {
			if version, ok := strings.CutPrefix(need.Dep, "GLIBC_"); ok && newer(version, n.glibc) {
				n.glibc = version
			}
		}
	}
	if newer(n.glibc, newestGlibc) {
		return n, fmt.Errorf("it needs glibc %s, and may need %s at most", n.glibc, newestGlibc)
	}
	return n, nil
}

// newer reports whether the dotted version a is above b. A part that is no number
// (GLIBC_PRIVATE) counts as above all.
func newer(a, b string) bool {
	parts := func(v string) []int {
		var all []int
		for part := range strings.SplitSeq(v, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				n = 1 << 30
			}
			all = append(all, n)
		}
		return all
	}
	if b == "" {
		return a != ""
	}
	return a != "" && slices.Compare(parts(a), parts(b)) > 0
}
