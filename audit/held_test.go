package audit

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/node"
)

// TestNotHeld: a process of another node than this machine has not ended because a file
// of it was not kept.
func TestNotHeld(t *testing.T) {
	simulated, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := simulated.Adopt(node.Process{PID: 100, Start: 1, Comm: "train", Workload: "w"}); err != nil {
		t.Fatal(err)
	}
	stat := put("proc/100/stat", "100 (train) S"+strings.Repeat(" 0", 18)+" 77 0\n")
	comm := put("proc/100/comm", "train\n")
	captured := func(files ...txtar.File) *node.Node {
		n, err := node.Open(fixture.Files(t, append(files, stat, comm)...), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, tc := range map[string]struct {
		node *node.Node
		says string
	}{
		"simulated":               {simulated, "(the simulated node does not hold it)"},
		"captured without maps":   {captured(put("proc/100/environ", "A=b\x00")), "(the captured node does not hold it)"},
		"captured, no more of it": {captured(), "environment: the captured node does not hold it"},
	} {
		r, err := Processes(t.Context(), tc.node, []int{100}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Processes) != 1 {
			t.Errorf("%s: processes %+v", name, r.Processes)
			continue
		}
		if text := r.Processes[0].Err + strings.Join(r.Notes, "; "); !strings.Contains(text, tc.says) || strings.Contains(text, "is gone") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
