package transport

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

func TestParseHint(t *testing.T) {
	for _, c := range []struct {
		in     string
		want   int64 // -1: an error
		notice bool
	}{
		{"0", 0, false}, {"8B", 8, false}, {"16384", 16384, false}, {"16KiB", 16384, false}, {"64MiB", 64 << 20, false},
		{"1GiB", 1 << 30, false}, {"16K", 16384, true}, {"16KB", 16384, true}, {"1M", 1 << 20, true}, {"1G", 1 << 30, true},
		{"", -1, false}, {"-1", -1, false}, {"+1", -1, false}, {"1.5K", -1, false}, {"16 KiB", 16384, false}, {"16kib", -1, false},
		{"inf", -1, false}, {"16KiBx", -1, false}, {"4GiB", -1, false}, {"18446744073709551616", -1, false}, {"0x10", -1, false},
	} {
		n, notice, err := ParseHint(c.in)
		if c.want < 0 {
			if err == nil {
				t.Errorf("%q: %d, want an error", c.in, n)
			}
			continue
		}
		if err != nil || n != c.want || (notice != "") != c.notice {
			t.Errorf("%q: %d, notice %q, %v; want %d", c.in, n, notice, err, c.want)
		}
	}
}

func TestEffectiveHint(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	no := false
	for _, c := range []struct {
		name   string
		s      hintSource
		order  *control.Order
		level  control.Level
		size   int64 // -1: none
		losers int
		notes  int
	}{
		{"nothing", hintSource{}, nil, control.LevelNone, -1, 0, 0},
		{"published", hintSource{published: &control.Settings{Size: n(7)}}, nil, control.LevelPublished, 7, 0, 0},
		{"environment above published", hintSource{env: "8", envSet: true, published: &control.Settings{Size: n(7)}}, nil, control.LevelEnv, 8, 1, 0},
		{"0 is a value", hintSource{env: "0", envSet: true, published: &control.Settings{Size: n(7)}}, nil, control.LevelEnv, 0, 1, 0},
		{"empty is unset", hintSource{envSet: true, published: &control.Settings{Size: n(7)}}, nil, control.LevelPublished, 7, 0, 1},
		{"rejected falls through", hintSource{env: "lots", envSet: true, published: &control.Settings{Size: n(7)}}, nil, control.LevelPublished, 7, 1, 1},
		{"program above environment", hintSource{program: n(9), env: "8K", envSet: true}, nil, control.LevelProgram, 9, 1, 1},
		{"order above all", hintSource{program: n(9), env: "8", envSet: true}, &control.Order{ID: "r", Settings: &control.Settings{Size: n(6)}},
			control.LevelOrdered, 6, 2, 0},
		{"order that does not override", hintSource{env: "8", envSet: true},
			&control.Order{ID: "r", Settings: &control.Settings{Size: n(6), Override: &no}}, control.LevelEnv, 8, 1, 0},
		{"it stands above published", hintSource{published: &control.Settings{Size: n(7)}},
			&control.Order{ID: "r", Settings: &control.Settings{Size: n(6), Override: &no}}, control.LevelOrdered, 6, 1, 0},
		{"order without a size", hintSource{env: "8", envSet: true}, &control.Order{ID: "r", Settings: &control.Settings{}}, control.LevelEnv, 8, 0, 0},
		{"published file unreadable", hintSource{pubErr: errors.New("no")}, nil, control.LevelNone, -1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.s.effective(c.order)
			size := int64(-1)
			if h.Size != nil {
				size = *h.Size
			}
			if h.Level != c.level || size != c.size || len(h.Losers) != c.losers || len(h.Notices) != c.notes {
				t.Errorf("got %+v with size %d", h, size)
			}
		})
	}
}

