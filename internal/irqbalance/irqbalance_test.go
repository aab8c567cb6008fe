package irqbalance

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseSetup(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Setup
		bad  bool
	}{
		"nothing banned": {text: "SLEEP 10 BANNED 00000000", want: Setup{Interval: 10 * time.Second, BannedCPUs: "00000000"}},
		"some": {
			text: "SLEEP 1 IRQ 27 LOAD 12345678901234567890 DIFF 4 CLASS 5 IRQ 9 LOAD 0 DIFF 0 CLASS 0 IRQ 27 LOAD 0 DIFF 0 CLASS 0 BANNED ff,00000001",
			want: Setup{Interval: time.Second, Banned: []int{9, 27}, BannedCPUs: "ff,00000001"},
		},
		"interrupt 0":       {text: "SLEEP 1 IRQ 0 LOAD 0 DIFF 0 CLASS 0 BANNED 0", want: Setup{Interval: time.Second, Banned: []int{0}, BannedCPUs: "0"}},
		"empty":             {bad: true},
		"cut":               {text: "SLEEP 10 IRQ 27 LOAD 0 DIFF", bad: true},
		"cut before CPUs":   {text: "SLEEP 10 IRQ 27 LOAD 0 DIFF 0 CLASS 0 ", bad: true},
		"no number":         {text: "SLEEP 10 IRQ x LOAD 0 DIFF 0 CLASS 0 BANNED 0", bad: true},
		"negative":          {text: "SLEEP 10 IRQ -1 LOAD 0 DIFF 0 CLASS 0 BANNED 0", bad: true},
		"interval":          {text: "SLEEP -1 BANNED 0", bad: true},
		"more after it":     {text: "SLEEP 10 BANNED 0 IRQ 3", bad: true},
		"not a mask":        {text: "SLEEP 10 BANNED zz", bad: true},
		"another's program": {text: "HTTP/1.1 400 Bad Request", bad: true},
	} {
		got, err := parseSetup(c.text)
		if (err != nil) != c.bad {
			t.Errorf("%s: error %v", name, err)
		}
		if err == nil && (got.Interval != c.want.Interval || !slices.Equal(got.Banned, c.want.Banned) || got.BannedCPUs != c.want.BannedCPUs) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func FuzzParseSetup(f *testing.F) {
	f.Add("SLEEP 10 IRQ 27 LOAD 1 DIFF 4 CLASS 5 BANNED ff,00000001")
	f.Add("SLEEP 10 BANNED 0")
	f.Add("SLEEP 10 IRQ 99999999999 LOAD 1 DIFF 4 CLASS 5 BANNED 0")
	f.Add("IRQ IRQ IRQ")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSetup(text)
		if err != nil {
			return
		}
		if !slices.IsSorted(s.Banned) || len(s.Banned) > maxIRQs || len(s.Banned) > 0 && s.Banned[0] < 0 || s.Interval < 0 || s.BannedCPUs == "" {
			t.Errorf("%q gave %+v", text, s)
		}
	})
}

func TestBannedByArgs(t *testing.T) {
	args := []string{"irqbalance", "-i", "5", "--banirq=7", "--banirq", "3", "-i12", "--banmod=ib", "-i", "x", "-i", "99999999999", "--interval=2", "-i"}
	if got := bannedByArgs(args); !slices.Equal(got, []int{3, 5, 7, 12}) {
		t.Errorf("got %v", got)
	}
	if got := bannedByArgs([]string{"irqbalance", "--", "-i", "5"}); len(got) > 0 {
		t.Errorf("after --: %v", got)
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]string{
		"1.9.2\n": "1.9.2", "1.9\n": "1.9.0", "1.9.5-git": "1.9.5", "": "", "x": "", "1": "", "1.2.3.4\n": "", "%s\n": "", "1..2": "", "99999999.1": "",
	} {
		if v, _ := parseVersion(text); v.String() != want {
			t.Errorf("%q: %s, want %s", text, v, want)
		}
	}
	if (Version{1, 6, 9}).AtLeast(readsBack) || !(Version{1, 7, 0}).AtLeast(readsBack) || !(Version{2, 0, 0}).AtLeast(longCommand) || (Version{}).AtLeast(readsBack) {
		t.Error("versions compare wrong")
	}
	if v := programVersion(filepath.Join(t.TempDir(), "none")); v != (Version{}) {
		t.Errorf("of no program: %s", v)
	}
}

