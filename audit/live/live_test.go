package live

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/node"
)

// process returns the files of a captured process with two threads.
func process(pid int, comm, cpus string, more ...txtar.File) []txtar.File {
	dir := fmt.Sprintf("proc/%d", pid)
	file := func(name, format string, args ...any) txtar.File {
		return txtar.File{Name: dir + "/" + name, Data: fmt.Appendf(nil, format, args...)}
	}
	var out []txtar.File
	for i, sub := range []string{"", fmt.Sprintf("task/%d/", pid), fmt.Sprintf("task/%d/", pid+1)} {
		tid := pid + i/2
		list := cpus
		if i == 2 {
			list = "2"
		}
		out = append(out,
			file(sub+"stat", "%d (%s) S%s 77 0%s\n", tid, comm, strings.Repeat(" 0", 18), strings.Repeat(" 0", 15)+" 1"),
			file(sub+"status", "Name:\t%s\nTgid:\t%d\nUid:\t1000\t1000\t1000\t1000\nVmLck:\t0 kB\nVmPin:\t64 kB\nCpus_allowed_list:\t%s\nMems_allowed_list:\t0\n", comm, pid, list))
	}
	out = append(out, file("cmdline", "/bin/%s\x00", comm), file("environ", ""), file("ns/net@", "net:[4026532000]"))
	for _, f := range more {
		f.Name = dir + "/" + f.Name
		out = append(out, f)
	}
	return out
}

func captured(t *testing.T) *node.Node {
	t.Helper()
	resources := `{
 "devices": [{"index": 1, "name": "mlx5_0", "ports": 1, "firmware": "28.39", "protocol": "roce"}],
 "links": [{"device": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": "ens1"}],
 "qps": [
  {"device": "mlx5_0", "lqpn": 1, "type": "GSI", "state": "RTS", "kernel": "ib_core"},
  {"device": "mlx5_0", "lqpn": 18, "rqpn": 99, "port": 1, "type": "RC", "state": "RTS", "tid": 4002},
  {"device": "mlx5_0", "lqpn": 19, "type": "RC", "state": "INIT", "tid": 4001},
  {"device": "mlx5_0", "lqpn": 30, "type": "RC", "state": "RTS", "tid": 9999},
  {"device": "mlx5_0", "lqpn": 40, "type": "RC", "state": "RTS", "tid": 7001}],
 "cqs": [{"device": "mlx5_0", "cqn": 5, "cqe": 127, "users": 2, "tid": 4001}],
 "mrs": [{"device": "mlx5_0", "mrn": 1, "bytes": 4096, "tid": 4001}, {"device": "mlx5_0", "mrn": 2, "bytes": 8192, "tid": 4002}],
 "contexts": [],
 "cm_ids": [{"device": "mlx5_0", "cm_idn": 1, "lqpn": 18, "state": "CONNECT", "port_space": "TCP", "src": "", "dst": "10.0.0.2:7471"}],
 "problems": [{"device": "mlx5_0", "what": "contexts", "reason": "incomplete: changed while it was listed in each of 5 attempts"}]}`
	files := []txtar.File{
		{Name: "rdma/resources.json", Data: []byte(resources)},
		{Name: "proc/self/ns/net@", Data: []byte("net:[4026531840]")},
		{Name: "proc/self/ns/pid@", Data: []byte("pid:[4026532111]")},
		{Name: "sys/devices/system/cpu/online", Data: []byte("0-3\n")},
		{Name: "sys/devices/pci0000:00/0000:00:05.0/local_cpulist", Data: []byte("0-1\n")},
		{Name: "sys/devices/pci0000:00/0000:00:05.0/numa_node", Data: []byte("0\n")},
		{Name: "sys/devices/system/node/online", Data: []byte("0\n")},
		{Name: "sys/devices/system/node/node0/cpulist", Data: []byte("0-1\n")},
		{Name: "sys/devices/pci0000:00/0000:00:05.0/msi_irqs/50", Data: []byte("msix\n")},
		{Name: "sys/devices/pci0000:00/0000:00:05.0/infiniband/mlx5_0/fw_ver", Data: []byte("28.39\n")},
		{Name: "sys/devices/pci0000:00/0000:00:05.0/infiniband/mlx5_0/device@", Data: []byte("../../../0000:00:05.0")},
		{Name: "sys/bus/pci/devices/0000:00:05.0@", Data: []byte("../../../devices/pci0000:00/0000:00:05.0")},
		{Name: "sys/class/infiniband/mlx5_0@", Data: []byte("../../devices/pci0000:00/0000:00:05.0/infiniband/mlx5_0")},
		{Name: "proc/irq/50/smp_affinity_list", Data: []byte("2-3\n")},
	}
	files = append(files, process(4001, "trainer", "0-3")...)
	files = append(files, process(6001, "idle", "0-1")...)
	n, err := node.Open(fixture.Files(t, files...), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCaptured: foreign queue pairs of a thread that is no process, of one that is
// gone, and of the kernel; a process that has nothing but was asked for.
func TestCaptured(t *testing.T) {
	n := captured(t)
	facts, err := n.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours := control.Process{
		PID: 4001, Workload: "w", Device: "mlx5_0", Provider: "ibverbs",
		Hint: control.EffectiveHint{Size: new(int64(4096)), Origin: "order 1", Losers: []control.Candidate{{Origin: "program", Size: new(int64(1))}}},
		Conns: []control.Conn{{ID: 3, Peer: "10.0.0.9:1", Profile: "low_latency", Hint: new(int64(4096)), Origin: "order 1",
			Lanes: []control.Lane{{QPN: 19, PeerQPN: 7, SendWR: 31, RecvWR: 63, MaxInline: 64, Profile: "bandwidth", Index: 1}},
			Sent:  control.Traffic{Messages: 12, Sizes: []control.Bin{{From: 8, Count: 10}, {From: 4096, Count: 2}}}}},
	}
	silent := control.Process{PID: 6001, Err: "no answer"}
	v, err := Look(t.Context(), n, Options{Facts: facts, Transports: []control.Process{ours, silent}, PIDs: []int{6001, 8888}, Placement: true})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := v.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "captured.txt", b.String())
	if _, err := json.Marshal(v); err != nil {
		t.Error(err)
	}
	for _, p := range v.Processes {
		if p.PID == 8888 {
			t.Error("a process that is not there is shown")
		}
	}
}

func TestNothing(t *testing.T) {
	n, err := node.Open("sim:small", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v, err := Look(t.Context(), n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if v.Unobservable == "" || len(v.Processes) != 0 {
		t.Errorf("a simulated node shows %+v", v)
	}
}

// TestManyQueuePairs: the cost is that of the lists, not of their product.
func TestManyQueuePairs(t *testing.T) {
	p := Process{PID: 1, Comm: "x", Devices: []Use{{Device: "d"}}}
	for i := range 20_000 {
		p.Devices[0].QueuePairs = append(p.Devices[0].QueuePairs, QueuePair{Number: uint32(i), Type: "RC"})
	}
	var b strings.Builder
	if err := (&View{Processes: []Process{p}}).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "and 19984 more") || strings.Count(b.String(), "\n") > 30 {
		t.Errorf("20000 queue pairs print as\n%.2000s", b.String())
	}
}
