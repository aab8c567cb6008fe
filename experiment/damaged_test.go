package experiment

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDamaged: a database that is none, or is damaged, is told from other failures, and can
// be set aside without a byte of it being lost.
func TestDamaged(t *testing.T) {
	whole := func(dir string) []byte {
		db, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		make    func(path string) error
		damaged bool
	}{
		"random": {func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("random"), 1000), 0o600) }, true},
		"cut": {func(path string) error {
			b := whole(filepath.Dir(path))
			return os.WriteFile(path, b[:5000], 0o600)
		}, true},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			db, err := Open(t.Context(), dir)
			if err == nil {
				_ = db.Close()
				t.Fatal("it was opened")
			}
			if Damaged(err) != c.damaged {
				t.Fatalf("damaged %v: %v", Damaged(err), err)
			}
			if !c.damaged {
				return
			}
			aside, err := setAside(dir, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if after, err := os.ReadFile(aside); err != nil || !bytes.Equal(before, after) {
				t.Errorf("set aside: %d bytes of %d, %v", len(after), len(before), err)
			}
			whole(dir)
		})
	}
	if _, err := setAside(t.TempDir(), time.Now()); err == nil {
		t.Error("nothing was set aside")
	}
}
