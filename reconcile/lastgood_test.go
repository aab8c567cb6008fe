package reconcile

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// A heldTest is a spec that was kept by a loop, and is invalid when the next one begins.
type heldTest struct {
	t    *testing.T
	node *node.Node
	log  bytes.Buffer
	file string // the spec's
	copy string // of the last good one
	doc  *state.Document
	good *spec.Spec
}

func newHeldTest(t *testing.T) *heldTest {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &heldTest{t: t, node: n, file: filepath.Join(t.TempDir(), "n.hcl"), copy: filepath.Join(n.StateDir(), lastGoodName), doc: &state.Document{}}
	h.write(h.file, "workload \"w\" {\n}\n")
	l := h.loop()
	var diags hcl.Diagnostics
	if h.good, diags = l.load(); diags.HasErrors() {
		t.Fatal(diags)
	}
	l.keep(h.good, time.Now().Add(-90*time.Minute), false)
	l.keepLastGood()
	return h
}

func (h *heldTest) loop() *Loop {
	l := newLoop(h.t, Config{Node: h.node, BootID: "b", Log: slog.New(slog.NewTextHandler(&h.log, nil)),
		Load: func() (*spec.Spec, hcl.Diagnostics) { return spec.Load(h.file, spec.Options{}) }})
	l.doc = h.doc
	return l
}

func (h *heldTest) write(name, text string) {
	h.t.Helper()
	h.must(os.WriteFile(name, []byte(text), 0o600))
}

func (h *heldTest) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// replace changes the copy's text in one place.
func (h *heldTest) replace(old, new string) {
	h.t.Helper()
	b, err := os.ReadFile(h.copy)
	h.must(err)
	if !bytes.Contains(b, []byte(old)) {
		h.t.Fatalf("the copy has no %s: %s", old, b)
	}
	h.write(h.copy, strings.Replace(string(b), old, new, 1))
}

