package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// FuzzFacts: whatever a capture holds, its facts are read without a panic and can be
// written as JSON.
func FuzzFacts(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		f.Fatalf("no machines in testdata: %v", err)
	}
	for _, file := range archives {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		m := sysfs.NewMem()
		for _, file := range txtar.Parse(archive).Files {
			if name, ok := strings.CutSuffix(file.Name, "@"); ok {
				m.Link(name, strings.TrimSpace(string(file.Data)))
			} else {
				m.File(file.Name, string(file.Data))
			}
		}
		n := &Node{kind: Captured, fs: m.Open(t.TempDir(), nil, sysfs.WithEmulator(kernel{}))}
		facts, err := n.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(facts); err != nil {
			t.Fatal(err)
		}
	})
}
