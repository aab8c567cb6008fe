package transport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// TestInlineIsRemembered opens devices of one identity and of others.
func TestInlineIsRemembered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "devices")
	attr := soft.Provider{}
	dev, err := attr.Open("soft0")
	if err != nil {
		t.Fatal(err)
	}
	id := dev.Attr()
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	id.NodeGUID, id.VendorPartID, id.Firmware = 0x0123456789abcdef, 4129, "22.35.1012"
	path := filepath.Join(dir, "0123456789abcdef.json")
	// probes opens the device and returns how many queue pairs that took, and the limit.
	probes := func(id verbs.DeviceAttr, dir string) (int64, int) {
		n := &counts{}
		tr := openOn(t, Options{CacheDir: dir}, counting{soft.Provider{}, &id, n})
		defer tr.Close()
		return n.madeQPs.Load(), tr.maxInline
	}
	first, limit := probes(id, dir)
	if first == 0 || limit < 16 {
		t.Fatalf("%d queue pairs to find %d", first, limit)
	}
	if n, got := probes(id, dir); n != 0 || got != limit {
		t.Errorf("again: %d queue pairs to find %d", n, got)
	}
	if n, _ := probes(id, ""); n == 0 {
		t.Error("remembered nowhere, and not probed")
	}
	changed := id
	changed.Firmware = "22.36.1010"
	if n, _ := probes(changed, dir); n == 0 {
		t.Error("other firmware is not probed")
	}
	if n, _ := probes(changed, dir); n != 0 {
		t.Error("other firmware is not remembered")
	}
	anonymous := id
	anonymous.NodeGUID = 0
	if n, _ := probes(anonymous, dir); n == 0 {
		t.Error("a device without an identity is not probed")
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "not JSON": "{", "negative": strings.Replace(string(good), `"inline": `, `"inline": -`, 1),
		"huge":        strings.Replace(string(good), `"inline": `, `"inline": 99999`, 1),
		"other type":  strings.Replace(string(good), `"rc"`, `"xrc"`, 1),
		"other shape": strings.Replace(string(good), `"version": 1`, `"version": 2`, 1),
		"too long":    string(good) + strings.Repeat(" ", maxDeviceFile),
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if n, got := probes(changed, dir); n == 0 || got != limit {
			t.Errorf("%s: %d queue pairs to find %d", name, n, got)
		}
	}
	// A file that others may write, or that is none, is not believed.
	if err := os.WriteFile(path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if n, _ := probes(changed, dir); n == 0 {
		t.Error("a file that others may write is believed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere.json", path); err != nil {
		t.Fatal(err)
	}
	if n, _ := probes(changed, dir); n == 0 {
		t.Error("a link is followed")
	}
}

func TestCacheDir(t *testing.T) {
	dir := t.TempDir()
	if got := cacheDir(Options{CacheDir: "/x", RunDir: dir}); got != "/x" {
		t.Errorf("asked for /x: %q", got)
	}
	want := ""
	if os.Geteuid() == 0 {
		want = filepath.Join(dir, "devices")
	}
	if got := cacheDir(Options{RunDir: dir}); got != want {
		t.Errorf("own run directory: %q, want %q", got, want)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := cacheDir(Options{RunDir: dir}); got != "" {
		t.Errorf("a directory that others may write: %q", got)
	}
	if got := cacheDir(Options{}); got != "" {
		t.Errorf("no run directory: %q", got)
	}
}

func FuzzDeviceFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"node_guid":"0123456789abcdef","vendor_id":713,"part_id":4129,"firmware":"22","qp_type":"rc","segments":1,"inline":512}`))
	f.Add([]byte(`{"version":1,"inline":-5}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDevice(b)
		if err == nil && (d.Inline < 0 || d.Inline > verbs.MaxProbedInline) {
			t.Fatalf("%q reads as %+v", b, d)
		}
	})
}
