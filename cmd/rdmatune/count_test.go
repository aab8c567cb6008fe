package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCounts: a number of things that can be one is written by param.Count. Errors about
// limits, which are far from one, and what is never one are left out.
func TestCounts(t *testing.T) {
	counted := regexp.MustCompile(`"[^"]*%d [a-z -]*[a-z]s\b`)
	never := []string{
		"%d bytes", "Errorf(", "%d ranks", "%d times", "of %d timed messages", "of %d questions", "wake from", "%d threads)", "%d connections",
		"bursts of %d", "%d samples", "%d messages were under way", "of %d experiments",
	}
	for _, dir := range []string{".", "../../audit", "../../audit/live", "../../bench", "../../doctor", "../../tune"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
		lines:
			for line := range strings.Lines(string(text)) {
				if !counted.MatchString(line) {
					continue
				}
				for _, n := range never {
					if strings.Contains(line, n) {
						continue lines
					}
				}
				t.Errorf("%s: one of them would be in the plural: %s", name, strings.TrimSpace(line))
			}
		}
	}
}
