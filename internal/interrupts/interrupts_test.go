package interrupts

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatune/rdmatune/internal/sysfs"
)

func TestParseTable(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []Row
	}{
		"mlx5 of today": {
			"            CPU0       CPU1\n" +
				" 592:          0          7  IR-PCI-MSIX-0000:64:00.0    0-edge      mlx5_async0@pci:0000:64:00.0\n" +
				" 593:          0          7  IR-PCI-MSIX-0000:64:00.0    1-edge      mlx5_comp0@pci:0000:64:00.0\n",
			[]Row{
				{592, "mlx5_async0@pci:0000:64:00.0", "0000:64:00.0"},
				{593, "mlx5_comp0@pci:0000:64:00.0", "0000:64:00.0"},
			},
		},
		"no handler": {
			"     CPU0\n 30:   0  PCI-MSI 67633152-edge      \n 31:   0  IR-PCI-MSI 67633153-edge\n 32:  0  xen-dyn  -event\n 33: 0 dummy\n 34:  0  ITS-MSI 16384 Edge \n",
			[]Row{{30, "", ""}, {31, "", ""}, {32, "", ""}, {33, "", ""}, {34, "", ""}},
		},
		"chips that look like counters, and blanks in names": {
			"     CPU0       CPU1       CPU2       CPU3\n" +
				"  43: 1 0 0 0   ITS-MSI 16384 Edge   PCIe PME, aerdrv, pciehp\n" +
				" 312: 1 0 0 0   xen-dyn-lateeoi  -event  vif13.0-q1-tx\n" +
				"  44: 1 0 0 0   0000-msi 3 Edge      hfi1_0 sdma0\n" +
				"  45: 1 0 0 0   1234 5-edge      digits\n",
			[]Row{
				{43, "PCIe PME, aerdrv, pciehp", ""},
				{312, "vif13.0-q1-tx", ""},
				{44, "hfi1_0 sdma0", ""},
				{45, "digits", ""},
			},
		},
		"rows that are no vectors": {
			"     CPU0       CPU1\nFIQ:              usb_fiq\nErr:          0\nIPI0:1145401553  12  Rescheduling interrupts\nI/O:  1 2  x\n\nNMI:   1   2   Non-maskable interrupts\n" +
				"  7:   1   2  OPAL MSI 5 Level     name\nMIS: 0\n",
			[]Row{{7, "name", ""}},
		},
		"s390": {
			"           CPU0       CPU1\n  3:          5          6  PCI-MSI  mlx5_async@pci:0002:00:00.0\n",
			[]Row{{3, "mlx5_async@pci:0002:00:00.0", "0002:00:00.0"}},
		},
		"irdma, a shared line, a name cut short, a wide domain": {
			"     CPU0\n" +
				" 10:  0  IR-PCI-MSIX-0000:4b:00.0  16-edge      irdma-0000:4b:00.0-CEQ-17\n" +
				" 11:  0  IO-APIC  11-fasteoi   uhci_hcd:usb1, ens3\n" +
				" 12:  0  PCI-MSI 1-edge      mlx5_page_fault_eq@pci:0000:03:\n" +
				" 13:  0  VMD-MSI 4-edge      nvme0q1, 10000:00:04.0\n" +
				" 14:  0  Hyper-V PCIe MSI 7-edge      mlx5_comp3@pci:8b76:00:02.0\n",
			[]Row{
				{10, "irdma-0000:4b:00.0-CEQ-17", "0000:4b:00.0"},
				{11, "uhci_hcd:usb1, ens3", ""},
				{12, "mlx5_page_fault_eq@pci:0000:03:", ""},
				{13, "nvme0q1, 10000:00:04.0", "10000:00:04.0"},
				{14, "mlx5_comp3@pci:8b76:00:02.0", "8b76:00:02.0"},
			},
		},
		"no header":  {"  5:  1  2  chip 5-edge      name\n", []Row{{5, "name", ""}}},
		"nothing":    {"", nil},
		"huge label": {"     CPU0\n99999999999: 0  c 1-edge      n\n-3: 0  c 1-edge      n\n", nil},
	} {
		if diff := cmp.Diff(tc.want, ParseTable([]byte(tc.text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("     CPU0       CPU1\n  7:   1   2  OPAL MSI 5 Level     name\nErr: 0\n")
	f.Add("\n:\n7:\n 7:CPU\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range ParseTable([]byte(text)) {
			if r.Number < 0 || strings.HasSuffix(r.Action, " ") || !strings.Contains(text, r.Action) {
				t.Errorf("row %+v of %q", r, text)
			}
		}
	})
}

func TestKeys(t *testing.T) {
	for _, v := range []Vector{{PCI: "0000:18:00.0", Index: 3}, {PCI: "10000:00:04.0", Index: 0}} {
		f, i, err := ParseKey(v.Key())
		if err != nil || f != v.PCI || i != v.Index {
			t.Errorf("ParseKey(%s) = %s, %d, %v", v.Key(), f, i, err)
		}
	}
	for _, bad := range []string{"", "0000:18:00.0", "0000:18:00.0/", "0000:18:00.0/-1", "0000:18:00.0/03", "x/3", "../..//3", "0000:18:00.0/3/4"} {
		if _, _, err := ParseKey(bad); err == nil {
			t.Errorf("ParseKey(%q) took it", bad)
		}
	}
}

func TestVectors(t *testing.T) {
	const function = "0000:10:00.0"
	rows := ParseTable([]byte("     CPU0\n 100:  0  c 1-edge      b@pci:0000:10:00.0\n 99:  0  c 0-edge      a@pci:0000:10:00.0\n 98:  0  c 0-edge      other@pci:0000:11:00.0\n"))
	want := []Vector{{function, 0, 99, "a@pci:0000:10:00.0"}, {function, 1, 100, "b@pci:0000:10:00.0"}}
	listed := sysfs.NewMem()
	for _, n := range []string{"100", "99", "junk"} {
		listed.File(MSIDir(function)+"/"+n, "msix\n")
	}
	for name, m := range map[string]*sysfs.Mem{"listed": listed, "by name": sysfs.NewMem()} {
		if diff := cmp.Diff(want, Vectors(m.Open(t.TempDir(), nil), function, rows)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if v := Vectors(listed.Open(t.TempDir(), nil), "0000:12:00.0", rows); len(v) != 0 {
		t.Errorf("a function without interrupts has %v", v)
	}
}

// While the kernel moves a vector, a read sees the affinity before, or nothing.
func TestSettled(t *testing.T) {
	for name, tc := range map[string]struct {
		reads []string // the last one for ever
		want  string
	}{
		"at rest":            {[]string{"3"}, "3"},
		"one stale read":     {[]string{"2", "3"}, "3"},
		"an empty read":      {[]string{"", "3"}, "3"},
		"two empty reads":    {[]string{"", "", "3"}, "3"},
		"stale in between":   {[]string{"3", "2", "3"}, "3"},
		"an empty file":      {[]string{""}, ""},
		"stale, then at 2-3": {[]string{"2", "", "2-3"}, "2-3"},
	} {
		reads := 0
		got, err := settled(func() (string, error) {
			reads++
			return tc.reads[min(reads, len(tc.reads))-1], nil
		})
		if got != tc.want || err != nil || reads > settleReads {
			t.Errorf("%s: %q, %v after %d reads, want %q", name, got, err, reads, tc.want)
		}
	}
	gone := errors.New("gone")
	reads := 0
	if _, err := settled(func() (string, error) {
		if reads++; reads > 1 {
			return "", gone
		}
		return "3", nil
	}); err != gone {
		t.Errorf("a file that goes away: %v", err)
	}
}

func TestCounts(t *testing.T) {
	const text = "            CPU0       CPU2\n  7:   1   2  PCI-MSI 5-edge  a\n  8:  10  20  PCI-MSI 6-edge  b\n  9:  100 200  PCI-MSI 7-edge  c\nNMI: 5 6 x\n 10: 1\n"
	for name, tc := range map[string]struct {
		text    string
		numbers []int
		want    map[string]uint64
	}{
		"two":       {text, []int{7, 9}, map[string]uint64{"CPU0": 101, "CPU2": 202}},
		"none":      {text, nil, map[string]uint64{}},
		"cut short": {text, []int{10}, map[string]uint64{}},
		"no header": {" 7: 1 2 PCI-MSI 5-edge a\n", []int{7}, map[string]uint64{}},
		"nothing":   {"", []int{7}, map[string]uint64{}},
	} {
		numbers := map[int]bool{}
		for _, n := range tc.numbers {
			numbers[n] = true
		}
		if diff := cmp.Diff(tc.want, Counts([]byte(tc.text), numbers)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNumberOf(t *testing.T) {
	for path, want := range map[string]int{
		AffinityFile(0): 0, AffinityFile(4711): 4711,
		"/proc/irq/7/smp_affinity": -1, "/proc/irq/-7/smp_affinity_list": -1, "/proc/irq/07/smp_affinity_list": -1,
		"/proc/irq/x/smp_affinity_list": -1, "/sys/irq/7/smp_affinity_list": -1, "": -1,
	} {
		if n, ok := NumberOf(path); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v, want %d", path, n, ok, want)
		}
	}
}

// TestAgain: a look that is never satisfied ends after a tenth of a second, one that is at
// once, and one whose context ends does not look any more.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ satisfied, looks int }{{1, 1}, {10, 10}, {11, 10}} {
			looks, start := 0, time.Now()
			got := Again(t.Context(), func() bool { looks++; return looks == c.satisfied })
			if took := time.Since(start); got != (c.satisfied <= 10) || looks != c.looks || took != time.Duration(c.looks)*10*time.Millisecond {
				t.Errorf("satisfied by look %d: %v after %d looks in %v", c.satisfied, got, looks, took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if Again(ctx, func() bool { t.Error("looked"); return true }) {
			t.Error("satisfied without a look")
		}
	})
}
