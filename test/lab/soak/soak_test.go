package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/state"
	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// What a run is told by its environment.
const (
	seedVar    = "RDMATUNE_SOAK_SEED"
	eventsVar  = "RDMATUNE_SOAK_EVENTS"  // at most
	timeVar    = "RDMATUNE_SOAK_TIME"    // at most, such as "10m"
	leastVar   = "RDMATUNE_SOAK_LEAST"   // events, or the test fails
	withoutVar = "RDMATUNE_SOAK_WITHOUT" // kinds of events, by commas, to find out which of them something takes
)

// Bounds.
const (
	patience   = 3 * time.Minute // until the model holds; the host may be loaded
	everyQuiet = 60              // events between two quiet points
	longLived  = 50              // events between the samples of an incarnation that counts
	maxRSS     = 40 << 10        // KiB
	idleTime   = 30 * time.Second
)

// A soak is one run.
type soak struct {
	t    *testing.T
	w    *world
	r    *rand.Rand
	done int

	history []string
	out     *os.File // the same, while it happens
	counts  map[string]int
	last    setting // written last
	contest bool    // wait until it is contested
	kills   bool    // the daemon may be ended
	spent   time.Duration
	highest sample
	leaks   int // incarnations that were compared with themselves
	heals   map[string]time.Duration
	seen    []time.Duration // from a write to the value being back, as the test sees it
	clock   time.Duration   // by which it was set forward
	began   time.Time
}

