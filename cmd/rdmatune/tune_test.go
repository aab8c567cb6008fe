package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReplaceFile replaces a file of another user, as root would: it stays that user's,
// with its mode.
func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.hcl")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 65534, 65534
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if err := replaceFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "new" {
		t.Errorf("%q, %v", text, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if own := st.Sys().(*syscall.Stat_t); int(own.Uid) != uid || int(own.Gid) != gid || st.Mode().Perm() != 0o640 {
		t.Errorf("owner %d:%d, mode %v; want %d:%d, -rw-r-----", own.Uid, own.Gid, st.Mode(), uid, gid)
	}
	if err := replaceFile(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a file that is not there was replaced")
	}
}