func TestAbstractNames(t *testing.T) {
	table := `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 28112 @irqbalance512.sock
0000000000000000: 00000002 00000000 00010000 0001 01 28113 /run/irqbalance/irqbalance7.sock
0000000000000000: 00000002 00000000 00010000 0001 01 28114
0000000000000000: 00000002 00000000 00010000 0001 01 28115 @irqbalance.sock
0000000000000000: 00000002 00000000 00010000 0001 01 28116 ` + strings.Repeat("@", 108) + "\n"
	if got := abstractNames(strings.NewReader(table)); !slices.Equal(got, []string{"@irqbalance512.sock", fallback}) {
		t.Errorf("got %q", got)
	}
}

func TestBanAndRestore(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "1.9.2", "--banirq=9")
	c := d.find(t, dir)
	if got := c.String(); got != "irqbalance 1.9.2 (pid "+strconv.Itoa(os.Getpid())+")" || !c.Verifiable() {
		t.Errorf("client %s", got)
	}
	added, err := c.Ban(t.Context(), []int{27, 9, 25, 27})
	if err != nil || !slices.Equal(added, []int{25, 27}) {
		t.Fatalf("added %v, %v", added, err)
	}
	if got := d.lists(); !slices.Equal(got, []string{"9 25 27\x00"}) {
		t.Errorf("sent %q", got)
	}
	if _, err := c.Ban(t.Context(), []int{25}); err != nil || len(d.lists()) != 1 {
		t.Errorf("a list that is right was sent again: %q, %v", d.lists(), err)
	}
	d.ban(9, 25, 27, 40)
	if err := c.Restore(t.Context(), added); err != nil || !slices.Equal(d.list(), []int{9, 40}) {
		t.Errorf("left %v, %v", d.list(), err)
	}
	d.ban(25)
	if err := c.Restore(t.Context(), added); err != nil || len(d.list()) > 0 || d.lists()[2] != "NONE\x00" {
		t.Errorf("left %v after %q, %v", d.list(), d.lists(), err)
	}
}

func TestInterruptZero(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "1.9.2", "-i", "4")
	if _, err := d.find(t, dir).Ban(t.Context(), []int{7, 0}); err != nil || !slices.Equal(d.list(), []int{0, 4, 7}) {
		t.Errorf("list %v, %v", d.list(), err)
	}
}

// A daemon from 1.3.0 to 1.6.0 must never be asked for its settings.
func TestOldDaemon(t *testing.T) {
	for _, version := range []string{"1.6.0", "of nothing"} {
		dir := t.TempDir()
		d := start(t, dir, version, "-i", "9")
		c := d.find(t, dir)
		if _, err := c.Setup(t.Context()); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: Setup: %v", version, err)
		}
		added, err := c.Ban(t.Context(), []int{25, 9})
		if err != nil || !slices.Equal(added, []int{25}) {
			t.Errorf("%s: added %v, %v", version, added, err)
		}
		if err := c.Restore(t.Context(), added); err != nil {
			t.Error(err)
		}
		waitFor(t, func() bool { return slices.Equal(d.lists(), []string{"9 25\x00", "9\x00"}) })
		d.mu.Lock()
		for _, command := range d.commands {
			if strings.HasPrefix(command, "setup") || strings.HasPrefix(command, "stats") {
				t.Errorf("%s was sent %q", version, command)
			}
		}
		d.mu.Unlock()
	}
}

