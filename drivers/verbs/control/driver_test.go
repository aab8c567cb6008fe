package control

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/param"
)

func TestBelongs(t *testing.T) {
	match := param.Match{Comm: "trainer*"}
	for _, c := range []struct {
		name    string
		process string // workload that it names
		match   param.Match
		meets   bool
		want    bool
	}{
		{"names it", "w", param.Match{}, false, true},
		{"names it, whatever the match says", "w", match, false, true},
		{"names another", "v", match, true, false},
		{"names none, no match block", "", param.Match{}, true, false},
		{"names none, meets the match", "", match, true, true},
		{"names none, does not meet it", "", match, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			runDir := t.TempDir()
			serve(t, runDir, &fake{p: Process{Workload: c.process}})
			d := NewDriver(runDir, func(pid int, m param.Match) (bool, error) {
				if pid != os.Getpid() || m.Comm != match.Comm {
					t.Errorf("asked of process %d with %+v", pid, m)
				}
				return c.meets, nil
			})
			ts, err := d.Discover(t.Context(), param.Scope{Workload: "w", Match: c.match})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(ts) == 2 && ts[0].Name == strconv.Itoa(os.Getpid()); got != c.want {
				t.Errorf("targets %v", ts)
			}
			if ts[len(ts)-1].Name != "published/w" {
				t.Errorf("targets %v", ts)
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	for outcome, want := range map[string]error{
		Switched: nil, Gone: nil, Deferred: drivers.ErrDeferred, Refused: drivers.ErrRefused, Aborted: drivers.ErrRefused,
	} {
		t.Run(outcome, func(t *testing.T) {
			runDir := t.TempDir()
			serve(t, runDir, &fake{p: Process{Workload: "w", Conns: []Conn{{ID: 1}, {ID: 2}}}, outcome: outcome})
			d := NewDriver(runDir, nil)
			ts, err := d.Discover(t.Context(), param.Scope{Workload: "w"})
			if err != nil {
				t.Fatal(err)
			}
			cs := []param.Change{{ID: param.HintSize, Index: "1", New: param.Int(4096)}}
			o := param.Order{ID: "r", Workload: "w", Generation: 1, Want: []param.Setting{{ID: param.HintSize, Value: param.Int(4096)}}}
			now, err := d.Apply(t.Context(), ts[0], cs, o)
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%v, want %v", err, want)
			}
			if len(now) == 0 {
				t.Error("Apply did not say what is in force")
			}
		})
	}
}

func TestGoneAndLate(t *testing.T) {
	runDir := t.TempDir()
	f := &fake{p: Process{Workload: "w"}}
	serve(t, runDir, f)
	d := NewDriver(runDir, nil)
	self := param.Target{Kind: param.Hint, Name: strconv.Itoa(os.Getpid()), Incarnation: "1"}
	if _, err := d.Read(t.Context(), self); !errors.Is(err, drivers.ErrGone) {
		t.Errorf("another incarnation: %v", err)
	}
	for _, name := range []string{"", "0", "-1", "x", "99999999999999"} {
		if _, err := d.Read(t.Context(), param.Target{Kind: param.Hint, Name: name}); err == nil {
			t.Errorf("target %q was read", name)
		}
	}
	self.Incarnation = strconv.FormatUint(mustStart(t), 10)
	o := param.Order{ID: "r", Workload: "w", Generation: 5, Want: []param.Setting{{ID: param.HintSize, Value: param.Int(1)}}}
	if _, err := d.Apply(t.Context(), self, nil, o); err != nil {
		t.Fatal(err)
	}
	o.Generation = 4
	if _, err := d.Apply(t.Context(), self, nil, o); !errors.Is(err, ErrConflict) {
		t.Errorf("an older generation: %v", err)
	}
}
