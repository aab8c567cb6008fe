// Package test holds the tests of the project as a whole.
package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	{regexp.MustCompile(`\d+ threads`), "N threads"},
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

// TestREADME runs the demonstration and checks that it prints what the README shows,
// line after line.
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
		at := 0
		for line := range strings.Lines(b[1]) {
			want := normalise(line)
			for at < len(printed) && printed[at] != want {
				at++
			}
			if at == len(printed) {
				t.Errorf("the README shows a line that the demonstration does not print here:\n%s\nwhole output:\n%s", line, out)
				break
			}
			at++
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