// TestOpenFails: what goes wrong after the device is open is an error like any other,
// and leaves nothing open.
func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	for range 3 {
		if tr, err := open(t.Context(), Options{Device: "soft0", RunDir: file}, soft.Provider{}); err == nil || tr != nil {
			t.Fatalf("Open with a file as its run directory: %v, %v", tr, err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// TestReleaseWithoutConnections: an order that is taken back leaves a process without
// connections with what is published then, not with what was when it began.
func TestReleaseWithoutConnections(t *testing.T) {
	dir := t.TempDir()
	if err := control.Publish(dir, "w", control.Settings{Size: bytesPtr(7)}); err != nil {
		t.Fatal(err)
	}
	tr := openSoft(t, Options{Workload: "w", RunDir: dir}, soft.Provider{})
	if s := tr.Describe().Settings; s == nil || *s.Size != 7 {
		t.Fatalf("settings %+v", s)
	}
	order := control.Order{ID: "a", Generation: 1, Workload: "w", Settings: &control.Settings{Size: bytesPtr(9)}, Open: true}
	if _, err := tr.Order(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	if err := control.Unpublish(dir, "w"); err != nil {
		t.Fatal(err)
	}
	res, err := tr.Order(t.Context(), control.Order{ID: "b", Generation: 2, Workload: "w", Open: true})
	if err != nil || res.Process.Settings != nil || res.Process.Hint.Level != control.LevelNone {
		t.Errorf("after the release: %+v, hint %+v, %v", res.Process.Settings, res.Process.Hint, err)
	}
}

// TestOrderDrain: an order's own drain time holds where the settings have none or less,
// and goes with the order.
func TestOrderDrain(t *testing.T) {
	tr := openSoft(t, Options{Workload: "w", RunDir: t.TempDir()}, soft.Provider{})
	for i, test := range []struct {
		order    int64
		settings *control.Settings
		want     time.Duration
	}{
		{0, nil, defaultDrainTimeout},
		{60_000, nil, time.Minute},
		{60_000, &control.Settings{DrainTimeoutMS: bytesPtr(5)}, time.Minute},
		{60_000, &control.Settings{DrainTimeoutMS: bytesPtr(90_000)}, 90 * time.Second},
		{0, &control.Settings{DrainTimeoutMS: bytesPtr(5)}, 5 * time.Millisecond},
		{0, nil, defaultDrainTimeout},
	} {
		o := control.Order{ID: "t", Generation: uint64(i + 1), Workload: "w", Settings: test.settings, DrainTimeoutMS: test.order}
		if _, err := tr.Order(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got := tr.follow().drainTimeout; got != test.want {
			t.Errorf("order %d: drain timeout %v, want %v", i, got, test.want)
		}
	}
}

// TestRunDirByDefault: a program that says nothing of a run directory is seen, and reads
// what is published there; one that wants to be private is not, and one whose default
// cannot be used goes on without it.
func TestRunDirByDefault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	t.Setenv("RDMATUNE_RUN_DIR", dir)
	t.Setenv(EnvHint, "")
	t.Setenv(EnvWorkload, "w")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := control.Publish(dir, "w", control.Settings{Size: bytesPtr(7)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		o     Options
		seen  int
		level control.Level
	}{
		{"nothing said", Options{Device: "soft0"}, 1, control.LevelPublished},
		{"private", Options{Device: "soft0", Private: true}, 0, control.LevelNone},
		{"private with a directory", Options{Device: "soft0", Private: true, RunDir: dir}, 0, control.LevelNone},
		{"a simulated device", Options{Device: "mlx5_0", Soft: true}, 0, control.LevelNone},
		{"a simulated device with a directory", Options{Device: "mlx5_0", Soft: true, RunDir: dir}, 1, control.LevelPublished},
	} {
		tr, err := Open(t.Context(), c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		ps, err := control.List(t.Context(), dir)
		if err != nil || len(ps) != c.seen || tr.Hint().Level != c.level {
			t.Errorf("%s: seen %d times, %v, hint %+v", c.name, len(ps), err, tr.Hint())
		}
		if err := tr.Close(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RDMATUNE_RUN_DIR", file)
	var log bytes.Buffer
	tr, err := Open(t.Context(), Options{Device: "soft0", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil || !strings.Contains(log.String(), "does not see this process") {
		t.Fatalf("a default that is a file: %v, log %s", err, log.String())
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestProgramHintOutOfBounds: what a program itself says wrongly is its error.
func TestProgramHintOutOfBounds(t *testing.T) {
	for _, hint := range []int64{-1, MaxHint + 1} {
		if tr, err := Open(t.Context(), Options{Device: "soft0", Private: true, Hint: &hint}); err == nil || !strings.Contains(err.Error(), "a hint of") {
			t.Errorf("%d: %v, %v", hint, tr, err)
		}
	}
}