// TestLastGood begins with an invalid spec: the last good one is kept if its copy is whole
// and is of the same spec, and anything else is as if there was none, and said.
func TestLastGood(t *testing.T) {
	manage := func(h *heldTest) {
		h.doc.Put(state.Entry{BootID: "b", Target: param.Target{Kind: param.IRQ, Name: "0000:01:00.0/0"}, ID: param.IRQCPUs, Original: param.Text("0"), Written: param.Text("1")})
	}
	for name, test := range map[string]struct {
		spoil func(h *heldTest)
		said  string // in the log; "" for a copy that is used
	}{
		"whole":                   {func(*heldTest) {}, ""},
		"whole, after its apply":  {func(h *heldTest) { h.doc.SpecDigest = h.good.Digest }, ""},
		"whole, of the same root": {func(h *heldTest) { h.doc.SpecRoot = h.good.Root; manage(h) }, ""},
		"the files are gone":      {func(h *heldTest) { h.must(os.Remove(h.file)) }, ""},
		"none":                    {func(h *heldTest) { h.must(os.Remove(h.copy)) }, errNoLastGood.Error()},
		"another was applied":     {func(h *heldTest) { h.doc.SpecDigest = "d" }, "another version of the spec was applied since"},
		"destroyed since":         {func(h *heldTest) { h.doc.Destroyed++ }, "rdmatune destroy has restored the originals since"},
		"another root":            {func(h *heldTest) { h.doc.SpecRoot = "/other"; manage(h) }, "this node is tuned by the spec /other"},
		"another path":            {func(h *heldTest) { h.replace(`"path":"`, `"path":"/x`) }, "it is of another spec"},
		"another format":          {func(h *heldTest) { h.replace(`"format":1`, `"format":2`) }, "it has format 2"},
		"torn":                    {func(h *heldTest) { h.must(os.Truncate(h.copy, 100)) }, "damaged"},
		"empty":                   {func(h *heldTest) { h.must(os.Truncate(h.copy, 0)) }, "damaged"},
		"of zeros":                {func(h *heldTest) { h.write(h.copy, strings.Repeat("\x00", 1000)) }, "damaged"},
		"another text":            {func(h *heldTest) { h.replace("d29ya2xvYWQgInciIHs", "d29ya2xvYWQgIngiIHs") }, "damaged"},
		"no text":                 {func(h *heldTest) { h.replace(`"texts":{`, `"others":{`) }, "file does not exist"},
		"too large":               {func(h *heldTest) { h.must(os.Truncate(h.copy, maxLastGood+1)) }, "larger than 16 MiB"},
		"for all to read":         {func(h *heldTest) { h.must(os.Chmod(h.copy, 0o644)) }, "others may read or write it (mode 0644)"},
		"somebody else's":         {func(h *heldTest) { h.must(os.Chown(h.copy, 65534, 65534)) }, "it belongs to user 65534"},
		"a link":                  {func(h *heldTest) { h.must(os.Rename(h.copy, h.copy+"2")); h.must(os.Symlink(h.copy+"2", h.copy)) }, "a symbolic link, not a regular file"},
		"a directory":             {func(h *heldTest) { h.must(os.Remove(h.copy)); h.must(os.Mkdir(h.copy, 0o700)) }, "a directory, not a regular file"},
		"a pipe":                  {func(h *heldTest) { h.must(os.Remove(h.copy)); h.must(unix.Mkfifo(h.copy, 0o600)) }, "a pipe, not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeldTest(t)
			h.write(h.file, "workload \"w\" {\n  cpu_pining {\n  }\n}\n")
			test.spoil(h)
			begin := func() (*Loop, error) {
				l := h.loop()
				sp, diags := l.load()
				if !diags.HasErrors() {
					t.Fatal("the spec is valid")
				}
				return l, l.beginInvalid(sp, diags)
			}
			if test.said == "" {
				l, err := begin()
				if err != nil {
					t.Fatal(err)
				}
				s := l.Status()
				if age := time.Since(s.Spec.Loaded); !s.Spec.Copy || age < time.Hour || age > 2*time.Hour {
					t.Errorf("copy %v, loaded %v ago; want the age of the files' spec", s.Spec.Copy, age)
				}
				if s.Spec.Digest != h.good.Digest || s.Healthy || s.Spec.Invalid == "" || !strings.Contains(s.Problems[0], "the last good one is kept: ") {
					t.Errorf("%+v, problems %q", s.Spec, s.Problems)
				}
				if _, err := os.Stat(h.file); err == nil && !strings.Contains(s.Spec.Invalid, h.file+":2,3: ") {
					t.Errorf("invalid %q, want the place in the present file", s.Spec.Invalid)
				}
				if said := h.log.String(); strings.Count(said, "level=ERROR") != 1 || !strings.Contains(said, "the last good one is kept") {
					t.Errorf("log: %s", said)
				}
				return
			}
			// Nothing is managed: it does not begin.
			h.doc.Entries = slices.DeleteFunc(h.doc.Entries, func(state.Entry) bool { return name != "another root" })
			if name != "another root" {
				if _, err := begin(); err == nil || !strings.Contains(err.Error(), h.file+":2,3: ") {
					t.Errorf("with nothing managed: %v", err)
				}
				if said := h.log.String(); strings.Contains(said, test.said) != (name != "none") {
					t.Errorf("log: %s", said)
				}
				manage(h)
			}
			// Something is: it is left as it is.
			h.log.Reset()
			l, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			if s := l.Status(); s.Spec.Digest != "" || s.Healthy || !slices.Contains(s.Problems, unkept) {
				t.Errorf("%+v, problems %q", s.Spec, s.Problems)
			}
			if said := h.log.String(); !strings.Contains(said, test.said) || strings.Contains(said, "is kept") {
				t.Errorf("log: %s, want %q", said, test.said)
			}
		})
	}
}

