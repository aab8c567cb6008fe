package soft_test

import (
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
	"github.com/rdmatune/rdmatune/drivers/verbs/verbstest"
)

func TestSemantics(t *testing.T) {
	for _, c := range []struct {
		name string
		mode soft.Provider
	}{
		{"plain", soft.Provider{}},
		{"shuffle", soft.Provider{Shuffle: true}},
		{"moderation", soft.Provider{Moderation: true}},
		{"ignore", soft.Provider{Ignore: true}},
		{"all", soft.Provider{Shuffle: true, Moderation: true, Ignore: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verbstest.Run(t, c.mode, "soft0")
		})
	}
}

// TestEmit checks what a device's users see of its events.
func TestEmit(t *testing.T) {
	dev, err := soft.Provider{}.Open("soft0")
	if err != nil {
		t.Fatal(err)
	}
	// More than anybody takes: the newest stay.
	for port := range 100 {
		if !soft.Emit(dev, verbs.Event{Kind: verbs.EventPortError, Port: uint8(port)}) {
			t.Fatal("not a soft device")
		}
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	soft.Emit(dev, verbs.Event{Kind: verbs.EventDeviceFatal}) // closed: nothing happens
	var last verbs.Event
	n := 0
	for last = range dev.Events() {
		n++
	}
	if n == 0 || n == 100 || last.String() != "port 99: down" {
		t.Errorf("%d events, the last %s", n, last)
	}
}
