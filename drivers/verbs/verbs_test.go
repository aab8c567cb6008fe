package verbs_test

import (
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

func TestFor(t *testing.T) {
	for device, want := range map[string]string{"soft0": "soft", "mlx5_0": "ibverbs", "rxe0": "ibverbs", "rocep193s0f0": "ibverbs"} {
		p, err := verbs.For(device, ibverbs.Provider{}, soft.Provider{})
		if err != nil || p.Name() != want {
			t.Errorf("%s: %v, %v", device, p, err)
		}
	}
	if p, err := verbs.For("mlx5_0", soft.Provider{}); err == nil {
		t.Errorf("without ibverbs: %v", p)
	}
}

func TestGID(t *testing.T) {
	g := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 0, 14: 0, 15: 7}
	if a, ok := g.IPv4(); !ok || a.String() != "10.0.0.7" {
		t.Errorf("%s: %v, %v", g, a, ok)
	}
	if a, ok := (verbs.GID{0: 0xfe, 1: 0x80}).IPv4(); ok {
		t.Errorf("a link-local address is %v", a)
	}
}

func TestMem(t *testing.T) {
	b, err := verbs.AllocMem(10_000)
	if err != nil {
		t.Fatal(err)
	}
	b[9_999] = 1
	if err := verbs.FreeMem(b); err != nil {
		t.Error(err)
	}
	if _, err := verbs.AllocMem(0); err == nil {
		t.Error("no memory was given")
	}
}
