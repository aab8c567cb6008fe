package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/node"
)

// TestPruneTo: many steps leave the newest, and nothing of other kinds goes.
func TestPruneTo(t *testing.T) {
	dir := t.TempDir()
	db, err := experiment.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const n, keep = 3*pruneStep + 5, 7
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range n {
		for _, kind := range []experiment.Kind{experiment.Reconcile, experiment.Apply} {
			e := experiment.Experiment{ID: fmt.Sprintf("%s-%03d", kind, i), Time: at.Add(time.Duration(i) * time.Second), Kind: kind, Status: experiment.Done}
			if err := db.Finish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if removed, err := pruneTo(t.Context(), dir, keep); removed != n-keep || err != nil {
		t.Errorf("removed %d, %v; want %d", removed, err, n-keep)
	}
	for kind, want := range map[experiment.Kind]int{experiment.Reconcile: keep, experiment.Apply: n} {
		left, err := db.List(t.Context(), experiment.Filter{Kind: kind})
		if err != nil || len(left) != want || left[0].ID != fmt.Sprintf("%s-%03d", kind, n-1) {
			t.Errorf("%s: %d are left, %v; want the newest %d", kind, len(left), err, want)
		}
	}
}

// TestArchive: the loop asks for it with its first record and now and then, and never
// waits for it.
func TestArchive(t *testing.T) {
	a := newArchive()
	asked := 0
	for i := range 10 * pruneStep {
		a.added(i)
		select {
		case keep := <-a.keep:
			if asked++; keep != i {
				t.Errorf("asks to keep %d, want %d", keep, i)
			}
		default:
			if i == 0 {
				t.Error("nothing is asked for with the first record")
			}
		}
	}
	if asked != 10 {
		t.Errorf("asked %d times in %d records", asked, 10*pruneStep)
	}
	for range 10 * pruneStep { // nobody listens
		a.added(1)
	}
}

// TestPruneFails: a database that cannot be written is told once in a row of failures, and
// the goroutine ends with the daemon.
func TestPruneFails(t *testing.T) {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := os.MkdirAll(filepath.Join(n.StateDir(), "experiments.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log lockedLog
	l := newLoop(t, Config{Node: n, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	go l.prune(ctx)
	for range 3 {
		l.archive.keep <- 1 // the one before was taken
	}
	l.archive.keep <- 1
	cancel()
	<-l.archive.left
	if said := log.String(); strings.Count(said, "old records stay") != 1 {
		t.Errorf("log: %s", said)
	}
}

// A lockedLog is a log of several goroutines.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestDamagedExperiments: a database that is none does not keep the node from being kept.
func TestDamagedExperiments(t *testing.T) {
	h := newHeldTest(t)
	l := h.loop()
	file := filepath.Join(h.node.StateDir(), "experiments.db")
	h.write(file, strings.Repeat("no database", 1000))
	db, err := l.experiments(t.Context())
	h.must(err)
	h.must(db.Close())
	aside, err := filepath.Glob(file + ".damaged-*")
	if err != nil || len(aside) != 1 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	if log := h.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "set aside") {
		t.Errorf("log: %s", log)
	}
	db, err = l.experiments(t.Context())
	h.must(err)
	h.must(db.Close())
	if log := h.log.String(); strings.Count(log, "level=ERROR") != 1 {
		t.Errorf("log of a good one: %s", log)
	}
}

// TestNotInForceIsToldOnce: until all is well.
func TestNotInForceIsToldOnce(t *testing.T) {
	h := newHeldTest(t)
	l := h.loop()
	for _, failures := range [][]string{{"a"}, {"a", "b"}, {"b"}, {}, {"b"}} {
		l.logNotInForce(failures)
	}
	if n := strings.Count(h.log.String(), "level=ERROR"); n != 2 {
		t.Errorf("told %d times, want 2:\n%s", n, h.log.String())
	}
}
