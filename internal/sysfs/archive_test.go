package sysfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive returns a gzipped tar of members; a file's content is its name's.
func archive(t testing.TB, members ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, h := range members {
		if h.Typeflag == tar.TypeReg {
			h.Size, h.Mode = int64(len(h.Name)), 0o644
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(tw, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func reg(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }

func openArchive(t *testing.T, b []byte) (FS, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return OpenArchive(file, filepath.Join(t.TempDir(), "layer"), nil)
}

func TestArchive(t *testing.T) {
	f, err := openArchive(t, archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./host/"},
		reg("./host/sys/a/value"),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "./host/sys/link", Linkname: "/sys/a"},
		tar.Header{Typeflag: tar.TypeLink, Name: "./host/sys/hard", Linkname: "./host/sys/a/value"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "./host/sys/fifo"},
		tar.Header{Typeflag: tar.TypeChar, Name: "./host/sys/null", Devmajor: 1, Devminor: 3},
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/sys/a/value", "/sys/link/value", "/sys/hard"} {
		if s, err := f.ReadString(name); err != nil || s != "./host/sys/a/value" {
			t.Errorf("%s = %q, %v", name, s, err)
		}
	}
	if f.Exists("/sys/fifo") || f.Exists("/sys/null") {
		t.Error("special files were taken in")
	}
	if err := f.WriteFile("/sys/link/value", "new"); err != nil {
		t.Error(err)
	}
}

func TestHostileArchives(t *testing.T) {
	whole := archive(t, reg("sys/a"))
	bomb := archive(t, reg("sys/a"), tar.Header{Typeflag: tar.TypeReg, Name: "sys/" + strings.Repeat("d/", 200) + "x"})
	for name, tc := range map[string]struct {
		bytes []byte
		says  string
	}{
		"not gzip":          {[]byte("this is no archive at all"), "gzip"},
		"empty":             {nil, "EOF"},
		"cut":               {whole[:len(whole)-12], "EOF"},
		"up":                {archive(t, reg("sys/../../etc/passwd")), "leaves the archive"},
		"hard link out":     {archive(t, reg("sys/a"), tar.Header{Typeflag: tar.TypeLink, Name: "sys/b", Linkname: "../../etc/shadow"}), "leaves the archive"},
		"hard link to none": {archive(t, tar.Header{Typeflag: tar.TypeLink, Name: "sys/b", Linkname: "/etc/shadow"}), "no earlier file"},
		"deep":              {bomb, "deep"},
		"no tree":           {archive(t, reg("etc/passwd")), "holds neither"},
	} {
		if _, err := openArchive(t, tc.bytes); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

// TestArchiveSize: what a small file unpacks to is bounded.
func TestArchiveSize(t *testing.T) {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "sys/big", Size: MaxFile + 1, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := zw.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := readArchive(&b); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file of %d bytes: %v", MaxFile+1, err)
	}
}

func FuzzArchive(f *testing.F) {
	f.Add(archive(f, reg("sys/a"), tar.Header{Typeflag: tar.TypeSymlink, Name: "sys/l", Linkname: "/sys/a"}))
	f.Add(archive(f, reg("sys/a"), reg("sys/a/b"), reg("sys")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readArchive(bytes.NewReader(b))
		if err != nil {
			return
		}
		fs := m.Open(t.TempDir(), nil)
		var walk func(dir string, depth int)
		walk = func(dir string, depth int) {
			names, err := fs.ReadDir(dir)
			if err != nil || depth > maxArchiveDepth+1 {
				t.Fatalf("%s at depth %d: %v", dir, depth, err)
			}
			for _, name := range names {
				sub := dir + "/" + name
				if target, err := fs.Readlink(sub); err == nil {
					_, _ = fs.ReadFile(target)
				} else if fs.IsDir(sub) {
					walk(sub, depth+1)
				} else if _, err := fs.ReadFile(sub); err != nil {
					t.Fatalf("%s: listed but not readable: %v", sub, err)
				}
			}
		}
		walk("", 0)
	})
}
