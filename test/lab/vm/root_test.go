package vm

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"
)

func TestAddTar(t *testing.T) {
	archive := func(headers ...tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = int64(len(h.Name))
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte(h.Name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	var out bytes.Buffer
	a := newCpio(&out)
	err := addTar(a, archive(
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		tar.Header{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./usr/bin/tool", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "./usr/bin/other", Typeflag: tar.TypeLink, Linkname: "./usr/bin/tool", Mode: 0o755},
		tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar},
		tar.Header{Name: "./devices", Typeflag: tar.TypeReg, Mode: 0o644},
	), []string{"dev"})
	if err != nil || a.Close() != nil {
		t.Fatal(err, a.Close())
	}
	for name, want := range map[string]bool{"bin": true, "usr/bin/tool": true, "usr/bin/other": true, "devices": true, "dev": false, "dev/null": false} {
		if a.seen[name] != want {
			t.Errorf("%s is there: %v", name, a.seen[name])
		}
	}
	if n := strings.Count(out.String(), "./usr/bin/tool"); n != 2 {
		t.Errorf("the linked file's content is there %d times, want 2", n)
	}
	for want, h := range map[string]tar.Header{
		"pipe: of type":             {Name: "pipe", Typeflag: tar.TypeFifo},
		"which did not come before": {Name: "b", Typeflag: tar.TypeLink, Linkname: "a"},
	} {
		if err := addTar(newCpio(&out), archive(h), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := addTar(newCpio(&out), strings.NewReader(strings.Repeat("no tar ", 200)), nil); err == nil {
		t.Error("what is no tar file was taken")
	}
}
