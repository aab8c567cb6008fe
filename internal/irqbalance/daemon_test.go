package irqbalance

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDaemon negotiates with the real daemon over interrupts of the machine that it runs
// on, and moves them: so only where test/lab asks for it, in its virtual machine. The
// daemon was started with one interrupt of the administrator's banned, and scans every
// second.
func TestDaemon(t *testing.T) {
	ours := irqsOf(t, "RDMATUNE_IRQS")
	if len(ours) == 0 {
		t.Skip("moves this machine's interrupts; test/lab runs it in a virtual machine")
	}
	witnesses, admins := irqsOf(t, "RDMATUNE_WITNESSES"), irqsOf(t, "RDMATUNE_BANNED")
	k := NewKeeper("/run", t.TempDir())
	c, err := Find(t.Context(), "/run")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c)
	banned := func(want ...int) {
		t.Helper()
		if got, err := c.Banned(t.Context()); err != nil || !slices.Equal(got, unique(want)) {
			t.Errorf("the daemon's list is %v (%v), want %v", got, err, unique(want))
		}
	}
	banned(admins...)

	// It moves what it may.
	put(t, ours)
	rescan(t, c, ours)

	a := k.Keep(t.Context(), ours)
	if a.Err != nil || a.Held != len(ours) || a.Others != len(admins) || !a.Verified {
		t.Fatalf("Keep: %+v", a)
	}
	t.Log(a)
	banned(slices.Concat(ours, admins)...)
	put(t, ours)
	for range 4 {
		put(t, witnesses)
		rescan(t, c, witnesses) // all is placed anew
		for _, irq := range ours {
			if got := affinity(t, irq); got != apart {
				t.Fatalf("interrupt %d was moved to %s", irq, got)
			}
		}
	}
	if a := k.Keep(t.Context(), ours[1:]); a.Err != nil || a.Held != len(ours)-1 {
		t.Errorf("Keep of fewer: %+v", a)
	}
	banned(slices.Concat(ours[1:], admins)...)

	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	banned(admins...)
	put(t, ours)
	rescan(t, c, ours)
	if again, err := Find(t.Context(), "/run"); err != nil || again.identity() != c.identity() {
		t.Errorf("at the end %v runs (%v), at the start it was %v", again, err, c)
	}
}

// apart is an affinity that the daemon never chooses: one CPU of each NUMA node.
const apart = "0,3"

func irqsOf(t *testing.T, env string) []int {
	t.Helper()
	var irqs []int
	for _, text := range strings.Fields(os.Getenv(env)) {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", env, err)
		}
		irqs = append(irqs, n)
	}
	return unique(irqs)
}

func affinityFile(irq int) string {
	return filepath.Join("/proc/irq", strconv.Itoa(irq), "smp_affinity_list")
}

func affinity(t *testing.T, irq int) string {
	t.Helper()
	b, err := os.ReadFile(affinityFile(irq))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func put(t *testing.T, irqs []int) {
	t.Helper()
	for _, irq := range irqs {
		if err := os.WriteFile(affinityFile(irq), []byte(apart), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// rescan makes the daemon place all interrupts anew until none of irqs is apart. It does
// not listen to the signal in the scan after one.
func rescan(t *testing.T, c *Client, irqs []int) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		var left []int
		for _, irq := range irqs {
			if affinity(t, irq) == apart {
				left = append(left, irq)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the daemon has not moved the interrupts %v within two minutes", left)
		}
		if err := unix.Kill(c.PID(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
