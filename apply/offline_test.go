package apply

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/state"
)

// pinned only pins, so that what CPUs are offline matters to nothing else.
const pinned = `
workload "w" {
  device = "mlx5_0"
  cpu_pinning { cpus = "1,5" }
}
`

// cpus makes the machine have these CPUs, of which some are online.
func (b *bed) cpus(online, present string) {
	b.t.Helper()
	dir := filepath.Join(b.node.StateDir(), "layer", "sys/devices/system/cpu")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	for name, list := range map[string]string{"online": online, "present": present} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(list+"\n"), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// written is the sets that the state says were written to threads.
func (b *bed) written() []string {
	b.t.Helper()
	doc, err := state.Load(b.node.StateDir())
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range doc.Entries {
		if e.ID == param.PinCPUs {
			out = append(out, e.Original.String()+" "+e.Written.String())
		}
	}
	return out
}

// TestRestoreWhileOffline: the kernel cuts an affinity to the CPUs that are online. What
// it cut off is restored once it is back, and is never taken for somebody else's change.
func TestRestoreWhileOffline(t *testing.T) {
	b := newBed(t, t.TempDir())
	before := b.inForce()
	if res, err := b.apply(t.Context(), pinned, nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	b.cpus("0-6", "0-7")
	for _, cpus := range []string{"0-6", "0-5"} { // once more while another CPU is away
		res, err := b.apply(t.Context(), "", nil)
		if err != nil || res.ExitCode() != ExitDone {
			t.Fatalf("%+v, %v", res, err)
		}
		if cpus == "0-6" && (len(res.Pending) != 1 || !strings.Contains(res.Pending[0].Reason, "CPUs 7 are offline")) {
			t.Errorf("pending: %+v", res.Pending)
		}
		if diff := cmp.Diff([]string{"0-7 0-6", "0-7 0-6"}, b.written()); diff != "" {
			t.Errorf("with %s online: -want +got\n%s", cpus, diff)
		}
		b.cpus(cpus, "0-7")
		p, _ := b.plan("")
		if !p.Empty() || len(p.Pending) != 1 || !strings.Contains(p.Pending[0].Reason, "offline") || p.LeftAlone != 0 {
			t.Errorf("a plan meanwhile: %+v", p)
		}
	}
	b.cpus("0-7", "0-7")
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone || len(res.Pending) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff(before, b.inForce()); diff != "" {
		t.Errorf("not restored: -before +after\n%s", diff)
	}
	b.wantEmptyState("after all CPUs are back")
}

// TestRestoreMoreThanThereIs: an affinity may name CPUs that could be plugged in.
func TestRestoreMoreThanThereIs(t *testing.T) {
	b := newBed(t, t.TempDir())
	if res, err := b.apply(t.Context(), pinned, nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	b.cpus("0-5", "0-5")
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone || len(res.Pending) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := b.inForce(); !strings.Contains(got, "= 0-5") {
		t.Errorf("in force:\n%s", got)
	}
	b.wantEmptyState("with what the machine has")
}

// TestRollbackWhileOffline: a rollback does not lose what it cannot give back now.
func TestRollbackWhileOffline(t *testing.T) {
	b := newBed(t, t.TempDir())
	before := b.inForce()
	b.cpus("0-6", "0-7")
	b.inject((&sysfs.Faults{}).FailWrite("/proc/irq", 1, unix.ENOSPC))
	res, err := b.apply(t.Context(), tuned, nil)
	if err != nil || res.ExitCode() != ExitRolledBack || len(res.Pending) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff([]string{"0-7 0-6", "0-7 0-6"}, b.written()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	b.inject(nil)
	b.cpus("0-7", "0-7")
	if res, err := b.apply(t.Context(), "", nil); err != nil || res.ExitCode() != ExitDone {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff(before, b.inForce()); diff != "" {
		t.Errorf("not restored: -before +after\n%s", diff)
	}
	b.wantEmptyState("in the end")
}
