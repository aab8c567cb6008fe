package doctor

import (
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/audit/live"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/node"
)

// user is a process with connected queue pairs on mlx5_0.
func user(pid int, comm, workload string) live.Process {
	return live.Process{PID: pid, Comm: comm, Workload: workload, UID: new(1000 + pid), Devices: []live.Use{{Device: "mlx5_0", QueuePairs: []live.QueuePair{{Type: "RC", State: "RTS"}}}}}
}

// TestSharing: the finding about a NIC and the verdict on it say one thing, and nothing
// of the workload is somebody else, however it is known.
func TestSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		users  []live.Process
		level  Level
		own    Answer
		others []string
	}{
		"its own":        {[]live.Process{user(5, "train", ""), user(6, "helper", "w")}, Fine, Yes, nil},
		"one other":      {[]live.Process{user(5, "train", ""), user(7, "ib_send_lat", "")}, Warning, No, []string{"user 1007"}},
		"others alone":   {[]live.Process{user(7, "ib_send_lat", "")}, Warning, No, []string{"user 1007"}},
		"of another one": {[]live.Process{user(5, "train", ""), user(8, "train", "v")}, Warning, No, []string{"user 1008"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := node.Open("sim:small", t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			r := examine(t, n, func(in *Input) {
				in.Brief = true
				in.View = &live.View{Processes: tc.users}
				in.Workloads = []Workload{{Address: "w", Device: "mlx5_0", PIDs: []int{5}}}
			})
			for _, f := range r.Findings {
				if f.Check != "sharing" || f.Subject != "mlx5_0" {
					continue
				}
				var others []string
				for _, e := range f.Evidence {
					others = append(others, e.Path)
				}
				if f.Level != tc.level || strings.Join(others, " ") != strings.Join(tc.others, " ") {
					t.Errorf("finding %+v", f)
				}
			}
			shared := map[Answer]Answer{Yes: No, No: Yes}[tc.own]
			for _, v := range r.Workloads[0].Verdicts {
				if v.Question == ownNIC.question && v.Answer != tc.own || v.Question == sharedNIC.question && v.Answer != shared {
					t.Errorf("verdict %+v", v)
				}
			}
		})
	}
}

// TestApplicable: only what has a communication library mapped follows a hint at its
// next start.
func TestApplicable(t *testing.T) {
	for name, tc := range map[string]struct {
		w      Workload
		answer Answer
		says   string
	}{
		"nobody":          {Workload{}, Unanswered, "no process of the workload is running"},
		"a shell":         {Workload{PIDs: []int{1}}, Unanswered, "no process of the workload uses a communication library"},
		"not observable":  {Workload{PIDs: []int{1}, Unseen: []int{1}}, Unanswered, "1 process of which the libraries are not observable"},
		"another library": {Workload{PIDs: []int{1, 2}, Libraries: []int{2}}, No, "1 process on another library, whose variables count at the next start (rdmatune env)"},
		"a transport":     {Workload{PIDs: []int{1, 2}, Transports: []control.Process{{PID: 2}}}, Yes, "1 process on rdmatune's transport, for apply to switch"},
		"one follows":     {Workload{PIDs: []int{1, 2}, Transports: []control.Process{{PID: 1}, {PID: 2}}, Following: []int{1}}, Yes, "1 process on rdmatune's transport, for apply to switch; 1 process on rdmatune's transport, as the spec wants it already"},
		"all follow":      {Workload{PIDs: []int{1}, Transports: []control.Process{{PID: 1}}, Following: []int{1}}, Yes, "1 process on rdmatune's transport, as the spec wants it already"},
	} {
		n, err := node.Open("sim:small", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		r := examine(t, n, func(in *Input) { in.Brief, in.Workloads = true, []Workload{tc.w} })
		for _, v := range r.Workloads[0].Verdicts {
			if v.Question == canApply.question && (v.Answer != tc.answer || strings.Join(v.Evidence, "; ") != tc.says) {
				t.Errorf("%s: %+v", name, v)
			}
			if v.Statement == canApply.yes && strings.HasPrefix(tc.says, "1 process on rdmatune's transport, as") {
				t.Errorf("%s: it says %q", name, v.Statement)
			}
			if (v.Answer == Unanswered) != (v.Statement == "") && v.Question != howBig.question {
				t.Errorf("%s: statement of %+v", name, v)
			}
		}
	}
}

func TestClip(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\tc":                "a b c",
		"\u009b31m\u202e\x1b[2J": "?31m??[2J",
		strings.Repeat("x", 300): strings.Repeat("x", maxValue) + "...",
	} {
		if got := clip(text); got != want {
			t.Errorf("clip(%q) = %q", text, got)
		}
	}
}
