package control

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/param"
)

// fake is a service that remembers its order.
type fake struct {
	p       Process
	outcome string
}

func (f *fake) Describe() Process { return f.p }

func (f *fake) Order(_ context.Context, o Order) (Result, error) {
	if f.p.Order != nil && o.Generation < f.p.Order.Generation {
		return Result{}, fmt.Errorf("late: %w", ErrConflict)
	}
	f.p.Order = &o
	var res Result
	if o.Open {
		for i := range f.p.Conns {
			c := &f.p.Conns[i]
			if f.outcome == Switched && o.Settings != nil {
				c.Hint = o.Settings.Size
			}
			res.Outcomes = append(res.Outcomes, Outcome{c.ID, Switch{Outcome: f.outcome, Reason: "because"}})
		}
	}
	res.Process = f.p
	res.Process.Version = Version
	return res, nil
}

func serve(t *testing.T, runDir string, f *fake) {
	t.Helper()
	s, err := Serve(t.Context(), runDir, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestListAndOrder(t *testing.T) {
	runDir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40), "run")
	f := &fake{p: Process{Workload: `allreduce["0"]`, Device: "soft0", Conns: []Conn{{ID: 7}}}, outcome: Switched}
	serve(t, runDir, f)
	ps, err := List(t.Context(), runDir)
	if err != nil || len(ps) != 1 {
		t.Fatalf("%v, %v", ps, err)
	}
	p := ps[0]
	if p.PID != os.Getpid() || p.Comm == "" || len(p.Threads) == 0 || p.UID != uint32(os.Geteuid()) || p.Err != "" {
		t.Errorf("process %+v", p)
	}
	d := NewDriver(runDir, nil)
	ts, err := d.Discover(t.Context(), param.Scope{Workload: `allreduce["0"]`})
	if err != nil || len(ts) != 2 {
		t.Fatalf("%v, %v", ts, err)
	}
	proc := ts[0]
	want := []param.Setting{{ID: param.HintSize, Value: param.Int(16384)}, {ID: param.Cooldown, Value: param.Int(600000)}}
	o := param.Order{ID: "run1", Workload: `allreduce["0"]`, Generation: 3, Want: want}
	if err := d.Prepare(t.Context(), ts, o); err != nil {
		t.Fatal(err)
	}
	if f.p.Order == nil || f.p.Order.Open || *f.p.Order.Settings.Size != 16384 {
		t.Fatalf("after prepare: %+v", f.p.Order)
	}
	cs := []param.Change{{ID: param.HintSize, Index: "7", New: param.Int(16384)}}
	got, err := d.Apply(t.Context(), proc, cs, o)
	if err != nil {
		t.Fatal(err)
	}
	if s := got[len(got)-2]; s.ID != param.HintSize || s.Index != "7" || s.Value != param.Int(16384) {
		t.Errorf("in force: %+v", got)
	}
	if s := got[len(got)-1]; s.ID != param.HintLanes || s.Index != "7" || s.Value != param.Text(LanesSingle) {
		t.Errorf("in force: %+v", got)
	}
}

func TestPublish(t *testing.T) {
	runDir := t.TempDir()
	d := NewDriver(runDir, nil)
	target := param.Target{Kind: param.Hint, Name: `published/allreduce["0"]`}
	cs := []param.Change{
		{ID: param.HintSize, New: param.Int(0)},
		{ID: param.HintLanes, New: param.Text("dual")},
		{ID: param.HintCompletion, New: param.Text("busy")},
		{ID: param.HintOrdered, New: param.Bool(false)},
		{ID: param.HintOverride, New: param.Bool(false)},
	}
	got, err := d.Apply(t.Context(), target, cs, param.Order{})
	if err != nil {
		t.Fatal(err)
	}
	want := []param.Setting{
		{ID: param.HintSize, Value: param.Int(0)},
		{ID: param.HintLanes, Value: param.Text("dual")},
		{ID: param.HintCompletion, Value: param.Text("busy")},
		{ID: param.HintOrdered, Value: param.Bool(false)},
		{ID: param.HintEagerMax, Value: param.Absent()},
		{ID: param.HintOverride, Value: param.Bool(false)},
		{ID: param.DrainTimeout, Value: param.Absent()},
		{ID: param.Cooldown, Value: param.Absent()},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b param.Value) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	for i := range cs {
		cs[i].New = param.Absent()
	}
	if _, err := d.Apply(t.Context(), target, cs, param.Order{}); err != nil {
		t.Fatal(err)
	}
	if _, path, err := ReadPublished(runDir, `allreduce["0"]`); err != nil {
		t.Fatal(err)
	} else if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
}
