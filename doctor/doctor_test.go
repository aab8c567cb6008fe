package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/audit/live"
	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/internal/gpu"
	"github.com/rdmatune/rdmatune/node"
)

func put(name, text string) txtar.File { return txtar.File{Name: name, Data: []byte(text)} }

// pair is a captured machine with one GPU and one NIC below the bridges of each, which
// are named from the host bridge down.
func pair(t *testing.T, gpuPath, nicPath string, more ...txtar.File) *node.Node {
	t.Helper()
	const nic, card = "0000:18:00.0", "0000:1b:00.0"
	files := []txtar.File{
		put("sys/devices/system/cpu/online", "0-3\n"),
		put("sys/devices/"+gpuPath+"/"+card+"/class", "0x030200\n"), put("sys/devices/"+gpuPath+"/"+card+"/vendor", "0x10de\n"),
		put("sys/devices/"+gpuPath+"/"+card+"/numa_node", "0\n"),
		put("sys/devices/"+nicPath+"/"+nic+"/class", "0x020000\n"), put("sys/devices/"+nicPath+"/"+nic+"/numa_node", "0\n"),
		put("sys/devices/"+nicPath+"/"+nic+"/infiniband/mlx5_0/fw_ver", "28\n"),
		put("sys/devices/"+nicPath+"/"+nic+"/infiniband/mlx5_0/device@", "../../../"+nic),
		put("sys/bus/pci/devices/"+card+"@", "../../../devices/"+gpuPath+"/"+card),
		put("sys/bus/pci/devices/"+nic+"@", "../../../devices/"+nicPath+"/"+nic),
		put("sys/class/infiniband/mlx5_0@", "../../devices/"+nicPath+"/"+nic+"/infiniband/mlx5_0"),
	}
	n, err := node.Open(fixture.Files(t, append(files, more...)...), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func examine(t *testing.T, n *node.Node, change func(*Input)) *Report {
	t.Helper()
	facts, err := n.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	view, err := live.Look(t.Context(), n, live.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Node: n, Facts: facts, View: view}
	if change != nil {
		change(&in)
	}
	r, err := Examine(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func finding(t *testing.T, r *Report, check string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no finding of %s in %+v", check, r.Findings)
	return Finding{}
}

// acsConfig is a configuration space whose only extended capability is ACS.
func acsConfig(control uint16) string {
	b := make([]byte, 0x110)
	binary.LittleEndian.PutUint32(b[0x100:], acsCapability)
	binary.LittleEndian.PutUint16(b[0x100+acsControl:], control)
	return string(b)
}

// TestGPUDirect: what the driver grants, what provides it, and what is in the way.
func TestGPUDirect(t *testing.T) {
	both := gpu.Device{PCI: "0000:1b:00.0", Name: "G", DirectRDMA: true, DMABuf: true}
	attr := gpu.Device{PCI: "0000:1b:00.0", Name: "G", DirectRDMA: true}
	none := gpu.Device{PCI: "0000:1b:00.0", Name: "G"}
	module := put("sys/module/nvidia_peermem/initstate", "live\n")
	const root, sw = "pci0000:16", "pci0000:16/0000:16:01.0/0000:17:00.0"
	for name, tc := range map[string]struct {
		gpu, nic string
		told     *gpu.Device
		more     []txtar.File
		level    Level
		message  string
		evidence string
	}{
		"one switch, all there":  {sw + "/0000:18:01.0", sw + "/0000:18:02.0", &both, []txtar.File{module}, Fine, "possible, by module and by dma-buf", "PIX"},
		"dma-buf alone":          {sw + "/0000:18:01.0", sw + "/0000:18:02.0", &gpu.Device{PCI: "0000:1b:00.0", DMABuf: true}, nil, Fine, "possible by dma-buf", "PIX"},
		"granted, not provided":  {root, root, &attr, nil, Problem, "nothing provides it", "PHB"},
		"module, not granted":    {root, root, &none, []txtar.File{module}, Warning, "they disagree", "PHB"},
		"not granted":            {root, root, &none, nil, Problem, "does not grant", "PHB"},
		"not asked":              {root, root, nil, []txtar.File{module}, Unknown, "could not be asked", "not asked"},
		"another host bridge":    {"pci0000:16", "pci0000:40", &both, []txtar.File{module}, Warning, "far apart (NODE)", "NODE"},
		"several switches":       {sw + "/0000:18:01.0/0000:19:00.0/0000:1a:00.0", sw + "/0000:18:02.0", &both, []txtar.File{module}, Fine, "possible", "PXB"},
		"ACS redirects":          {sw + "/0000:18:01.0", sw + "/0000:18:02.0", &both, []txtar.File{module, put("sys/devices/"+sw+"/0000:18:01.0/config", acsConfig(1<<2)), put("sys/bus/pci/devices/0000:18:01.0@", "../../../devices/"+sw+"/0000:18:01.0")}, Warning, "ACS sends", "0000:18:01.0"},
		"ACS is off":             {sw + "/0000:18:01.0", sw + "/0000:18:02.0", &both, []txtar.File{module, put("sys/devices/"+sw+"/0000:18:01.0/config", acsConfig(0)), put("sys/bus/pci/devices/0000:18:01.0@", "../../../devices/"+sw+"/0000:18:01.0")}, Fine, "possible", "PIX"},
		"the IOMMU translates":   {root, root, &both, []txtar.File{module, put("sys/devices/"+root+"/0000:18:00.0/iommu_group/type", "DMA\n")}, Warning, "IOMMU translates", "iommu_group/type"},
		"the IOMMU passes it on": {root, root, &both, []txtar.File{module, put("sys/devices/"+root+"/0000:18:00.0/iommu_group/type", "identity\n")}, Fine, "possible", "PHB"},
	} {
		t.Run(name, func(t *testing.T) {
			r := examine(t, pair(t, tc.gpu, tc.nic, tc.more...), func(in *Input) {
				if tc.told != nil {
					in.GPUs = []gpu.Device{*tc.told}
				}
			})
			f := finding(t, r, "gpudirect")
			if f.Level != tc.level || !strings.Contains(f.Message, tc.message) || !strings.Contains(fmt.Sprint(f.Evidence), tc.evidence) {
				t.Errorf("%s: %s %+v; want %s, %q, evidence %q", f.Level, f.Message, f.Evidence, tc.level, tc.message, tc.evidence)
			}
			if f.Level == Problem && f.Why == "" {
				t.Error("a problem without a reason")
			}
		})
	}
}

// TestGPUWithoutNIC: a machine with a GPU and no RDMA device is told the truth about both.
func TestGPUWithoutNIC(t *testing.T) {
	n, err := node.Open(fixture.Files(t,
		put("sys/devices/pci0000:16/0000:1b:00.0/class", "0x030200\n"), put("sys/devices/pci0000:16/0000:1b:00.0/vendor", "0x10de\n"),
		put("sys/bus/pci/devices/0000:1b:00.0@", "../../../devices/pci0000:16/0000:1b:00.0")), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := examine(t, n, func(in *Input) {
		in.GPUs = []gpu.Device{{PCI: "0000:1b:00.0", Name: "G", DirectRDMA: true, DMABuf: true}}
	})
	if f := finding(t, r, "device"); f.Level != Problem || !strings.Contains(f.Message, "no RDMA device") {
		t.Errorf("device: %+v", f)
	}
	if f := finding(t, r, "gpudirect"); f.Level != Problem || !strings.Contains(f.Message, "1 GPU and no RDMA NIC") {
		t.Errorf("gpudirect: %+v", f)
	}
	if f := finding(t, r, "gpu"); f.Level != Fine || !strings.Contains(f.Message, "by dma-buf") {
		t.Errorf("gpu: %+v", f)
	}
	r = examine(t, n, func(in *Input) { in.GPUErr = errors.New("no driver") })
	if f := finding(t, r, "gpu"); f.Level != Unknown || !strings.Contains(fmt.Sprint(f.Evidence), "no driver") {
		t.Errorf("gpu without a driver: %+v", f)
	}
}

// TestGIDs: an empty table, v1 alone, and v2.
func TestGIDs(t *testing.T) {
	for name, tc := range map[string]struct {
		types []txtar.File
		level Level
	}{
		"v2":    {[]txtar.File{put("gid_attrs/types/0", "IB/RoCE v1\n"), put("gid_attrs/types/1", "RoCE v2\n")}, Fine},
		"v1":    {[]txtar.File{put("gid_attrs/types/0", "IB/RoCE v1\n")}, Warning},
		"empty": {[]txtar.File{put("gid_attrs/types/none", "")}, Problem},
		"none":  {nil, Unknown},
	} {
		const port = "sys/devices/pci0000:16/0000:18:00.0/infiniband/mlx5_0/ports/1/"
		files := []txtar.File{put(port+"state", "4: ACTIVE\n"), put(port+"link_layer", "Ethernet\n")}
		for _, f := range tc.types {
			f.Name = port + f.Name
			files = append(files, f)
		}
		if f := finding(t, examine(t, pair(t, "pci0000:16", "pci0000:16", files...), nil), "gid"); f.Level != tc.level {
			t.Errorf("%s: %+v, want %s", name, f, tc.level)
		}
	}
}

// TestVerdicts: what a workload's own transports have counted answers the questions.
func TestVerdicts(t *testing.T) {
	process := func(sizes, times []control.Bin) control.Process {
		return control.Process{PID: 5, Conns: []control.Conn{{Sent: control.Traffic{Sizes: sizes, Tiers: []control.Tier{{Times: times}}}}}}
	}
	for name, tc := range map[string]struct {
		sizes, times []control.Bin
		want         map[string]Answer
	}{
		"narrow, long tail": {
			[]control.Bin{{From: 64, Count: 990}, {From: 128, Count: 10}}, []control.Bin{{From: 2000, Count: 980}, {From: 90_000, Count: 20}},
			map[string]Answer{"narrow": Yes, "P99": Yes, "orders": No, "bandwidth comes": No, "sizes of its messages": Yes},
		},
		"orders of magnitude": {
			[]control.Bin{{From: 64, Count: 900}, {From: 1 << 20, Count: 100}}, []control.Bin{{From: 2000, Count: 1000}},
			map[string]Answer{"narrow": No, "P99": No, "orders": Yes, "bandwidth comes": No},
		},
		"bandwidth": {
			[]control.Bin{{From: 64, Count: 4}, {From: 1 << 20, Count: 996}}, nil,
			map[string]Answer{"narrow": Yes, "P99": Unanswered, "bandwidth comes": Yes, "is bandwidth": Yes},
		},
		"a little of each": { // neither a narrow band nor orders of magnitude above the median
			[]control.Bin{{From: 8, Count: 300}, {From: 4096, Count: 400}, {From: 65536, Count: 300}}, nil,
			map[string]Answer{"narrow": No, "orders": No},
		},
		"nothing": {nil, nil, map[string]Answer{"narrow": Unanswered, "P99": Unanswered, "orders": Unanswered, "sizes of its messages": Unanswered, "can this": Yes}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := node.Open("sim:small", t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			r := examine(t, n, func(in *Input) {
				in.Brief = true
				in.Workloads = []Workload{{Address: "w", Device: "mlx5_0", PIDs: []int{5}, Tuned: []string{"cpu_pinning", "irq_affinity", "frequency_lock"}, Transports: []control.Process{process(tc.sizes, tc.times)}}}
			})
			var ofSizes []string
			for _, v := range r.Workloads[0].Verdicts {
				if (v.Question == narrowBand.question || v.Question == wideBand.question) && v.Statement != "" {
					ofSizes = append(ofSizes, v.Statement)
				}
				if v.Answer != Yes && v.Answer != No && v.Answer != Unanswered || len(v.Evidence) == 0 {
					t.Errorf("verdict %+v", v)
				}
				for part, want := range tc.want {
					if strings.Contains(v.Question, part) && v.Answer != want {
						t.Errorf("%s: %s (%v), want %s", v.Question, v.Answer, v.Evidence, want)
					}
				}
			}
			// One sentence is said of the sizes, with the numbers.
			if said := min(len(tc.sizes), 1); len(ofSizes) != said || said > 0 && !strings.Contains(ofSizes[0], ": half below ") {
				t.Errorf("said of the sizes: %q", ofSizes)
			}
		})
	}
}

// TestProbe finds out the inline size of a real provider.
// TestBuiltWithoutVerbs: what the program lacks is said apart from what the node has.
func TestBuiltWithoutVerbs(t *testing.T) {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, lacking := range []bool{false, true} {
		said := 0
		for _, f := range examine(t, n, func(in *Input) { in.NoVerbs = lacking }).Findings {
			if f.Check == "verbs-build" && f.Level == Problem && f.Why != "" && f.Do != "" {
				said++
			}
		}
		if (said == 1) != lacking {
			t.Errorf("built without verbs %v: said %d times", lacking, said)
		}
	}
}

func TestProbe(t *testing.T) {
	var p verbs.Provider = soft.Provider{}
	dev, err := p.Open("soft0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	n, err := probeInline(dev)
	if err != nil || n < 16 || n > verbs.MaxProbedInline {
		t.Errorf("inline of soft0: %d, %v", n, err)
	}
}

func FuzzRedirects(f *testing.F) {
	f.Add([]byte(acsConfig(1 << 2)))
	f.Add([]byte{})
	f.Add(make([]byte, 4096))
	f.Fuzz(func(t *testing.T, b []byte) {
		if redirects(b) && len(b) < extendedStart+acsControl+2 {
			t.Error("read beyond the end")
		}
	})
}
