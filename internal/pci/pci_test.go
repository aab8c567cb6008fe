package pci

import "testing"

func TestFind(t *testing.T) {
	for text, want := range map[string]string{
		"mlx5_comp0@pci:0000:45:00.0":  "0000:45:00.0",
		"irdma-0000:4b:00.0-CEQ-17":    "0000:4b:00.0",
		"10000:00:04.0":                "10000:00:04.0",
		"8b76:00:02.0":                 "8b76:00:02.0",
		"mlx5_pf@pci:0000:03:":         "",
		"0000:45:00.8":                 "",
		"ahci[0000:00:1f.2]":           "0000:00:1f.2",
		"0000:45:00.01":                "", // part of a longer number
		"":                             "",
		"xx0000:45:00.0z 0000:46:01.1": "0000:45:00.0",
	} {
		if got := Find(text); got != want {
			t.Errorf("Find(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestOfPath(t *testing.T) {
	for path, want := range map[string]string{
		"/sys/devices/pci0000:80/0000:80:02.2/0000:82:00.0/infiniband/mlx4_0": "0000:82:00.0",
		"/sys/devices/pci0000:4a/0000:4b:00.0/ice.roce.0/infiniband/irdma0":   "0000:4b:00.0",
		"/sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0":               "0000:00:03.0",
		"/sys/devices/virtual/infiniband/rxe0":                                "",
		"/sys/devices/scif_dma_0/infiniband/scif0":                            "",
	} {
		if got := OfPath(path); got != want {
			t.Errorf("OfPath(%s) = %q, want %q", path, got, want)
		}
	}
	if Valid("0000:82:00.0/..") || Valid("") || !Valid("10000:00:04.0") {
		t.Error("Valid takes what is no address, or not what is one")
	}
}
