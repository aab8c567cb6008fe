package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestScriptsRunOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for name, text := range map[string]string{
		"1.sh": "echo one; X=set", "2.sh": "echo two; exit 3\necho never", "3.sh": "echo three $X", "4.sh": "exit 4",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"1.sh", "2.sh", "3.sh", "4.sh"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	script, err := readScripts(paths)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("error %v, want the first failure's code 3", err)
	}
	if want := "one\ntwo\nthree\n"; string(out) != want {
		t.Errorf("output %q, want %q", out, want)
	}
	if script, err := readScripts(nil); err != nil || script != tour {
		t.Errorf("no scripts: %q, error %v; want the tour", script, err)
	}
	if _, err := readScripts([]string{filepath.Join(dir, "none.sh")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want not found", err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-nonsense"}, {"-timeout", "soon"}} {
		if code, err := run(t.Context(), args); code != 2 || err != nil {
			t.Errorf("%q: code %d, error %v; want 2", args, code, err)
		}
	}
}
