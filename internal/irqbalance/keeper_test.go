package irqbalance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func keeper(d *daemon, run, dir string) *Keeper {
	return &Keeper{place: d.place(run), file: filepath.Join(dir, "rdmatune", "irqbalance.json")}
}

func TestKeeper(t *testing.T) {
	run, dir := t.TempDir(), t.TempDir()
	d := start(t, run, "1.9.2", "-i", "9")
	k := keeper(d, run, dir)
	for _, step := range []struct {
		irqs, list   []int
		held, others int
	}{
		{nil, []int{9}, 0, 0}, // nothing to ask for: it is not even asked
		{[]int{26, 25}, []int{9, 25, 26}, 2, 1},
		{[]int{25, 26}, []int{9, 25, 26}, 2, 1},
		{[]int{25, 9, 30}, []int{9, 25, 30}, 3, 1}, // vectors came with other numbers, one of them banned by others
	} {
		a := k.Keep(t.Context(), step.irqs)
		if a.Err != nil || !a.Agreed() || a.Held != step.held || a.Others != step.others || !a.Verified || !slices.Equal(d.list(), step.list) {
			t.Errorf("Keep %v: %+v, list %v", step.irqs, a, d.list())
		}
	}
	if n := len(d.lists()); n != 2 {
		t.Errorf("%d lists were sent, want one for each change", n)
	}
	// Another keeper, after a kill: what was ours is known.
	k = keeper(d, run, dir)
	d.ban(9, 25, 30, 44)
	if err := k.Release(t.Context()); err != nil || !slices.Equal(d.list(), []int{9, 44}) {
		t.Errorf("after Release: %v, %v", d.list(), err)
	}
	if a := k.Agreed(); a.Held != 0 || a.Others != 2 {
		t.Errorf("after Release: %+v", a)
	}
}

// A daemon that was started anew has its command line's list, and the keeper none.
func TestKeeperAfterRestart(t *testing.T) {
	run, dir := t.TempDir(), t.TempDir()
	d := start(t, run, "1.9.2", "-i", "9")
	k := keeper(d, run, dir)
	if a := k.Keep(t.Context(), []int{25}); a.Err != nil {
		t.Fatal(a.Err)
	}
	if err := d.listener.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(d.proc, strconv.Itoa(os.Getpid()), "stat")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if a := k.Keep(t.Context(), []int{25}); a.Err != nil || a.Daemon != "" || a.String() != "none runs" {
		t.Errorf("with none running: %v", a)
	}
	d = start(t, run, "1.9.2", "-i", "25")
	file = filepath.Join(d.proc, strconv.Itoa(os.Getpid()), "stat")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), " 4242 ", " 5000 ", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	k.place = d.place(run)
	if a := k.Keep(t.Context(), []int{25, 26}); a.Err != nil || a.Held != 2 || a.Others != 1 {
		t.Errorf("after the restart: %+v", a)
	}
	if err := k.Release(t.Context()); err != nil || !slices.Equal(d.list(), []int{25}) {
		t.Errorf("after Release: %v, %v; 25 is the administrator's by now", d.list(), err)
	}
}

func TestKeeperOfOldDaemon(t *testing.T) {
	run := t.TempDir()
	d := start(t, run, "1.6.0", "-i", "9")
	k := keeper(d, run, t.TempDir())
	for range 3 {
		if a := k.Keep(t.Context(), []int{25, 26}); a.Err != nil || a.Verified || a.Held != 2 || !strings.Contains(a.String(), "not verifiable") {
			t.Errorf("%+v: %s", a, a)
		}
	}
	waitFor(t, func() bool { return slices.Equal(d.list(), []int{9, 25, 26}) })
	if n := len(d.lists()); n != 1 {
		t.Errorf("%d lists were sent, want one", n)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	waitFor(t, func() bool { return slices.Equal(d.list(), []int{9}) })
}

func TestKeeperErrors(t *testing.T) {
	run, dir := t.TempDir(), t.TempDir()
	d := start(t, run, "1.9.2")
	k := keeper(d, run, dir)
	irqs := make([]int, 300)
	for i := range irqs {
		irqs[i] = 100 + i
	}
	a := k.Keep(t.Context(), irqs)
	if _, limited := errors.AsType[*LimitError](a.Err); !limited || a.Agreed() || a.Held != len(d.list()) || a.Held < 100 {
		t.Errorf("too many: %+v", a)
	}
	if err := k.Release(t.Context()); err != nil || len(d.list()) > 0 {
		t.Errorf("after Release: %v, %v", d.list(), err)
	}

	// A file that cannot be written is said before anything is asked for.
	k.file = filepath.Join(dir, "rdmatune", "irqbalance.json", "below a file")
	if a := k.Keep(t.Context(), []int{25}); a.Err == nil || len(d.list()) > 0 {
		t.Errorf("without a memory: %+v, list %v", a, d.list())
	}
	// What is in the file is believed of one daemon alone, and only as far as it is numbers.
	k.file = filepath.Join(dir, "other.json")
	for _, text := range []string{"", "{", `{"daemon":"1@1","irqs":[25]}`, `{"daemon":"1@1","irqs":["x"]}`} {
		if err := os.WriteFile(k.file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		d.ban(25)
		if a := k.Keep(t.Context(), []int{25}); a.Err != nil || a.Others != 1 || a.Held != 1 {
			t.Errorf("%q: %+v", text, a)
		}
	}
	// One that anybody may have written is told.
	if err := os.Chmod(k.file, 0o666); err != nil {
		t.Fatal(err)
	}
	if a := k.Keep(t.Context(), []int{25}); a.Err == nil || !strings.Contains(a.Err.Error(), "others may write it") {
		t.Errorf("of anybody: %+v", a)
	}
}

// A process that ends waits for what it asked.
func TestWait(t *testing.T) {
	run := t.TempDir()
	d := start(t, run, "1.9.2")
	hold := make(chan struct{})
	d.mu.Lock()
	d.hold = hold
	d.mu.Unlock()
	k := keeper(d, run, t.TempDir())
	if err := k.Wait(t.Context()); err != nil {
		t.Errorf("with nothing asked: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if a := k.Keep(short, []int{25}); !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("Keep: %+v", a)
	}
	if err := k.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait does not wait: %v", err)
	}
	close(hold)
	if err := k.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
