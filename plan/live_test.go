package plan

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// TestLive: what was seen of processes stands beside the plan and changes nothing of
// it; others on the NIC and processes that disagree are warnings at the hint.
func TestLive(t *testing.T) {
	at := hcl.Range{Filename: "n.hcl", Start: hcl.Pos{Line: 3, Column: 4}}
	cooldown := param.Setting{ID: param.Cooldown, Value: param.Int(600_000)}
	hint := func(size int64) *spec.Resolved {
		return &spec.Resolved{Workloads: []spec.Workload{{Address: "w", Device: "mlx5_0", Wants: []spec.Want{{
			Kind: param.Hint, Range: at,
			Targets: []spec.TargetWant{{Settings: []spec.Setting{
				{Setting: param.Setting{ID: param.HintSize, Value: param.Int(size)}, Range: at},
				{Setting: cooldown, Range: at},
			}}},
		}}}}}
	}
	live := []Live{{
		Workload: "w",
		Processes: []Process{
			{1, "ours", Follows, "", true},
			{2, "python", AtNextStart, "UCX_RNDV_THRESH is auto (default), the hint is 4097 there", false},
			{3, "x", NotObservable, "permission denied", false},
			{4, "kept", SwitchNow, "1 of 1 connections follow another hint than 4 KiB", true},
			{5, "fine", Follows, "", true},
			{6, "told", SwitchNow, "1 of 1 connection on another hint than 4 KiB", true},
			{7, "partly", SwitchNow, "2 of 2 connections on another hint than 4 KiB", true},
			{8, "new", SwitchNow, "its next connections follow none (none)", true},
			{9, "own", Differs, "its next connections follow 2 KiB (program), since override = false", true},
		},
		Disagree: []string{"NCCL_BUFFSIZE: 4 and 8"},
		Others:   []string{"a", "b", "c", "d", "e"},
		Criteria: []Criterion{
			{"use", "the NIC is the workload's own", "no", "others use the NIC as well"}, {"leave", "the NIC is shared", "yes", "others use the NIC as well"},
			{"leave", "the node is virtualised", "no", "the node is real hardware"}, {"question", "how big?", "unanswered", ""},
		},
	}, {Workload: "gone", Others: []string{"z"}}}
	published := param.Observed{Target: param.Target{Kind: param.Hint, Name: "published/w"}, Settings: []param.Setting{{ID: param.HintSize, Value: param.Absent()}, cooldown}}
	process := func(pid string, size int64, conn param.Setting) param.Observed {
		conn.ID, conn.Index = param.HintSize, "16"
		return param.Observed{Target: param.Target{Kind: param.Hint, Name: pid}, Settings: []param.Setting{{ID: param.HintSize, Value: param.Int(size)}, cooldown, conn}}
	}
	cooling := param.Setting{Value: param.Int(8192), Deferred: "cooldown, 29s left"}
	partly := process("7", 4096, cooling)
	partly.Settings = append(partly.Settings, param.Setting{ID: param.HintSize, Index: "17", Value: param.Int(8192)})
	newer := process("8", 8192, param.Setting{})
	newer.Settings = newer.Settings[:2]
	own := process("9", 8192, param.Setting{})
	own.Settings = own.Settings[:2]
	planFor := func(size int64) *Plan {
		return Make(Input{
			Spec: hint(size), State: &state.Document{}, BootID: "b", Live: live,
			Observed: []param.Observation{{Workload: "w", Kind: param.Hint, Found: []param.Observed{
				published,
				process("1", 16384, param.Setting{Value: param.Int(4096)}),
				process("4", 4096, param.Setting{Value: param.Int(8192), Deferred: "cooldown, 7m left"}),
				process("5", 4096, param.Setting{Value: param.Int(4096)}),
				process("6", 8192, cooling), partly, newer, own,
			}}},
		})
	}
	p := planFor(4096)
	if len(p.Changes) != 6 || len(p.Live) != 1 {
		t.Fatalf("changes %+v, live %+v", p.Changes, p.Live)
	}
	var b strings.Builder
	if err := p.WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Processes of w and its hint:\n  1 (ours): switch now: what it is told: size 16 KiB -> 4 KiB\n",
		"  4 (kept): not as wanted: 1 of 1 connections follow another hint than 4 KiB (size 8 KiB -> 4 KiB: cooldown, 7m left)\n", "  5 (fine): as wanted\n",
		"  6 (told): not as wanted: 1 of 1 connection on another hint than 4 KiB (size 8 KiB -> 4 KiB: cooldown, 29s left; what it is told: size 8 KiB -> 4 KiB)\n",
		"  7 (partly): switch now: connection 17: size 8 KiB -> 4 KiB (not now: size 8 KiB -> 4 KiB: cooldown, 29s left)\n",
		"  8 (new): switch now: its next connections follow none (none)\n",
		"  9 (own): not as wanted: its next connections follow 2 KiB (program), since override = false (what it is told: size 8 KiB -> 4 KiB)\n",
		"  2 (python): at next start: UCX_RNDV_THRESH", "  3 (x): not observable: permission denied",
		"Does a hint serve w?\n  for:     the node is real hardware\n  against: others use the NIC as well\n  open:    1 of 4 questions",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	var said []string
	for _, d := range p.Diags {
		if d.Severity != hcl.DiagWarning || *d.Subject != at {
			t.Errorf("diagnostic %+v", d)
		}
		said = append(said, d.Summary+": "+d.Detail)
	}
	text := strings.Join(said, "\n")
	if !strings.Contains(text, "a; b; c; d; and 1 more") || !strings.Contains(text, "NCCL_BUFFSIZE: 4 and 8") || p.Errored() {
		t.Errorf("warnings\n%s", text)
	}
	// A hint of 0 is what a shared NIC asks for.
	for _, d := range planFor(0).Diags {
		if d.Summary == "Hint on a shared NIC" {
			t.Errorf("a hint of 0 earns %q", d.Detail)
		}
	}
}
