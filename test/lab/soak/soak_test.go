package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	for next := everyQuiet; s.done < most && time.Since(began) < limit; {
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

// setUp makes the test's files and learns the machine.
func (s *soak) setUp(ctx context.Context) {
	dir := s.t.TempDir()
	w := &world{dir: dir, specPath: filepath.Join(dir, "spec", "node.hcl"), stateDir: filepath.Join(dir, "state"), logPath: filepath.Join(dir, "daemon.log"),
		down: map[string]bool{}, processes: map[int]*process{}, beliefs: map[setting]*belief{}, hits: map[string][]time.Time{},
		defaults: map[bool]map[setting]string{false: {}, true: {}}, spec: canonical()}
	s.w = w
	check := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(os.Getenv(outVar), "history"))
	check(err)
	s.out = out
	check(os.Mkdir(filepath.Dir(w.specPath), 0o700))
	check(os.Mkdir(w.stateDir, 0o700))
	check(unix.Mount("soak", w.stateDir, "tmpfs", 0, "size=96m"))
	s.t.Cleanup(func() {
		s.keep()
		if w.d != nil {
			_ = w.d.signal(syscall.SIGKILL) // after a failure
			<-w.d.ended
		}
		if w.adversary != nil {
			_ = w.adversary.Process.Kill() // after a failure
		}
		for pid := range maps.Clone(w.processes) {
			if err := w.kill(pid); err != nil {
				s.t.Error(err)
			}
		}
		if err := unix.Unmount(w.stateDir, unix.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
	sleep, err := exec.LookPath("sleep")
	check(err)
	program, err := os.ReadFile(sleep)
	check(err)
	for _, comm := range []string{"trainer", "server", "other"} {
		check(os.WriteFile(filepath.Join(dir, comm), program, 0o700))
	}
	check(s.writeSpec(w.spec.text(), true))
	w.k, err = newKernel()
	check(err)
	// What a driver that is bound anew leaves depends on which CPUs there are.
	for _, offline := range []bool{true, false} {
		w.beliefs = map[setting]*belief{}
		for _, x := range machineSettings() {
			w.beliefs[x] = &belief{base: map[string]bool{}, pending: map[string]bool{}}
		}
		steps := []func(context.Context, *soak) (string, error){unbind, bind}
		if offline {
			steps = slices.Insert(steps, 0, cpuOff)
			steps = append(steps, cpuOn)
		}
		for i, step := range steps {
			_, err := step(ctx, s)
			check(err)
			if i == len(steps)-1 || !offline {
				continue
			}
			for x := range w.beliefs {
				w.defaults[offline][x] = w.k.read(x)
			}
		}
	}
	for x, b := range w.beliefs {
		value := w.k.read(x)
		w.defaults[false][x], b.base = value, map[string]bool{value: true}
		s.t.Logf("%s: %q, without CPU 3 %q", x, value, w.defaults[true][x])
	}
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
	if err := s.w.settle(); err != nil {
		s.fail(ctx, err)
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

// compare takes a sample of an incarnation and compares it with its first.
func (s *soak) compare(ctx context.Context) {
	d := s.w.d
	var before sample
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		now, err := d.look(s.done)
		if err != nil {
			s.fail(ctx, err)
		}
		n, err := metric(ctx, "go_goroutines")
		if err != nil {
			s.fail(ctx, err)
		}
		now.goroutines = int(n)
		late := time.Now().After(deadline)
		if err := s.keptFiles(now.kept); err != nil {
			if late {
				s.fail(ctx, err)
			}
			continue // a pass may be under way
		}
		calm := now.fds == before.fds && now.goroutines == before.goroutines
		before = now
		if !calm && !late {
			continue
		}
		if len(d.samples) == 0 {
			d.samples = append(d.samples, now)
			return
		}
		// Less than before is no leak: what the first sample saw too much of, it saw twice.
		was := &d.samples[0]
		if now.fds <= was.fds && now.goroutines <= was.goroutines {
			was.fds, was.goroutines = now.fds, now.goroutines
			d.samples = append(d.samples, now)
			if now.event-was.event >= longLived {
				s.leaks++
			}
			s.t.Logf("pid %d, event %d to %d: RSS %d to %d KiB, descriptors %d (and %d of settings), threads %d to %d, goroutines %d", d.pid(), was.event, now.event,
				was.rss, now.rss, now.fds, len(now.kept), was.threads, now.threads, now.goroutines)
			return
		}
		if late {
			s.fail(ctx, fmt.Errorf("it leaks: event %d: %d descriptors, %d goroutines; event %d: %d, %d; then %v, now %v", was.event, was.fds, was.goroutines,
				now.event, now.fds, now.goroutines, was.files, now.files))
		}
	}
}

// keptFiles holds the settings' files that the daemon keeps open against the state: each
// once, and none that is not managed.
func (s *soak) keptFiles(kept []string) error {
	doc, err := state.Load(s.w.stateDir)
	if err != nil {
		return err
	}
	managed := map[string]bool{}
	for _, e := range doc.Entries {
		x, _, err := s.w.entry(e)
		if err != nil {
			return err
		}
		managed[s.w.k.file(x)] = true
	}
	slices.Sort(kept)
	for i, f := range kept {
		if i > 0 && f == kept[i-1] {
			return fmt.Errorf("the daemon has %s open twice", f)
		}
		if !managed[f] {
			return fmt.Errorf("the daemon has %s open, which it does not manage", f)
		}
	}
	return nil
}

// fail says all that is known.
func (s *soak) fail(ctx context.Context, err error) {
	s.t.Helper()
	code, out, cliErr := s.cli(ctx, "status")
	log, logErr := os.ReadFile(s.w.logPath)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	tree, _ := exec.CommandContext(ctx, "ls", "-la", s.w.stateDir).Output()
	s.t.Fatalf("%s=%s event %d: %v\n\nthe last events:\n%s\n\nstatus (exit code %d, %v):\n%s\n\nthe daemon's log (%v):\n%s\n\nstate:\n%s", seedVar, os.Getenv(seedVar), s.done, err,
		strings.Join(s.history[max(0, len(s.history)-60):], "\n"), code, cliErr, out, logErr, strings.Join(lines[max(0, len(lines)-50):], "\n"), tree)
}

// outVar is where the machine's results are kept.
const outVar = "OUT"

// note adds a line to what happened, which is written at once: a machine that hangs says
// nothing more.
func (s *soak) note(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs ", time.Since(s.began).Seconds()) + fmt.Sprintf(format, args...)
	s.history = append(s.history, line)
	if _, err := fmt.Fprintln(s.out, line); err != nil {
		s.t.Error(err)
	}
}

// keep puts the daemon's log where the machine's results are.
func (s *soak) keep() {
	log, err := os.ReadFile(s.w.logPath)
	if err := errors.Join(err, os.WriteFile(filepath.Join(os.Getenv(outVar), "daemon.log"), log, 0o600), s.out.Close()); err != nil {
		s.t.Error(err)
	}
}

// report prints what was measured.
func (s *soak) report(ctx context.Context, took time.Duration) {
	t := s.t
	t.Logf("%d events in %v", s.done, took.Round(time.Second))
	for _, k := range kinds {
		t.Logf("  %-15s %d", k.name, s.counts[k.name])
	}
	told := slices.Sorted(maps.Values(s.heals))
	quantiles := func(what string, list []time.Duration) {
		if n := len(list); n > 0 {
			t.Logf("%s: %d; P50 %v, P99 %v, longest %v", what, n, list[n/2].Round(time.Millisecond), list[n*99/100].Round(time.Millisecond), list[n-1].Round(time.Millisecond))
		}
	}
	quantiles("heals after writers that the kernel named, stops of the daemon and full disks included", told)
	slices.Sort(s.seen)
	quantiles("from one write alone to the value being back, as another process sees it", s.seen)
	before, err := s.w.d.look(s.done)
	if err != nil {
		s.fail(ctx, err)
	}
	t.Logf("highest RSS %d KiB at event %d, %d KiB of it anonymous; CPU time for each event %v", s.highest.rss, s.highest.event, s.highest.anon, ((s.spent + before.cpu) / time.Duration(max(s.done, 1))).Round(time.Microsecond))
	time.Sleep(idleTime)
	after, err := s.w.d.look(s.done)
	if err != nil {
		s.fail(ctx, err)
	}
	t.Logf("idle for %v: %v of CPU time", idleTime, after.cpu-before.cpu)
	if st, err := os.Stat(filepath.Join(s.w.stateDir, "experiments.db")); err == nil {
		t.Logf("the experiment database has %d KiB", st.Size()>>10)
	}
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
