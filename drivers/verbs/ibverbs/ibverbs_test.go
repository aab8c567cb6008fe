package ibverbs_test

import (
	"os"
	"strings"
	"testing"

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
