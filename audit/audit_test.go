package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdmatune/rdmatune/internal/fixture"
	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/node"
)

// machine returns a captured node with process 100 of user 1000, whose home is
// /home/u, with the given environment, mapped files, and further files.
func machine(t *testing.T, env []string, mapped []string, files ...txtar.File) *node.Node {
	t.Helper()
	maps := ""
	for i, m := range mapped {
		maps += fmt.Sprintf("7f%02d0000-7f%02d1000 r-xp 00000000 08:01 %d %s\n", i, i, i+10, m)
	}
	all := append([]txtar.File{
		put("proc/100/stat", "100 (train) S"+strings.Repeat(" 0", 18)+" 77 0\n"),
		put("proc/100/status", "Name:\ttrain\nTgid:\t100\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0\n"),
		put("proc/100/cmdline", "/opt/train\x00"),
		put("proc/100/environ", strings.Join(env, "\x00")+"\x00"),
		put("proc/100/maps", maps),
		put("proc/100/cwd@", "/job"),
		put("proc/sys/kernel/hostname", "node1\n"),
		put("etc/passwd", "root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n"),
	}, files...)
	n, err := node.Open(fixture.Files(t, all...), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// put is a file of a captured tree.
func put(name, text string) txtar.File { return txtar.File{Name: name, Data: []byte(text)} }

const (
	ucp     = "/opt/ucx/lib/libucp.so.0.0.0"
	nccl    = "/usr/lib/libnccl.so.2.21.5"
	fabric  = "/usr/lib/libfabric.so.1"
	ompi    = "/opt/ompi/lib/libmpi.so.40"
	nvshmem = "/usr/lib/libnvshmem_host.so.3"
	mooncak = "/usr/lib/libtransfer_engine.so"
	ucc     = "/opt/ucc/lib/libucc.so.1"
)

// TestPrecedence: for each library, what wins and what it is read as.
func TestPrecedence(t *testing.T) {
	for name, tc := range map[string]struct {
		env, mapped []string
		files       []txtar.File
		variable    string
		parsed      string
		origin      string
	}{
		"ucx environment": {[]string{"UCX_RNDV_THRESH=16k", "HOME=/home/u"}, []string{ucp}, []txtar.File{put("home/u/ucx.conf", "UCX_RNDV_THRESH=1\n")}, "UCX_RNDV_THRESH", "16384", "environment"},
		"ucx job file":    {[]string{"HOME=/home/u"}, []string{ucp}, []txtar.File{put("job/ucx.conf", "UCX_RNDV_THRESH = 8k \n"), put("home/u/ucx.conf", "UCX_RNDV_THRESH=1\n")}, "UCX_RNDV_THRESH", "8192", "job file /job/ucx.conf"},
		"ucx config dir":  {[]string{"UCX_CONFIG_DIR=/cfg"}, []string{ucp}, []txtar.File{put("cfg/ucx.conf", "UCX_RNDV_THRESH=4k\n"), put("opt/ucx/etc/ucx/ucx.conf", "UCX_RNDV_THRESH=2k\n")}, "UCX_RNDV_THRESH", "4096", "user file /cfg/ucx.conf"},
		"ucx beside lib":  {nil, []string{ucp}, []txtar.File{put("opt/ucx/etc/ucx/ucx.conf", "# x\n[cpu]\nUCX_RNDV_THRESH=1\n"), put("etc/ucx/ucx.conf", "UCX_RNDV_THRESH=2k\n")}, "UCX_RNDV_THRESH", "2048", "system file /etc/ucx/ucx.conf"},
		"ucx specific in a file beats generic in the environment": {
			[]string{"UCX_IB_TX_MIN_INLINE=128"}, []string{ucp}, []txtar.File{put("etc/ucx/ucx.conf", "UCX_RC_MLX5_TX_MIN_INLINE=32\n")}, "UCX_RC_MLX5_TX_MIN_INLINE", "32", "system file /etc/ucx/ucx.conf",
		},
		"ucx nixl":         {nil, []string{ucp, "/opt/nixl/libplugin_UCX.so"}, []txtar.File{put("etc/ucx/ucx.conf", "UCX_RNDV_THRESH=2k\n")}, "UCX_RNDV_THRESH", "inf", "set by NIXL"},
		"ucx nixl and env": {[]string{"UCX_RNDV_THRESH=4k"}, []string{ucp, "/opt/nixl/libplugin_UCX.so"}, nil, "UCX_RNDV_THRESH", "4096", "environment"},
		"ucc of its own":   {[]string{"UCC_UCX_RNDV_THRESH=1k", "UCX_RNDV_THRESH=2k"}, []string{ucp, ucc}, nil, "UCC_UCX_RNDV_THRESH", "1024", "environment"},
		"ucc from ucx":     {[]string{"UCX_RNDV_THRESH=2k"}, []string{ucp, ucc}, nil, "UCC_UCX_RNDV_THRESH", "2048", "environment"},

		"nccl environment":        {[]string{"NCCL_BUFFSIZE=8388608"}, []string{nccl}, []txtar.File{put("etc/nccl.conf", "NCCL_BUFFSIZE=1\n")}, "NCCL_BUFFSIZE", "8388608", "environment"},
		"nccl user before system": {nil, []string{nccl}, []txtar.File{put("home/u/.nccl.conf", "NCCL_BUFFSIZE=2\nNCCL_BUFFSIZE=3\n"), put("etc/nccl.conf", "NCCL_BUFFSIZE=1\n")}, "NCCL_BUFFSIZE", "2", "user file /home/u/.nccl.conf"},
		"nccl named instead":      {[]string{"NCCL_CONF_FILE=n.conf"}, []string{nccl}, []txtar.File{put("job/n.conf", "NCCL_PROTO=LL\n"), put("home/u/.nccl.conf", "NCCL_BUFFSIZE=2\n"), put("etc/nccl.conf", "NCCL_BUFFSIZE=1\n")}, "NCCL_BUFFSIZE", "1", "system file /etc/nccl.conf"},
		"nccl out of range":       {[]string{"NCCL_BUFFSIZE=99999999999999999999"}, []string{nccl}, nil, "NCCL_BUFFSIZE", "4194304", "default"},

		"libfabric environment": {[]string{"FI_OFI_RXM_BUFFER_SIZE=1"}, []string{fabric}, []txtar.File{put("etc/libfabric.conf", "FI_OFI_RXM_BUFFER_SIZE=2\n")}, "FI_OFI_RXM_BUFFER_SIZE", "1", "environment"},
		"libfabric reversed":    {[]string{"FI_OFI_RXM_BUFFER_SIZE=1", "FI_PREFER_SYSCONFIG=1"}, []string{fabric}, []txtar.File{put("etc/libfabric.conf", "FI_OFI_RXM_BUFFER_SIZE=2\n")}, "FI_OFI_RXM_BUFFER_SIZE", "2", "system file /etc/libfabric.conf"},

		"ompi user file": {[]string{"HOME=/home/u"}, []string{ompi}, []txtar.File{put("home/u/.openmpi/mca-params.conf", "btl_tcp_eager_limit = 32k\n"), put("opt/ompi/etc/openmpi-mca-params.conf", "btl_tcp_eager_limit=1\n")}, "OMPI_MCA_btl_tcp_eager_limit", "32768", "user file /home/u/.openmpi/mca-params.conf"},
		"ompi prefix":    {nil, []string{ompi}, []txtar.File{put("opt/ompi/etc/openmpi-mca-params.conf", "btl_tcp_eager_limit=1\n")}, "OMPI_MCA_btl_tcp_eager_limit", "1", "system file /opt/ompi/etc/openmpi-mca-params.conf"},

		"nvshmem file beats environment": {[]string{"NVSHMEM_QP_DEPTH=5", "HOME=/home/u"}, []string{nvshmem}, []txtar.File{put("home/u/.nvshmem.conf", " NVSHMEM_QP_DEPTH = 2048 # deep\n")}, "NVSHMEM_QP_DEPTH", "2048", "user file /home/u/.nvshmem.conf"},
		"mooncake out of bounds":         {[]string{"MC_MTU=9000"}, []string{mooncak}, nil, "MC_MTU", "4096", "default"},
		"mooncake":                       {[]string{"MC_MAX_INLINE=128"}, []string{mooncak}, nil, "MC_MAX_INLINE", "128", "environment"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Processes(t.Context(), machine(t, tc.env, tc.mapped, tc.files...), []int{100}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(r.Variables, func(v Value) bool { return v.Name == tc.variable })
			if i < 0 {
				t.Fatalf("%s is not among %+v", tc.variable, r.Variables)
			}
			if v := r.Variables[i]; v.Parsed.String() != tc.parsed || v.Origin != tc.origin {
				t.Errorf("%s is %s from %s, want %s from %s", tc.variable, v.Parsed, v.Origin, tc.parsed, tc.origin)
			}
		})
	}
}

// TestReport holds a whole report: traps, a contradiction, wrong names, a file that a
// tool wrote, a variable that nothing reads, modules.
func TestReport(t *testing.T) {
	n := machine(t, []string{
		"NCCL_BUFFSIZE=4M", "UCX_RNDV_THRESH=16K", "CUDA_RDMA_LOW_LATENCY_HINT=16384", "FI_OFI_RXM_BUFFER_SIZE=16384",
		"NCCL_P2P_LL_TRESHOLD=1", "btl_tcp_eager_limit=64k", "RDMA_LOW_LATENCY_HINT=16q", "NVSHMEM_QP_DEPTH=64", "HOME=/home/u",
	}, []string{ucp, nccl, "/opt/venv/deep_ep_cpp.cpython-312.so", nvshmem, "/usr/lib/libc.so.6"},
		put("etc/nccl.conf", "# Generated by cluster-agent, do not edit\n NCCL_PROTO=LL\nNCCL_IB_TIMEOUT=22\n"))
	r, err := Processes(t.Context(), n, []int{100, 999}, Options{Workload: "w", Hint: new(int64(16384))})
	if err != nil {
		t.Fatal(err)
	}
	if r.Clean() {
		t.Error("a report full of traps is clean")
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "report.txt", b.String())
	j, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ReadReport(j)
	if err != nil || len(back.Variables) != len(r.Variables) {
		t.Errorf("the JSON comes back as %+v, %v", back, err)
	}
}

// TestClean: values that express the hint are no findings; nor is another library's
// name that is in no table.
func TestClean(t *testing.T) {
	n := machine(t, []string{"UCX_RNDV_THRESH=16385", "NCCL_P2P_LL_THRESHOLD=8192", "NCCL_DEBUG=INFO", "UCX_NET_DEVICES=mlx5_0:1", "OMPI_MCA_btl_tcp_eager_limit=16440"}, []string{ucp, nccl, ompi})
	r, err := Processes(t.Context(), n, []int{100}, Options{Workload: "w", Hint: new(int64(16384))})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Clean() {
		t.Errorf("findings %+v", r.Findings)
	}
}

func TestCommand(t *testing.T) {
	tune := put("job/tune.conf", "-x UCX_RNDV_THRESH=1k -mca btl_sm_eager_limit 8k # -x X=1\n")
	for name, tc := range map[string]struct {
		command, environ []string
		want             map[string]string // variable to "parsed origin"
		finding          string
	}{
		"plain":          {[]string{"./t"}, []string{"NCCL_BUFFSIZE=5"}, map[string]string{"NCCL_BUFFSIZE": "5 environment"}, ""},
		"env":            {[]string{"env", "-u", "NCCL_BUFFSIZE", "-i", "MC_MAX_WR=9", "./t"}, []string{"NCCL_BUFFSIZE=5", "FI_VERBS_TX_SIZE=1"}, map[string]string{"MC_MAX_WR": "9 env MC_MAX_WR="}, ""},
		"mpirun":         {[]string{"mpirun", "-n", "2", "-x", "UCX_RNDV_THRESH=16K", "--mca", "btl_tcp_eager_limit", "64k", "./t", "-x", "NCCL_BUFFSIZE=1"}, nil, map[string]string{"UCX_RNDV_THRESH": "16384 mpirun -x UCX_RNDV_THRESH=", "OMPI_MCA_btl_tcp_eager_limit": "65536 mpirun --mca btl_tcp_eager_limit"}, ""},
		"mpirun -x N":    {[]string{"/opt/ompi/bin/mpirun", "-x", "NCCL_BUFFSIZE", "./t"}, []string{"NCCL_BUFFSIZE=7"}, map[string]string{"NCCL_BUFFSIZE": "7 mpirun -x NCCL_BUFFSIZE, from the environment"}, ""},
		"-x of nothing":  {[]string{"mpirun", "-x", "NCCL_BUFFSIZE", "./t"}, nil, map[string]string{}, "mpirun -x NCCL_BUFFSIZE: it is not set"},
		"mca beats env":  {[]string{"mpirun", "--mca", "btl_sm_eager_limit", "1k", "./t"}, []string{"OMPI_MCA_btl_sm_eager_limit=2k"}, map[string]string{"OMPI_MCA_btl_sm_eager_limit": "1024 mpirun --mca btl_sm_eager_limit"}, ""},
		"tune file":      {[]string{"mpirun", "--tune", "tune.conf", "./t"}, nil, map[string]string{"UCX_RNDV_THRESH": "1024 mpirun -x UCX_RNDV_THRESH=", "OMPI_MCA_btl_sm_eager_limit": "8192 tune file /job/tune.conf"}, ""},
		"env beats tune": {[]string{"mpirun", "--tune", "tune.conf", "./t"}, []string{"OMPI_MCA_btl_sm_eager_limit=2k"}, map[string]string{"UCX_RNDV_THRESH": "1024 mpirun -x UCX_RNDV_THRESH=", "OMPI_MCA_btl_sm_eager_limit": "2048 environment"}, ""},
		"two programs":   {[]string{"mpirun", "-n", "1", "./a", "-q", ":", "-n", "1", "-x", "NCCL_BUFFSIZE=3", "./b"}, nil, map[string]string{"NCCL_BUFFSIZE": "3 mpirun -x NCCL_BUFFSIZE="}, ""},
		"other hosts":    {[]string{"mpirun", "--hostfile", "h", "./t"}, []string{"NCCL_BUFFSIZE=7"}, map[string]string{"NCCL_BUFFSIZE": "7 environment"}, "without -x the ranks of other hosts do not get it"},
		"srun":           {[]string{"srun", "--export=NCCL_BUFFSIZE,MC_MAX_WR=4", "./t"}, []string{"NCCL_BUFFSIZE=7", "FI_VERBS_TX_SIZE=1"}, map[string]string{"NCCL_BUFFSIZE": "7 environment", "MC_MAX_WR": "4 srun --export"}, ""},
		"cut short":      {[]string{"mpirun", "--mca", "x"}, nil, map[string]string{}, ""},
		"nested":         {[]string{"env", "NCCL_BUFFSIZE=2", "mpirun", "-x", "NCCL_BUFFSIZE", "./t"}, nil, map[string]string{"NCCL_BUFFSIZE": "2 mpirun -x NCCL_BUFFSIZE, from the environment"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := Command(machine(t, nil, nil, tune), tc.command, tc.environ, "/job", Options{})
			got := map[string]string{}
			for _, v := range r.Variables {
				if v.Name != "RDMA_LOW_LATENCY_HINT" {
					got[v.Name] = v.Parsed.String() + " " + v.Origin
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			text := fmt.Sprint(r.Findings)
			if !strings.Contains(text, tc.finding) {
				t.Errorf("findings %s, want %q", text, tc.finding)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	report := func(env ...string) *Report {
		r, err := Processes(t.Context(), machine(t, env, []string{nccl, ucp}), []int{100}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b, c := report("NCCL_BUFFSIZE=4M", "UCX_RNDV_THRESH=16K"), report("NCCL_BUFFSIZE=4", "UCX_RNDV_THRESH=16384"), report("NCCL_BUFFSIZE=4194304")
	if got := Compare([]string{"a", "b"}, []*Report{a, b}); len(got.Differences) != 0 {
		t.Errorf("texts that are read alike differ: %+v", got.Differences)
	}
	var s strings.Builder
	if err := Compare([]string{"a", "b", "c"}, []*Report{a, b, c}).WriteText(&s); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "compare.txt", s.String())
	if _, err := ReadReport([]byte(`{"format_version":"2.0"}`)); err == nil {
		t.Error("a report of another major version is read")
	}
}

// TestExpress: the boundary of each library's rule at the hint itself. A message of H
// bytes is low latency and one of H+1 is not, by the library's own comparison.
func TestExpress(t *testing.T) {
	const h = 16384
	lowLatency := map[string]func(value, size int64) bool{
		"RDMA_LOW_LATENCY_HINT":        func(v, s int64) bool { return s <= v },
		"UCX_RNDV_THRESH":              func(v, s int64) bool { return s < v },
		"NCCL_P2P_LL_THRESHOLD":        func(v, s int64) bool { return s <= 4*v },
		"FI_OFI_RXM_BUFFER_SIZE":       func(v, s int64) bool { return s <= v },
		"OMPI_MCA_btl_tcp_eager_limit": func(v, s int64) bool { return s <= v-ob1Header },
		"OMPI_MCA_btl_sm_eager_limit":  func(v, s int64) bool { return s <= v-ob1Header },
	}
	var all []string
	for _, l := range Libraries {
		all = append(all, l.ID)
	}
	seen := map[string]bool{}
	for _, line := range Express(Expression{Workload: "w", Hint: new(int64(h)), Libraries: all, Channels: 4}) {
		if line.Name == "" || line.Name == "RDMATUNE_WORKLOAD" {
			continue
		}
		rule, ok := lowLatency[line.Name]
		if !ok {
			t.Errorf("%s is expressed, and its rule is not tested", line.Name)
			continue
		}
		seen[line.Name] = true
		v, ok := VariableByName(line.Name).Read(line.Value).Int64()
		if !ok || !rule(v, h-1) || !rule(v, h) || rule(v, h+1) {
			t.Errorf("%s=%s: at H-1, H, H+1 low latency is %v, %v, %v", line.Name, line.Value, rule(v, h-1), rule(v, h), rule(v, h+1))
		}
		if line.Boundary == "" {
			t.Errorf("%s has no boundary rule", line.Name)
		}
	}
	for name := range lowLatency {
		if !seen[name] {
			t.Errorf("%s is not expressed", name)
		}
	}
	for _, line := range Express(Expression{Workload: "w", Hint: new(int64(0)), Libraries: all}) {
		if line.Name != "" && line.Library != "rdmatune" {
			t.Errorf("a hint of 0 sets %s=%s", line.Name, line.Value)
		}
	}
	for value, want := range map[string]string{"a": "a", "": "''", "x y": "'x y'", "it's": `'it'\''s'`, `a["0"]`: `'a["0"]'`} {
		if got := Quote(value); got != want {
			t.Errorf("Quote(%q) = %s, want %s", value, got, want)
		}
	}
}

// TestTable: every row is whole, belongs to its library, and its default is a value that
// the library itself takes.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for i := range Table {
		v := &Table[i]
		l := LibraryByID(v.Library)
		switch {
		case l == nil:
			t.Errorf("%s: no library %q", v.Name, v.Library)
			continue
		case !l.owns(v.Name):
			t.Errorf("%s is not %s's", v.Name, l.Name)
		case seen[v.Name]:
			t.Errorf("%s has two rows", v.Name)
		case v.Unit == "" || v.Default == "" || v.Scope == "" || v.Doc == "":
			t.Errorf("%s: %+v", v.Name, v)
		case v.Hint() && (v.Boundary == "" || v.HCL == ""):
			t.Errorf("%s expresses a hint and says not how", v.Name)
		}
		seen[v.Name] = true
		if v.Unit == "bytes" || v.Unit == "count" || v.Unit == "switch" {
			if p := v.Read(v.Default); v.Default != "none" && (p.Rejected != "" || p.Trap != "") {
				t.Errorf("%s: its default %s is read as %s %s%s", v.Name, v.Default, p, p.Rejected, p.Trap)
			}
		}
		if near := nearest(v.Name); near != "" {
			t.Errorf("%s is taken for %s", v.Name, near)
		}
	}
	for wrong, right := range misnomers {
		if VariableByName(right) == nil || VariableByName(wrong) != nil {
			t.Errorf("%s -> %s", wrong, right)
		}
	}
}

// TestOwnNames holds rdmatune's rows to the code that reads them.
func TestOwnNames(t *testing.T) {
	read := ""
	for _, file := range []string{"../drivers/verbs/transport/hint.go", "../internal/rundir/rundir.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		read += string(b)
	}
	for _, v := range Table {
		if v.Library == "rdmatune" && !strings.Contains(read, `"`+v.Name+`"`) {
			t.Errorf("nothing in the code reads %s", v.Name)
		}
	}
	for _, word := range strings.FieldsFunc(read, func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') }) {
		if (strings.HasPrefix(word, "RDMATUNE_") || strings.HasPrefix(word, "RDMA_LOW")) && VariableByName(word) == nil {
			t.Errorf("the code reads %s, which has no row", word)
		}
	}
}

// FuzzCompare: a report comes from another machine and may say anything.
func FuzzCompare(f *testing.F) {
	f.Add([]byte(`{"format_version":"1.0","variables":[{"process":1,"library":"nccl","name":"NCCL_BUFFSIZE","parsed":4,"origin":"environment"}],"modules":[{"process":2,"library":"nccl"}]}`))
	f.Add([]byte(`{"format_version":"1.0","processes":[{"pid":1,"comm":"\u001b"}],"variables":[{"process":1,"name":"\u001b","origin":"\u0007","parsed":"\u0000"},{"process":2,"name":"\u001b","parsed":1}]}`))
	f.Add([]byte(`{"format_version":"1.0","variables":[{"name":"","parsed":"inf"},{"name":"","parsed":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadReport(b)
		if err != nil {
			return
		}
		var s strings.Builder
		if err := Compare([]string{"a", "b"}, []*Report{r, r}).WriteText(&s); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteText(&s); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(s.String(), "\x1b\x00\x07") {
			t.Errorf("control characters in %q", s.String())
		}
	})
}