// TestSoak makes random events happen and holds the daemon against the model after each.
func TestSoak(t *testing.T) {
	if line, err := os.ReadFile("/proc/cmdline"); err != nil || !slices.Contains(strings.Fields(string(line)), proto.Mark) {
		t.Skip("it sets a whole machine against the daemon, and runs only on the lab's: RDMATUNE_LAB=1 go test -run Soak ./test/lab")
	}
	seed := fromEnv(t, seedVar, uint64(time.Now().UnixNano()), func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	most := fromEnv(t, eventsVar, 1<<30, strconv.Atoi)
	limit := fromEnv(t, timeVar, 2*time.Minute, time.ParseDuration)
	least := fromEnv(t, leastVar, 100, strconv.Atoi)
	t.Logf("%s=%d", seedVar, seed)
	s := &soak{t: t, r: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, kills: true, heals: map[string]time.Duration{}, began: time.Now()}
	ctx := t.Context()
	s.setUp(ctx)
	others := s.w.k.others()
	s.must(ctx, "start")
	s.wait(ctx)
	began := time.Now()
	// A machine that is slow takes longer, up to a point, and not fewer events.
	enough := func() bool {
		took := time.Since(began)
		return s.done >= most || took >= limit && s.done >= least && s.leaks > 0 || took >= 5*limit
	}
	for next := everyQuiet; !enough(); {
		// The last third is one incarnation's.
		s.kills = time.Since(began) < limit*2/3 && s.done < most*2/3
		if s.done >= next {
			s.quiet(ctx)
			next = s.done + everyQuiet
		}
		s.batch(ctx)
	}
	took := time.Since(began)
	s.quiet(ctx)
	s.report(ctx, took)
	s.end(ctx, others)
	if s.done < least && s.done < most {
		t.Errorf("%d events in %v, want at least %d", s.done, took, least)
	}
	if s.leaks == 0 {
		t.Errorf("no daemon lived through %d events between two quiet points", longLived)
	}
}

func fromEnv[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// batch makes one event happen, or several at a time, and waits until the model holds.
func (s *soak) batch(ctx context.Context) {
	n := 1
	if s.r.IntN(4) == 0 {
		n += 1 + s.r.IntN(3)
	}
	single := n == 1 && s.bright()
	s.last = ""
	for range n {
		if s.event(ctx, n > 1) {
			break
		}
	}
	wrote := time.Now()
	s.wait(ctx)
	s.note("held after %v", time.Since(wrote).Round(time.Millisecond))
	if single && s.last != "" && s.w.beliefs[s.last] != nil && s.w.beliefs[s.last].owned && s.w.recent(s.last) == 1 {
		s.seen = append(s.seen, time.Since(wrote))
	}
	if s.bright() && s.r.IntN(10) == 0 {
		s.planIsEmpty(ctx)
	}
}

// event makes a random one happen and reports whether it wants to be the last of its batch.
func (s *soak) event(ctx context.Context, together bool) bool {
	total := 0
	var can []kind
	without := strings.Split(os.Getenv(withoutVar), ",")
	for _, k := range kinds {
		if k.can(s) && !(together && k.alone) && !slices.Contains(without, k.name) {
			can = append(can, k)
			total += k.weight
		}
	}
	x := s.r.IntN(total)
	for _, k := range can {
		if x -= k.weight; x < 0 {
			s.happen(ctx, k)
			return k.alone
		}
	}
	return false
}

func (s *soak) happen(ctx context.Context, k kind) {
	s.done++
	s.counts[k.name]++
	s.note("event %d: %s", s.done, k.name)
	said, err := k.do(ctx, s)
	s.note("  %s", said)
	if err != nil {
		s.fail(ctx, err)
	}
}

// must makes an event of a kind happen that is possible.
func (s *soak) must(ctx context.Context, name string) {
	for _, k := range kinds {
		if k.name == name {
			s.happen(ctx, k)
			return
		}
	}
	s.t.Fatalf("no kind %q", name)
}

// wait waits until the model holds, and takes what is then for what is known.
func (s *soak) wait(ctx context.Context) {
	deadline := time.Now().Add(patience)
	for pause := 5 * time.Millisecond; ; pause = min(pause*3/2, 200*time.Millisecond) {
		err := s.w.holds(ctx)
		if err == nil && s.contest {
			err = s.contested()
		}
		if err == nil {
			break
		}
		if !errors.As(err, new(errNotYet)) {
			s.fail(ctx, err)
		}
		if time.Now().After(deadline) {
			s.fail(ctx, fmt.Errorf("not within %v: %w", patience, err))
		}
		time.Sleep(pause)
	}
	s.contest = false
	if s.w.d != nil && !s.w.stopped {
		s.w.d.seen = true
	}
	before := s.w.bases()
	if err := s.w.settle(); err != nil {
		s.fail(ctx, err)
	}
	for x, base := range s.w.bases() {
		if was, known := before[x]; known && was != base {
			s.note("  %s may be %s from now on, not %s", x, base, was)
		}
	}
	s.sample(ctx)
}

// contested reports whether the adversary's setting was given up.
func (s *soak) contested() error {
	if len(s.w.told.Contested) == 0 {
		return notYet("nothing is contested")
	}
	return nil
}

// sample looks at what the daemon costs, and at the heals that it tells of.
func (s *soak) sample(ctx context.Context) {
	if s.w.d == nil || s.w.told == nil {
		return
	}
	now, err := s.w.d.look(s.done)
	if err != nil {
		s.fail(ctx, err)
	}
	if now.rss > s.highest.rss {
		s.highest = now
	}
	if now.rss > maxRSS {
		s.t.Errorf("event %d: the daemon has %d KiB", s.done, now.rss)
	}
	for _, d := range s.w.told.Recent {
		if d.Known && d.Healed > 0 {
			s.heals[fmt.Sprint(s.w.told.PID, d.Address, d.Setting, d.When.UnixNano())] = d.Healed
		}
	}
}

// planIsEmpty asks the command line what is to be done, which is nothing.
func (s *soak) planIsEmpty(ctx context.Context) {
	code, out, err := s.cli(ctx, "plan", "--detailed-exitcode", s.w.specPath)
	if err != nil || code != 0 {
		s.fail(ctx, fmt.Errorf("all is well, and rdmatune plan has exit code %d, %v: %s", code, err, out))
	}
}

// managed counts the settings of the state.
func (s *soak) managed() int {
	doc, err := state.Load(s.w.stateDir)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(doc.Entries)
}

// setClock sets the machine's clock forward, or back.
func (s *soak) setClock(by time.Duration) error {
	s.clock += by
	tv := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	return unix.Settimeofday(&tv)
}

// quiet ends all that lasts, goes back to one spec with the same processes, and compares
// what the daemon costs with what it cost there before.
func (s *soak) quiet(ctx context.Context) {
	for name, lasts := range map[string]func() bool{
		"cont": func() bool { return s.w.stopped }, "free": func() bool { return s.w.full }, "read-write": func() bool { return s.w.readonly },
		"bind": func() bool { return s.w.unbound }, "cpu on": func() bool { return s.w.offline }, "link up": func() bool { return len(s.w.down) > 0 },
	} {
		for lasts() {
			s.must(ctx, name)
		}
	}
	if s.w.d != nil && !s.w.d.seen {
		s.wait(ctx)
	}
	if s.w.adversary != nil {
		s.must(ctx, "adversary ends")
	}
	v := canonical()
	v.note = s.done
	if _, err := s.edit(v, true); err != nil {
		s.fail(ctx, err)
	}
	if s.w.d == nil {
		s.must(ctx, "start")
	}
	for pid := range maps.Clone(s.w.processes) {
		if err := s.w.kill(pid); err != nil {
			s.fail(ctx, err)
		}
	}
	for _, comm := range []string{"trainer", "server"} {
		if _, err := s.w.spawn(comm); err != nil {
			s.fail(ctx, err)
		}
	}
	s.note("quiet point after event %d", s.done)
	s.wait(ctx)
	s.planIsEmpty(ctx)
	s.compare(ctx)
}

// end stops the daemon with a spec that restores, and looks for what is not as it was.
func (s *soak) end(ctx context.Context, others map[string]string) {
	v := canonical()
	v.restore = true
	if _, err := s.edit(v, true); err != nil {
		s.fail(ctx, err)
	}
	s.wait(ctx)
	s.must(ctx, "term")
	if err := s.w.holds(ctx); err != nil {
		s.fail(ctx, err)
	}
	for _, x := range s.w.settings() {
		if got := s.w.k.read(x); !s.w.allowed(x, got) {
			s.t.Errorf("after the end: %s is %q, want one of %v", x, got, slices.Sorted(maps.Keys(s.w.beliefs[x].base)))
		}
	}
	if now := s.w.k.others(); !maps.Equal(now, others) {
		s.t.Errorf("interrupts that nobody manages: %v, were %v", now, others)
	}
	if err := s.setClock(-s.clock); err != nil {
		s.t.Error(err)
	}
}
