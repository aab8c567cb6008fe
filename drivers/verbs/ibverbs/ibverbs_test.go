package ibverbs_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/verbstest"
)

// TestSemantics runs on the device that RDMATUNE_DEVICE names.
func TestSemantics(t *testing.T) {
	device := os.Getenv("RDMATUNE_DEVICE")
	if device == "" {
		t.Skip("needs an RDMA device: RDMATUNE_DEVICE=rxe0; the machine of test/lab has one")
	}
	verbstest.Run(t, ibverbs.Provider{}, device)
}

// TestEvents gives a soft RoCE device's netdev another address and takes it away
// again: the device says that its GIDs changed. It leaves hardware alone.
func TestEvents(t *testing.T) {
	device := os.Getenv("RDMATUNE_DEVICE")
	if !strings.HasPrefix(device, "rxe") {
		t.Skip("needs a soft RoCE device of its own: RDMATUNE_DEVICE=rxe0; the machine of test/lab has one")
	}
	dev, err := ibverbs.Provider{}.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0")
	if err != nil {
		t.Fatal(err)
	}
	netdev := strings.TrimSpace(string(b))
	for _, op := range []string{"add", "del"} {
		if out, err := exec.CommandContext(t.Context(), "ip", "addr", op, "192.0.2.1/32", "dev", netdev).CombinedOutput(); err != nil {
			t.Fatalf("ip addr %s: %v: %s", op, err, out)
		}
		select {
		case e := <-dev.Events():
			if e != (verbs.Event{Kind: verbs.EventGIDChange, Port: 1}) {
				t.Errorf("%s an address: %s", op, e)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s an address: no event", op)
		}
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// TestWithout covers machines without the library or the device.
func TestWithout(t *testing.T) {
	_, err := ibverbs.Provider{}.Open("no_such_device0")
	if err == nil {
		t.Fatal("opened a device that is not there")
	}
	text := err.Error()
	for _, want := range []string{"no verbs library: libibverbs.so.1", "built without verbs", "open no_such_device0", "list verbs devices"} {
		if strings.HasPrefix(text, want) {
			return
		}
	}
	t.Errorf("error %q says neither what is missing nor which device", text)
}
