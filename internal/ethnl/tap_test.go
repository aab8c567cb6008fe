package ethnl

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tap makes a TAP device in a network namespace that this test has for itself, and
// returns its name. A TAP device takes real coalescing: received frames only.
func tap(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace and a TAP device need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace of our own: %v", err)
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	req, err := unix.NewIfreq("tap0")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, req); err != nil {
		t.Fatal(err)
	}
	return req.Name()
}

func TestTAP(t *testing.T) {
	name := tap(t)
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before, err := c.Get(name)
	if err != nil || before.RXFrames == nil || before.RXUsecs != nil || before.AdaptiveRX != nil {
		t.Fatalf("Get: %+v, %v; want received frames alone", before, err)
	}
	want := *before.RXFrames + 5
	if err := c.Set(name, Coalesce{RXFrames: &want}); err != nil {
		t.Fatalf("Set: %v", err)
	}
	after, err := c.Get(name)
	if err != nil || after.RXFrames == nil || *after.RXFrames != want {
		t.Errorf("Get after Set: %+v, %v; want %d frames", after, err, want)
	}
	err = c.Set(name, Coalesce{RXFrames: before.RXFrames, RXUsecs: new(uint32(7))})
	if err == nil || !strings.Contains(err.Error(), "unsupported parameter") {
		t.Errorf("Set of what it does not offer: %v; want the kernel's words", err)
	}
	if again, err := c.Get(name); err != nil || again.RXFrames == nil || *again.RXFrames != want {
		t.Errorf("a refused request has changed something: %+v, %v", again, err)
	}
	if _, err := c.Get("lo"); !errors.Is(err, ErrNotSupported) {
		t.Errorf("Get of the loopback device: %v; want ErrNotSupported", err)
	}
	if _, err := c.Get("absent0"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("Get of no device: %v; want ENODEV", err)
	}
}
