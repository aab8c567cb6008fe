package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/measure"
)

func ptr[T any](v T) *T { return &v }

// histogram encodes samples in nanoseconds.
func histogram(samples ...time.Duration) []byte {
	h := measure.New()
	for _, d := range samples {
		h.Record(d)
	}
	b, err := h.Encode()
	if err != nil {
		panic(err) // nothing that a test could do
	}
	return b
}

func sample(id string, at time.Time) Experiment {
	return Experiment{
		ID: id, Time: at, Kind: Bench, Workload: `allreduce["0"], b`, Status: Done, Error: "an error", Duration: 3 * time.Second,
		Node:   Node{Ref: "local", Hostname: "h", Kernel: "6.1", BootID: "b", Virtualised: "kvm", Driver: "rxe", Firmware: "1"},
		Device: "rxe0", Simulated: true, SpecRoot: "/s", SpecDigest: "d", GitCommit: "c-dirty", Version: "0.1.0",
		Settings: []Setting{{Address: `workload.b.hint`, Attr: "size", Before: "(unset)", Value: "16 KiB"}},
		Series: []Series{
			{Name: "none", Profile: map[string]string{"depth": "256"}},
			{Name: "hint 8 KiB", Hint: ptr(int64(8192))},
		},
		Sizes: []Size{
			{Series: "none", Kind: RoundTrip, Tier: "inline", Size: 8, Warmup: 100, N: 3, P50: 1, P99: 2, Max: 3, Lost: 4, Duplicated: 5, Reordered: 6, Corrupted: 7,
				Histogram: histogram(1, 2, 3), SizeDetail: SizeDetail{
					Worst: []measure.Sample{{Index: 2, At: 3, Latency: 3}}, Timeline: []Point{{At: 1, N: 3, P50: 2, Max: 3}}, HighWater: 4, FullEvents: 5,
				}},
			{Series: "hint 8 KiB", Kind: Stream, Size: 4096, N: 1, Bandwidth: 7},
		},
		Switches: []Switch{{Workload: "b", PID: 7, Connection: "1", Generation: 2, Outcome: "switched", At: 4, Pause: 5, Drained: 6, Held: 7}},
		Detail: Detail{
			Explain: map[string]string{"nic.model": "m", "topology": "nic on NUMA node 1"}, Observed: map[string]string{"interrupts": "12"},
			Guards: []Guard{{Workload: "b", Name: "tail", Verdict: GuardPassed, Text: "p99 19 us <= 20 us"}}, Notes: []string{"cold"},
			Tried: []Tried{{Address: "workload.b.hint", Attr: "size", Value: "32 KiB"}},
		},
	}
}

func TestRoundTrip(t *testing.T) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "new")
	if db, err := OpenReadOnly(ctx, dir); db != nil || err != nil {
		t.Fatalf("a database that is not there: %v, %v", db, err)
	}
	db, err := Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	old, want := sample("20260101-000000-aaaa", at), sample("20260102-030405-bbbb", at.Add(time.Second))
	for _, e := range []Experiment{old, want} {
		begun := e
		begun.Sizes, begun.Switches = nil, nil
		if err := db.Begin(ctx, begun); err != nil {
			t.Fatal(err)
		}
		if got, err := db.Show(ctx, e.ID); err != nil || got.Status != Running {
			t.Errorf("begun: %+v, %v", got, err)
		}
		if err := db.Finish(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Begin(ctx, sample("20250101-000000-cccc", at.Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	if err := db.Begin(ctx, sample("20250101-000000-dddd", at.Add(-time.Minute))); err != nil {
		t.Fatal(err)
	}
	if e, err := db.Show(ctx, "20250101-000000-cccc"); err != nil || e.Status != Interrupted {
		t.Errorf("one that was running when the next began: %q, %v", e.Status, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	ro, err := OpenReadOnly(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	got, err := ro.Show(ctx, "20260102")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n-want +got\n%s", err, diff)
	}
	list, err := ro.List(ctx, Filter{})
	if err != nil || len(list) != 4 || list[0].ID != want.ID || len(list[0].Sizes) != 2 || list[0].Sizes[0].Histogram != nil {
		t.Errorf("list: %+v, %v", list, err)
	}
	for _, id := range []string{"", "2024", "%", "20260102-030405-bbbbx"} {
		if e, err := ro.Show(ctx, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("Show(%q) = %v, %v", id, e.ID, err)
		}
	}
	if _, err := ro.Show(ctx, "2026"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("an ambiguous beginning: %v", err)
	}
	if err := ro.Finish(ctx, want); err == nil {
		t.Error("a reader could write")
	}
}

// TestTwoWriters opens a new database several times at once, so that the migration
// and every write meet each other.
func TestTwoWriters(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	const writers, each = 4, 10
	var all sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		all.Go(func() { errs <- writeSome(ctx, dir, w, each) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	db, err := OpenReadOnly(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.List(ctx, Filter{})
	if err != nil || len(list) != writers*each {
		t.Errorf("%d experiments, %v; want %d", len(list), err, writers*each)
	}
}

// TestManyOpenAtOnce: whoever makes the database together with others waits for them.
func TestManyOpenAtOnce(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		var all sync.WaitGroup
		errs := make(chan error, 8)
		begin := make(chan struct{})
		for range cap(errs) {
			all.Go(func() {
				<-begin
				db, err := Open(t.Context(), dir)
				if err == nil {
					err = db.Close()
				}
				errs <- err
			})
		}
		close(begin)
		all.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func writeSome(ctx context.Context, dir string, writer, n int) error {
	db, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	for i := range n {
		if err := db.Finish(ctx, sample(fmt.Sprintf("%d-%d", writer, i), time.Unix(int64(i), 0))); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	return db.Close()
}

func TestLaterSchemaIsRefused(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	db, err := Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.sql.ExecContext(ctx, "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err := Open(ctx, dir); err == nil {
		t.Error("opened for writing", db.Close())
	}
	if db, err := OpenReadOnly(ctx, dir); err == nil {
		t.Error("opened for reading", db.Close())
	}
}

func TestNotADatabase(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("this is not a database, but text that is long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err := Open(t.Context(), dir); err == nil {
		t.Error("opened", db.Close())
	}
	if db, err := OpenReadOnly(t.Context(), dir); err == nil {
		t.Error("opened for reading", db.Close())
	}
}

func TestNewID(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ids := []string{NewID(at.Add(time.Hour)), NewID(at), NewID(at.Add(time.Second))}
	slices.Sort(ids)
	if ids[0][:15] != "20260102-030405" || ids[2][:15] != "20260102-040405" || len(ids[0]) != 20 {
		t.Errorf("ids do not sort by time: %v", ids)
	}
}
