package printable

import (
	"strconv"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"rank 0: größer, 終":  "rank 0: größer, 終",
		"a\nb\tc":            "a?b?c",
		"\x1b[2Jx":           "?[2Jx",
		"\u009b2Jx":          "?2Jx", // CSI of the C1 set
		"a\u202eb":           "a?b",  // right-to-left override
		"a\u2066b\u200fc":    "a?b?c",
		"bad \xff\xfe bytes": "bad ? bytes",
		"\x7f\u00a0":         "??",
	} {
		if got := Line(text); got != want {
			t.Errorf("Line(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"short", 5, "short"},
		{"longer", 4, "long..."},
		{"aé", 2, "a..."}, // no half a character
		{"a\u202eb", 4, "a?..."},
		{"x", -1, "..."},
	} {
		if got := Clip(c.text, c.most); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"", "a\u009bb", "\xff", "\u202e", "\x00\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Line(s)
		if !utf8.ValidString(got) || Line(got) != got {
			t.Fatalf("Line(%q) = %q", s, got)
		}
		for _, r := range got {
			if !strconv.IsPrint(r) {
				t.Fatalf("Line(%q) = %q holds %U", s, got, r)
			}
		}
	})
}