// waitFor waits for what a goroutine of the fake does.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-t.Context().Done():
			t.Fatal("never")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestLimit(t *testing.T) {
	irqs := make([]int, 500)
	for i := range irqs {
		irqs[i] = 1000 + i
	}
	for version, most := range map[string]int{"1.9.4": 499, "1.9.5": 16383} {
		dir := t.TempDir()
		d := start(t, dir, version, "-i", "3")
		added, err := d.find(t, dir).Ban(t.Context(), irqs)
		sent := d.lists()[0]
		if len(banCommand)+len(sent) > most {
			t.Errorf("%s: %d bytes sent", version, len(banCommand)+len(sent))
		}
		if !slices.Equal(d.list(), append([]int{3}, added...)) {
			t.Errorf("%s: list %v, added %v", version, d.list(), added)
		}
		limit, limited := errors.AsType[*LimitError](err)
		switch {
		case version == "1.9.5" && (err != nil || len(added) != 500):
			t.Errorf("%s: added %d, %v", version, len(added), err)
		case version == "1.9.4" && (!limited || limit.Fit != len(added) || limit.Wanted != 500 || len(added) < 90):
			t.Errorf("%s: added %d, %v", version, len(added), err)
		}
	}
}

func TestDeafDaemon(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "1.9.2")
	d.mu.Lock()
	d.deaf = true
	d.mu.Unlock()
	if _, err := d.find(t, dir).Ban(t.Context(), []int{5, 6}); err == nil || !strings.Contains(err.Error(), "lacks 2") {
		t.Errorf("error %v", err)
	}
}

func TestNonsense(t *testing.T) {
	for name, answer := range map[string]string{"no setup": "nothing of the kind", "endless": strings.Repeat("SLEEP 1 ", maxAnswer/8+1)} {
		dir := t.TempDir()
		d := start(t, dir, "1.9.2")
		d.mu.Lock()
		d.answer = answer
		d.mu.Unlock()
		if _, err := d.find(t, dir).Ban(t.Context(), []int{5}); err == nil || len(d.lists()) > 0 {
			t.Errorf("%s: error %v, sent %q", name, err, d.lists())
		}
	}
}

// A daemon that sleeps must find somebody at the other end when it answers: the signal
// of a broken pipe would end it.
func TestLateAnswer(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "1.9.2")
	hold := make(chan struct{})
	d.mu.Lock()
	d.hold = hold
	d.mu.Unlock()
	c := d.find(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Setup(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the deadline", err)
	}
	close(hold)
	if _, err := c.Setup(t.Context()); err != nil { // answered after the late one
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		t.Error("the late answer found nobody")
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	nobody := place{dirs: []string{dir, filepath.Join(dir, "irqbalance")}, abstract: filepath.Join(dir, "none"), proc: dir, pending: new(pending)}
	if _, err := nobody.find(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("nothing there: %v", err)
	}
	// One that was killed leaves its socket, and a file may have its name.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "irqbalance4.sock")})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := errors.Join(stale.Close(), os.WriteFile(filepath.Join(dir, "irqbalance5.sock"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.find(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("a stale socket: %v", err)
	}
	d := start(t, dir, "1.9.2")
	if c := d.find(t, dir); c.PID() != os.Getpid() || c.Version() != (Version{1, 9, 2}) {
		t.Errorf("found %s", c)
	}
}

func TestStrangersSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "irqbalance")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "irqbalance17.sock"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan int, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- -1
			return
		}
		n, _ := conn.Read(make([]byte, 10)) // what matters is that nothing comes
		_ = conn.Close()
		got <- n
	}()
	p := place{dirs: []string{dir}, trusted: func(uint32) bool { return false }}
	if _, err := p.find(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("error %v, want ErrNone", err)
	}
	if n := <-got; n != 0 {
		t.Errorf("a stranger's socket got %d bytes", n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A daemon that never answers costs a few connections, however often it is asked.
func TestMuteDaemon(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "1.9.2")
	hold := make(chan struct{})
	d.mu.Lock()
	d.hold = hold
	d.mu.Unlock()
	c := d.find(t, dir)
	for range 10 * maxOwed {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := c.Setup(ctx); err == nil {
			t.Error("an answer from nobody")
		}
		cancel()
	}
	if n := c.pending.count(); n > maxOwed {
		t.Errorf("%d answers are waited for", n)
	}
	close(hold)
	if err := c.pending.wait(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Setup(t.Context()); err != nil {
		t.Errorf("after it woke up: %v", err)
	}
}
