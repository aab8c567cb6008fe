package reconcile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// TestRescue does to a state what people do to files, while a loop knows what is in it.
func TestRescue(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(h *heldTest, file string, older []byte)
		said    string // in the log
		fails   string // of the error
		written string // of the setting, afterwards
	}{
		"nothing":  {func(*heldTest, string, []byte) {}, "", "", "2"},
		"removed":  {func(h *heldTest, file string, _ []byte) { h.must(os.Remove(file)) }, "written anew", "", "2"},
		"set back": {func(h *heldTest, file string, older []byte) { h.write(file, string(older)) }, "written anew", "", "2"},
		"another": {func(h *heldTest, file string, older []byte) {
			h.write(file, strings.Replace(string(older), `"lineage": "`, `"lineage": "0`, 1))
		}, "", "another one than this daemon has kept", "1"},
		"damaged": {func(h *heldTest, file string, _ []byte) { h.write(file, "{") }, "", "read state", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeldTest(t)
			l := h.loop()
			dir := h.node.StateDir()
			file := filepath.Join(dir, "state.json")
			entry := state.Entry{BootID: "b", Target: param.Target{Kind: param.IRQ, Name: "0000:01:00.0/0"}, ID: param.IRQCPUs, Original: param.Text("0"), Written: param.Text("1")}
			l.doc.Put(entry)
			h.must(l.doc.Save(dir))
			older, err := os.ReadFile(file)
			h.must(err)
			entry.Written = param.Text("2")
			l.doc.Put(entry)
			h.must(l.doc.Save(dir))
			c.do(h, file, older)
			err = l.rescue()
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
			if log := h.log.String(); strings.Contains(log, "level=ERROR") != (c.said != "") || !strings.Contains(log, c.said) {
				t.Errorf("log %q, want %q", log, c.said)
			}
			if c.written == "" {
				return
			}
			now, err := state.Load(dir)
			h.must(err)
			if e := now.Find("b", entry.Key()); e == nil || e.Written != param.Text(c.written) || e.Original != entry.Original {
				t.Errorf("the state has %+v", e)
			}
			if err := l.rescue(); c.fails == "" && err != nil {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}
