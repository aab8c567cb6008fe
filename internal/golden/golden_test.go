package golden

import (
	"os"
	"strings"
	"testing"
)

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("testdata", 0o700); err != nil {
		t.Fatal(err)
	}
	was := *Update
	t.Cleanup(func() { *Update = was })
	for _, step := range []struct {
		update, fails bool
		got           string
	}{{true, false, "a\n"}, {false, false, "a\n"}, {false, true, "b\n"}, {false, true, ""}, {true, false, "b\n"}, {false, false, "b\n"}} {
		*Update = step.update
		text, bytes := &recorder{TB: t}, &recorder{TB: t}
		Check(text, "file.txt", step.got)
		Check(bytes, "file.txt", []byte(step.got))
		if text.failed != step.fails || bytes.failed != step.fails {
			t.Errorf("%+v: %t, %t", step, text.failed, bytes.failed)
		}
	}
	if b, err := os.ReadFile("testdata/file.txt"); err != nil || !strings.HasPrefix(string(b), "b") {
		t.Errorf("%q, %v", b, err)
	}
}
