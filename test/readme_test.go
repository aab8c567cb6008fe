// Package test holds the tests of the project as a whole.
package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What differs from run to run, and what stands for it in a comparison.
var volatile = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{8}-\d{6}-[0-9a-f]{4}`), "ID"},
	{regexp.MustCompile(`\["\d+"\]`), `["PID"]`},
	{regexp.MustCompile(`\d+ threads?`), "N threads"},
	{regexp.MustCompile(`^ +\d+ \(rdmatune\)`), "PID (rdmatune)"},
	// Columns of a benchmark's table: count and latencies.
	{regexp.MustCompile(`^( +\d+ (?:B|KiB) +(?:inline|eager|rendezvous)) +\d+ +[-\d. ]+\s*$`), "$1 N AND LATENCIES"},
	{regexp.MustCompile(`Of \d+ messages`), "Of N messages"},
	{regexp.MustCompile(` +`), " "},
}

func normalise(line string) string {
	for _, v := range volatile {
		line = v.re.ReplaceAllString(line, v.with)
	}
	return strings.TrimSpace(line)
}

// cut stands for lines that the README leaves out.
const cut = "..."

// shows returns how many of want's lines from the first one on printed has one directly
// after the other, with any lines in the place of a cut. end is reached when all are there
// and nothing is left out behind them: the next command follows.
func shows(want, printed []string, gap bool) int {
	if len(want) == 0 {
		for _, line := range printed {
			if line != "" {
				if gap || strings.HasPrefix(line, "$ ") {
					return 0
				}
				return -1 // left out without a cut
			}
		}
		return 0
	}
	if want[0] == cut {
		if n := shows(want[1:], printed, true); n >= 0 {
			return n + 1
		}
		return -1
	}
	best := 0
	for i, line := range printed {
		if line == want[0] {
			n := shows(want[1:], printed[i+1:], false)
			if n+1 == len(want) {
				return len(want)
			}
			best = max(best, n+1)
		}
		if !gap {
			break
		}
	}
	return best
}

// TestShows: every line is shown, or its place is marked.
func TestShows(t *testing.T) {
	printed := []string{"$ a", "x", "", "y", "", "z", "", "$ b", "w"}
	for _, tc := range []struct {
		want  string
		whole bool
	}{
		{"$ a|x||y||z", true}, {"$ a|...|z", true}, {"$ a|...||z", true}, {"$ a|x|...", true}, {"...|z", true}, {"...|$ b|w", true},
		{"$ a|x", false}, {"$ a|y||z", false}, {"$ a|x||z", false}, {"z", false}, {"$ a|...|z|w", false}, {"$ a|...|q", false},
	} {
		want := strings.Split(tc.want, "|")
		if n := shows(want, printed, false); (n == len(want)) != tc.whole {
			t.Errorf("%s: %d of %d lines", tc.want, n, len(want))
		}
	}
}

// TestREADME runs the demonstration and checks that it prints what the README shows, line
// after line, and that every cut is marked.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../examples/demo/run.sh")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demonstration failed: %v\n%s", err, out)
	}
	var printed []string
	for line := range strings.Lines(string(out)) {
		printed = append(printed, normalise(line))
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 2 {
		t.Fatalf("the README shows %d blocks of output", len(blocks))
	}
	for _, b := range blocks {
		var want []string
		for line := range strings.Lines(b[1]) {
			want = append(want, normalise(line))
		}
		start := slices.Index(printed, want[0])
		if want[0] == cut {
			start = 0
		}
		if n := shows(want, printed[max(start, 0):], false); start < 0 || n < len(want) {
			t.Errorf("the README shows something else than the demonstration prints, from this line on, or lacks %q:\n%s\nwhole output:\n%s",
				cut, want[min(max(n, 0), len(want)-1)], out)
		}
	}
}

// TestLinks checks that every file that the documents link to is there.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("no docs: %v", err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, doc := range append(docs, "../README.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}