// TestLastGoodBefore: a spec that was loaded and not applied yet is held, too.
func TestLastGoodBefore(t *testing.T) {
	h := newHeldTest(t)
	h.doc.SpecDigest = h.good.Digest
	h.write(h.file, "workload \"x\" {\n}\n")
	l := h.loop()
	l.spec = h.good
	if !l.reload() {
		t.Fatal("not reloaded")
	}
	next := l.spec.Digest
	for digest, want := range map[string]bool{h.good.Digest: true, next: true, "": true, "third": false} {
		h.doc.SpecDigest = digest
		sp, _, err := h.loop().heldSpec(h.file)
		if (err == nil) != want || want && sp.Digest != next {
			t.Errorf("state of %q: %v", digest, err)
		}
	}
}

// TestLastGoodAfterDestroy: a copy that was made since the last destroy is as good as any,
// and one without an age is used without one.
func TestLastGoodAfterDestroy(t *testing.T) {
	h := newHeldTest(t)
	h.doc.Destroyed = 3
	l := h.loop()
	l.keep(h.good, time.Time{}, false)
	l.keepLastGood()
	for destroyed, want := range map[uint64]bool{0: true, 3: true, 4: false} {
		h.doc.Destroyed = destroyed
		if _, loaded, err := h.loop().heldSpec(h.file); (err == nil) != want || !loaded.IsZero() {
			t.Errorf("destroyed %d times: %v, loaded %v", destroyed, err, loaded)
		}
	}
}

// TestCopyIsLoadedAgain: when the files have again what the copy has, it is the files' age.
func TestCopyIsLoadedAgain(t *testing.T) {
	h := newHeldTest(t)
	good, err := os.ReadFile(h.file)
	h.must(err)
	h.write(h.file, "workload {")
	l := h.loop()
	sp, diags := l.load()
	h.must(l.beginInvalid(sp, diags))
	h.write(h.file, string(good))
	if !l.reload() {
		t.Fatal("not reloaded")
	}
	if s := l.Status().Spec; s.Copy || s.Invalid != "" || time.Since(s.Loaded) > time.Minute || s.Digest != h.good.Digest {
		t.Errorf("%+v", s)
	}
}

// TestLastGoodIsPrivate: variables may be secrets.
func TestLastGoodIsPrivate(t *testing.T) {
	h := newHeldTest(t)
	st, err := os.Stat(h.copy)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// TestLastGoodUnwritable: that a copy cannot be written is told once, tried again, and
// hinders nothing; a dry run writes none.
func TestLastGoodUnwritable(t *testing.T) {
	h := newHeldTest(t)
	h.must(os.Remove(h.copy))
	h.must(os.MkdirAll(filepath.Join(h.copy, "x"), 0o700)) // nothing can be moved here
	l := h.loop()
	l.adopt(h.good)
	for range 3 {
		l.keepLastGood()
	}
	if said := h.log.String(); strings.Count(said, "a restart will not know this spec") != 1 {
		t.Errorf("log: %s", said)
	}
	h.must(os.RemoveAll(h.copy))
	dry := h.loop()
	dry.c.DryRun = true
	dry.adopt(h.good)
	dry.keepLastGood()
	if _, err := os.Stat(h.copy); err == nil {
		t.Error("a dry run has written a copy")
	}
	l.keepLastGood()
	if _, _, err := h.loop().heldSpec(h.file); err != nil {
		t.Error(err)
	}
}

// TestLastGoodTooLarge: it is not tried again and again.
func TestLastGoodTooLarge(t *testing.T) {
	h := newHeldTest(t)
	h.must(os.Remove(h.copy))
	for i := range 4 {
		h.write(filepath.Join(filepath.Dir(h.file), string(rune('a'+i))+".hcl"), strings.Repeat("#"+strings.Repeat("x", 999)+"\n", 4000))
	}
	h.file = filepath.Dir(h.file)
	l := h.loop()
	sp, diags := l.load()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	l.adopt(sp)
	for range 3 {
		l.keepLastGood()
	}
	if l.copied != sp.Digest || strings.Count(h.log.String(), errTooLarge.Error()) != 1 {
		t.Errorf("copied %q, log: %s", l.copied, h.log.String())
	}
	if _, err := os.Stat(h.copy); err == nil {
		t.Error("a copy was written")
	}
}
