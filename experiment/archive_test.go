package experiment

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/internal/golden"
)

func newDB(t *testing.T) *DB {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestExportImport carries experiments to another database and back out: nothing
// changes but where they came from.
func TestExportImport(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var list []Experiment
	for i, kind := range Kinds {
		e := sample(fmt.Sprintf("20260102-03040%d-aaaa", i), at.Add(time.Duration(i)*time.Second))
		e.Kind = kind
		list = append(list, e)
	}
	var out bytes.Buffer
	if err := WriteJSON(&out, list); err != nil {
		t.Fatal(err)
	}
	exported := out.String()
	db := newDB(t)
	if err := db.Finish(t.Context(), list[1]); err != nil {
		t.Fatal(err)
	}
	if added, known, err := db.Import(t.Context(), strings.NewReader(exported), "node7.json"); added != 3 || known != 1 || err != nil {
		t.Fatalf("added %d, known %d, %v", added, known, err)
	}
	for i, want := range list {
		if i != 1 {
			want.Origin = "node7.json"
		}
		got, err := db.Show(t.Context(), want.ID)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
	}
	if added, known, err := db.Import(t.Context(), strings.NewReader(exported), "again"); added != 0 || known != 4 || err != nil {
		t.Errorf("a second time: added %d, known %d, %v", added, known, err)
	}
	if n, err := db.Remove(t.Context(), list[0].ID, list[2].ID, list[3].ID, "20200101-000000-aaaa"); n != 3 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if left, err := db.List(t.Context(), Filter{}); len(left) != 1 || err != nil || left[0].ID != list[1].ID {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// TestImportRefuses spoils a good export in one place each: nothing is imported.
func TestImportRefuses(t *testing.T) {
	good := sample("20260102-030405-aaaa", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var out bytes.Buffer
	if err := WriteJSON(&out, []Experiment{good}); err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		if !strings.Contains(out.String(), old) {
			t.Fatalf("the export has no %s", old)
		}
		return strings.Replace(out.String(), old, new, 1)
	}
	for name, text := range map[string]string{
		"nothing":             "",
		"no JSON":             "experiments",
		"more after it":       out.String() + "{}",
		"a later format":      replace(`"format_version": "1.1"`, `"format_version": "2.0"`),
		"an id":               replace(`"id": "20260102-030405-aaaa"`, `"id": "../../etc/passwd"`),
		"a kind":              replace(`"kind": "bench"`, `"kind": "nonsense"`),
		"a status":            replace(`"status": "done"`, `"status": "splendid"`),
		"a time":              replace(`"time": "2026`, `"time": "1026`),
		"a negative number":   replace(`"lost": 4`, `"lost": -4`),
		"an overflow":         replace(`"lost": 4`, `"lost": 99999999999999999999`),
		"a series":            replace(`"series": "none"`, `"series": "other"`),
		"a histogram":         replace(`"histogram": "`, `"histogram": "AAAA`),
		"another n":           replace(`"n": 3`, `"n": 4`),
		"a kind of a size":    replace(`"kind": "round_trip"`, `"kind": "guess"`),
		"a long text":         replace(`"hostname": "h"`, `"hostname": "`+strings.Repeat("h", maxText+1)+`"`),
		"an escape":           replace(`"tier": "inline"`, `"tier": "\u001b[31m"`),
		"a reordering":        replace(`"text": "p99`, `"text": "\u202ep99`),
		"a second line":       replace(`"cold"`, `"cold\nhot"`),
		"a huge workload":     replace(`"workload": "allreduce`, `"workload": "`+strings.Repeat("w", 5000)),
		"a generation":        replace(`"generation": 2`, `"generation": 18446744073709551615`),
		"a negative pause":    replace(`"pause_ns": 5`, `"pause_ns": -5`),
		"a NUL":               replace(`"hostname": "h"`, `"hostname": "\u0000"`),
		"a negative duration": replace(`"duration_ns": 3000000000`, `"duration_ns": -1`),
		"twice":               strings.TrimSuffix(out.String(), "]\n}\n") + "," + strings.SplitN(out.String(), `"experiments": [`, 2)[1],
	} {
		db := newDB(t)
		if added, _, err := db.Import(t.Context(), strings.NewReader(text), "x"); err == nil || added != 0 {
			t.Errorf("%s: added %d, %v", name, added, err)
		}
		if left, err := db.List(t.Context(), Filter{}); len(left) != 0 || err != nil {
			t.Errorf("%s: half an import: %+v, %v", name, left, err)
		}
	}
}

func FuzzImport(f *testing.F) {
	var out bytes.Buffer
	if err := WriteJSON(&out, []Experiment{sample("20260102-030405-aaaa", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte(`{"format_version":"1.0","experiments":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := readExport(bytes.NewReader(b))
		if err != nil {
			return
		}
		// What was taken can be written in every format.
		var w bytes.Buffer
		for _, write := range []func() error{
			func() error { return WriteJSON(&w, list) }, func() error { return WriteCSV(&w, list) },
			func() error { return WriteOpenMetrics(&w, list) },
		} {
			if err := write(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestFormats(t *testing.T) {
	e := sample("20260102-030405-aaaa", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	e.Workload = "a\"b\\c\nd"
	for name, write := range map[string]func(*bytes.Buffer) error{
		"export.csv":         func(b *bytes.Buffer) error { return WriteCSV(b, []Experiment{e}) },
		"export.openmetrics": func(b *bytes.Buffer) error { return WriteOpenMetrics(b, []Experiment{e}) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name, b.String())
		if name == "export.csv" {
			rows, err := csv.NewReader(&b).ReadAll()
			if err != nil || len(rows) != 3 || rows[1][2] != e.Workload {
				t.Errorf("read back: %v, %v", rows, err)
			}
		}
	}
}

func TestFilter(t *testing.T) {
	db := newDB(t)
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, e := range []Experiment{
		{ID: "20260101-000000-0001", Time: day.Add(-24 * time.Hour), Workload: `allreduce["0"], allreduce["1"]`, Device: "mlx5_0", Kind: Apply},
		{ID: "20260102-000000-0002", Time: day, Workload: "storage", Device: "mlx5_1", Kind: Bench, Series: []Series{{Name: "h", Hint: ptr(int64(0))}}},
		{ID: "20260103-000000-0003", Time: day.Add(24 * time.Hour), Workload: "all", Device: "mlx5_0", Kind: Bench, Series: []Series{{Name: "n"}, {Name: "h", Hint: ptr(int64(8192))}}},
	} {
		e.Status = Done
		if err := db.Finish(t.Context(), e); err != nil {
			t.Fatal(i, err)
		}
	}
	for name, tc := range map[string]struct {
		f    Filter
		want string
	}{
		"all":               {Filter{}, "321"},
		"a block's name":    {Filter{Workload: "allreduce"}, "1"},
		"an address":        {Filter{Workload: `allreduce["1"]`}, "1"},
		"not a beginning":   {Filter{Workload: "all"}, "3"},
		"not a pattern":     {Filter{Workload: "%"}, ""},
		"an injection":      {Filter{Workload: "x' OR '1'='1"}, ""},
		"device":            {Filter{Device: "mlx5_0"}, "31"},
		"device and kind":   {Filter{Device: "mlx5_0", Kind: Bench}, "3"},
		"hint 0":            {Filter{Hint: ptr(int64(0))}, "2"},
		"no hint":           {Filter{NoHint: true}, "3"},
		"hint 8 KiB":        {Filter{Hint: ptr(int64(8192))}, "3"},
		"since":             {Filter{Since: day}, "32"},
		"workload and hint": {Filter{Workload: "storage", Hint: ptr(int64(8192))}, ""},
	} {
		list, err := db.List(t.Context(), tc.f)
		got := ""
		for _, e := range list {
			got += e.ID[len(e.ID)-1:]
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

// TestCell keeps texts from being formulas.
func TestCell(t *testing.T) {
	for text, want := range map[string]string{"": "", "a=b": "a=b", "=1+1": "'=1+1", "@x": "'@x", "-1": "'-1", "12": "12", "\tx": "'\tx"} {
		if got := cell(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
