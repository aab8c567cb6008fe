package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestPrune: of the kind that is asked for the newest remain, whoever's clock wrote them in
// whatever order; of other kinds, of other nodes, and what runs, all remains.
func TestPrune(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fill := func(t *testing.T) *DB {
		db := newDB(t)
		for i := range 12 {
			for _, kind := range []Kind{Reconcile, Apply, Bench, Destroy} {
				e := sample(fmt.Sprintf("20260102-0304%02d-%.4s", (i*7)%12, kind), at.Add(time.Duration((i*7)%12)*time.Second))
				e.Kind = kind
				if err := db.Finish(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
		}
		imported := sample("20200102-030400-aaaa", at.AddDate(-6, 0, 0))
		imported.Kind, imported.Origin = Reconcile, "node7.json"
		running := sample("20200102-030400-bbbb", at.AddDate(-6, 0, 0))
		running.Kind, running.Status = Reconcile, Running
		for _, e := range []Experiment{imported, running} {
			if err := db.Finish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		return db
	}
	for _, test := range []struct {
		keep, most int
		removed    int
	}{{12, 100, 0}, {1000, 100, 0}, {10, 100, 2}, {10, 1, 1}, {1, 100, 11}, {0, 100, 12}, {0, 5, 5}, {-1, 100, 12}, {5, 0, 0}, {5, -1, 0}} {
		t.Run(fmt.Sprintf("keep %d, at most %d", test.keep, test.most), func(t *testing.T) {
			db := fill(t)
			if n, err := db.Prune(t.Context(), Reconcile, test.keep, test.most); n != test.removed || err != nil {
				t.Fatalf("removed %d, %v; want %d", n, err, test.removed)
			}
			left, err := db.List(t.Context(), Filter{})
			if err != nil {
				t.Fatal(err)
			}
			var own []string
			for _, e := range left {
				if e.Kind == Reconcile && e.Origin == "" && e.Status != Running {
					own = append(own, e.ID)
				}
			}
			var want []string
			for i := 11; i >= test.removed; i-- {
				want = append(want, fmt.Sprintf("20260102-0304%02d-reco", i))
			}
			if !slices.Equal(own, want) {
				t.Errorf("left %q, want %q", own, want)
			}
			if others := len(left) - len(own); others != 3*12+2 {
				t.Errorf("%d others are left, want all", others)
			}
			for _, table := range []string{"settings", "series", "results", "switches"} {
				var orphans int
				if err := db.sql.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table+" WHERE experiment NOT IN (SELECT id FROM experiments)").Scan(&orphans); err != nil || orphans != 0 {
					t.Errorf("%s: %d rows of experiments that are gone, %v", table, orphans, err)
				}
			}
		})
	}
}

// TestPruneBoundsTheFile: a database that is pruned as it is filled stays as large as what
// it keeps.
func TestPruneBoundsTheFile(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const keep = 20
	fill := func(from, to int) int64 {
		t.Helper()
		db, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < to; i++ {
			e := sample(fmt.Sprintf("20260102-030405-%04x", i), at.Add(time.Duration(i)*time.Second))
			e.Kind = Reconcile
			if err := db.Finish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Prune(t.Context(), Reconcile, keep, 10); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	full := fill(0, 2*keep)
	if later := fill(2*keep, 10*keep); later > full+full/10 {
		t.Errorf("%d bytes grew to %d", full, later)
	}
}
