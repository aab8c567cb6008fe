package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// TestOfflineCPUs restores the affinity of a thread that rdmatune pinned to CPU 2.
func TestOfflineCPUs(t *testing.T) {
	set := func(list string) cpulist.Set {
		s, err := cpulist.ParseKernel(list)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, tc := range map[string]struct {
		original, maybe, have, online, present string
		restored                               string // to what; "" when nothing is written
		pending, alone, forgotten              bool
	}{
		"all online":                      {"0-3", "", "2", "0-3", "0-3", "0-3", false, false, false},
		"unknown":                         {"0-3", "", "2", "", "", "0-3", false, false, false},
		"one offline, first":              {"0-3", "", "2", "0-2", "0-3", "0-3", false, false, false},
		"one offline, cut":                {"0-3", "0-3", "0-2", "0-2", "0-3", "", true, false, false},
		"another offline as well":         {"0-3", "0-3", "0-2", "0-1", "0-3", "", true, false, false},
		"back":                            {"0-3", "0-2", "0-2", "0-3", "0-3", "0-3", false, false, false},
		"one of two back":                 {"0-7", "0-2", "0-2", "0-6", "0-7", "0-7", false, false, false},
		"all of it offline":               {"3", "", "2", "0-2", "0-3", "", true, false, false},
		"somebody else's":                 {"0-3", "0-3", "1", "0-2", "0-3", "", false, true, false},
		"kept by the kernel":              {"0-3", "", "0-3", "0-2", "0-3", "", false, false, true},
		"more than there is":              {"0-239", "", "2", "0-3", "0-3", "0-3", false, false, false},
		"more than there is, restored":    {"0-239", "0-239", "0-3", "0-3", "0-3", "", false, false, true},
		"more than there is, one offline": {"0-239", "0-239", "0-2", "0-2", "0-3", "", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := process("10", "10@1="+tc.have)
			e := entry(found.Target, param.PinCPUs, "10@1", param.Text(tc.original), param.Text("2"), "a")
			if tc.maybe != "" {
				v := param.Text(tc.maybe)
				e.Maybe = &v
			}
			in := input(document(e))
			in.Online, in.Present = set(tc.online), set(tc.present)
			in.Remembered, in.Destroy = []param.Observed{found}, true
			p := Make(in)
			restored := ""
			if len(p.Changes) > 0 {
				restored, _ = p.Changes[0].New.AsText()
			}
			forgotten := len(p.Base.Entries) == 0
			if said := strings.Contains(text(t, p), "pending."); said != tc.pending {
				t.Errorf("says that something is pending: %v\n%s", said, text(t, p))
			}
			if restored != tc.restored || len(p.Pending) > 0 != tc.pending || p.LeftAlone > 0 != tc.alone || forgotten != tc.forgotten {
				t.Errorf("%s", text(t, p))
			}
			if !slices.ContainsFunc(p.Base.Entries, func(x state.Entry) bool { return x.Original == e.Original }) && !tc.forgotten {
				t.Error("the original is lost")
			}
		})
	}
}
