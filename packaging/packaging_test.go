package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"more"}, `unexpected argument "more"`},
		{[]string{"-arch", "amd64,riscv64"}, `-arch: "riscv64" is none of amd64 and arm64`},
		{[]string{"-arch", ""}, `-arch: "" is none of amd64 and arm64`},
		{[]string{"-version", "v1.2.3"}, `-version: "v1.2.3" is no version`},
		{[]string{"-version", "1.2.3-rc 1"}, "is no version"},
		{[]string{"-version", "1.2.3\n-X evil"}, "is no version"},
	} {
		if err := run(t.Context(), c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
	if err := run(t.Context(), []string{"-nonsense"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("an unknown flag: error %v", err)
	}
}

func TestNewer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"2.34", "", true}, {"", "", false}, {"", "2.2.5", false}, {"2.34", "2.4", true}, {"2.4", "2.34", false},
		{"2.34", "2.34", false}, {"2.2.5", "2.2", true}, {"PRIVATE", "2.36", true},
	} {
		if got := newer(c.a, c.b); got != c.want {
			t.Errorf("newer(%q, %q) = %v", c.a, c.b, got)
		}
	}
}

func TestNeededPackages(t *testing.T) {
	want := []string{"dpkg", "gcc", "libc6-dev", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"}
	if got := neededPackages([]string{"amd64", "arm64"}, "amd64"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := missingPackages(t.Context(), []string{"dpkg", "no-such-package"}); !slices.Equal(got, []string{"no-such-package"}) {
		t.Errorf("missing: %q", got)
	}
}

func TestSourceDate(t *testing.T) {
	for text, want := range map[string]time.Time{"1700000000": time.Unix(1_700_000_000, 0), "0": time.Unix(0, 0)} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if got, err := sourceDate(t.Context(), "."); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "soon", "99999999999999"} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if got, err := sourceDate(t.Context(), "."); err == nil {
			t.Errorf("%s: %v, want an error", text, got)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if _, err := sourceDate(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no SOURCE_DATE_EPOCH and no commit") {
		t.Errorf("no commit: error %v", err)
	}
}

// TestCheck holds a program to the promises. This test's own is a Go program for this
// machine, whichever way it was built.
func TestCheck(t *testing.T) {
	hello := filepath.Join(t.TempDir(), "hello.go")
	if err := os.WriteFile(hello, []byte("package main\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	static := filepath.Join(t.TempDir(), "static")
	build := exec.Command("go", "build", "-o", static, hello)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n, err := (binary{arch: "amd64"}).check(static); err != nil || n.String() != "static" {
		t.Errorf("static: %v, %v", n, err)
	}
	for _, c := range []struct {
		b    binary
		path string
		want string
	}{
		{binary{arch: "arm64"}, static, "built for EM_X86_64, not EM_AARCH64"},
		{binary{arch: "amd64", verbs: true}, static, "could not open the verbs library"},
		{binary{arch: "amd64"}, hello, "bad magic"},
	} {
		if n, err := c.b.check(c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v, want %q", c.b, n, err, c.want)
		}
	}
}

// TestDebian packs a package whose programs are texts, from two directories, and looks at
// what dpkg makes of it.
func TestDebian(t *testing.T) {
	root := filepath.Dir(mustAbs(t, "."))
	var packed [][]byte
	for range 2 {
		dir := t.TempDir()
		docs := filepath.Join(dir, "docs")
		for _, name := range []string{"bash/rdmatune", "zsh/_rdmatune", "fish/rdmatune.fish", "man1/rdmatune.1", "program"} {
			path := filepath.Join(docs, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		p := debian{
			release: release{root: root, version: "1.2.3-rc.1", epoch: time.Unix(1_700_000_000, 0).UTC()},
			arch:    "arm64", glibc: "2.34", binary: filepath.Join(docs, "program"), docs: docs,
		}
		path := filepath.Join(dir, p.name())
		if err := p.build(t.Context(), filepath.Join(dir, "tree"), path); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		packed = append(packed, body)
		if len(packed) == 2 {
			looksRight(t, path)
		}
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("two packages of the same differ")
	}
}

func looksRight(t *testing.T, path string) {
	t.Helper()
	dpkg := func(args ...string) string {
		out, err := exec.Command("dpkg-deb", append(args, path)...).CombinedOutput()
		if err != nil {
			t.Fatalf("dpkg-deb %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if name := filepath.Base(path); name != "rdmatune_1.2.3~rc.1_arm64.deb" {
		t.Errorf("named %s", name)
	}
	control := dpkg("--field")
	for _, want := range []string{"Version: 1.2.3~rc.1\n", "Architecture: arm64\n", "Depends: libc6 (>= 2.34)\n", "\n .\n The daemon runs"} {
		if !strings.Contains(control, want) {
			t.Errorf("no %q in:\n%s", want, control)
		}
	}
	list := dpkg("--contents")
	for _, want := range []string{
		"-rwxr-xr-x root/root", " ./usr/bin/rdmatune\n", "drwxr-xr-x root/root         0 2023-11-14 22:13 ./etc/rdmatune/\n",
		" ./usr/lib/systemd/system/rdmatune.service\n", " ./etc/default/rdmatune\n", " ./usr/share/man/man1/rdmatune.1.gz\n",
		" ./usr/share/doc/rdmatune/changelog.gz\n", " ./usr/share/doc/rdmatune/examples/demo/node.hcl\n", " ./usr/share/doc/rdmatune/docs/operations.md\n",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in:\n%s", want, list)
		}
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " 2023-11-14 22:13 ") || line[5] == 'w' || line[8] == 'w' {
			t.Errorf("owner, time or mode: %s", line)
		}
	}
}

// TestScripts: Debian's policy wants the maintainer scripts to be right for dash.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("debian/p*")
	if err != nil || len(scripts) != 3 {
		t.Fatalf("scripts %q, error %v", scripts, err)
	}
	for _, script := range scripts {
		if out, err := exec.Command("dash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
		body, err := os.ReadFile(script)
		if err != nil || !bytes.HasPrefix(body, []byte("#!/bin/sh\n")) || !bytes.Contains(body, []byte("\nset -e\n")) {
			t.Errorf("%s: no shell that stops at errors (%v)", script, err)
		}
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
