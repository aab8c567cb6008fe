package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDefault(t *testing.T) {
	t.Setenv("RDMATUNE_RUN_DIR", "/some/where")
	if dir := Default(); dir != "/some/where" {
		t.Errorf("run directory %s", dir)
	}
	t.Setenv("RDMATUNE_RUN_DIR", "relative")
	if dir := Default(); !filepath.IsAbs(dir) {
		t.Errorf("run directory %s", dir)
	}
}

func TestMake(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "a", "run")
	for range 2 {
		if err := Make(dir); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("run directory: %v, %v", info, err)
	}
	link := filepath.Join(base, "link")
	file := filepath.Join(base, "file")
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{link, file} {
		if err := Make(bad); err == nil {
			t.Errorf("%s is taken for a run directory", bad)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir); err == nil {
		t.Error("a directory that all may write is taken")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if err := Make(dir); err == nil {
			t.Error("another user's directory is taken")
		}
	}
}
