package gpu

import (
	"testing"

	"github.com/rdmatune/rdmatune/internal/pci"
)

// TestDevices asks this machine's driver: it has GPUs with addresses, or a reason.
func TestDevices(t *testing.T) {
	all, err := Devices()
	if err == nil && len(all) == 0 {
		t.Log("a driver without GPUs")
	}
	if err != nil && err.Error() == "" {
		t.Error("an error without a reason")
	}
	if len(all) > maxDevices {
		t.Errorf("%d GPUs", len(all))
	}
	for _, d := range all {
		if !pci.Valid(d.PCI) || d.Name == "" {
			t.Errorf("GPU %+v", d)
		}
	}
}
