package experiment

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMigrate opens a database as the first version wrote it, for reading and for
// writing: nothing of it is lost.
func TestMigrate(t *testing.T) {
	ctx := t.Context()
	for name, openIt := range map[string]func(dir string) (*DB, error){
		"writer": func(dir string) (*DB, error) { return Open(ctx, dir) },
		"reader": func(dir string) (*DB, error) { return OpenReadOnly(ctx, dir) },
	} {
		dir := t.TempDir()
		old, err := open(ctx, dir, "rwc")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{
			migrations[0], "PRAGMA user_version = 1",
			`INSERT INTO experiments VALUES ('20260101-000000-aaaa', 1767225600000000000, 'bench', 'b', 'done', '', 5, '{"ref":"local"}', 'rxe0', 1, '', '', '', '0.1.0')`,
			`INSERT INTO sizes VALUES ('20260101-000000-aaaa', 8, 100, 1, 2, 2, 2, 0, 0, 0, 0, x'01')`,
			`INSERT INTO switches VALUES ('20260101-000000-aaaa', 'b', 7, '1', 2, 'switched', 5, 6, 7)`,
		} {
			if _, err := old.sql.ExecContext(ctx, q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := openIt(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := db.Show(ctx, "20260101")
		want := Experiment{
			ID: "20260101-000000-aaaa", Time: time.Unix(1767225600, 0).UTC(), Kind: Bench, Workload: "b", Status: Done, Duration: 5,
			Node: Node{Ref: "local"}, Device: "rxe0", Simulated: true, Version: "0.1.0",
			Sizes:    []Size{{Kind: RoundTrip, Size: 8, Warmup: 100, N: 1, P50: 2, P99: 2, Max: 2, Histogram: []byte{1}}},
			Switches: []Switch{{Workload: "b", PID: 7, Connection: "1", Generation: 2, Outcome: "switched", Pause: 5, Drained: 6, Held: 7}},
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKilledWriter kills a process in the middle of its writes, again and again: what
// it said it had written is there, whole.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("EXPERIMENT_WRITER"); dir != "" {
		db, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			id := strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(i)
			if err := db.Finish(t.Context(), sample(id, time.Unix(int64(i), 0))); err != nil {
				t.Fatal(err)
			}
			os.Stdout.WriteString(id + "\n")
		}
	}
	dir := t.TempDir()
	written := map[string]bool{}
	for round := range 6 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), "EXPERIMENT_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 0, 64)
		one := make([]byte, 1)
		for seen := 0; seen <= round; { // killed after a different number of writes each time
			if _, err := out.Read(one); err != nil {
				t.Fatalf("the writer ended: %v", err)
			}
			if one[0] != '\n' {
				line = append(line, one[0])
				continue
			}
			written[string(line)] = true
			line = line[:0]
			seen++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
	}
	db, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		delete(written, e.ID)
		got, err := db.Show(t.Context(), e.ID)
		if diff := cmp.Diff(sample(e.ID, e.Time), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", e.ID, err, diff)
		}
	}
	if len(written) > 0 {
		t.Errorf("lost although written: %v", written)
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		t.Error(err)
	}
}
