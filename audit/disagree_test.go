package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestDisagree: only processes of one workload have to agree, and only those that read
// the variable.
func TestDisagree(t *testing.T) {
	own := func(workload string, size int64) *Own {
		return &Own{Workload: workload, Size: &size, Origin: "program"}
	}
	type process struct {
		env    string
		mapped string
		own    *Own
	}
	for name, tc := range map[string]struct {
		processes []process
		workload  string // that the audit is about
		want      []string
	}{
		"of one workload":             {[]process{{"RDMATUNE_WORKLOAD=a\x00NCCL_BUFFSIZE=4", nccl, nil}, {"RDMATUNE_WORKLOAD=a\x00NCCL_BUFFSIZE=8", nccl, nil}}, "", []string{"NCCL_BUFFSIZE"}},
		"of two":                      {[]process{{"RDMATUNE_WORKLOAD=a\x00NCCL_BUFFSIZE=4", nccl, nil}, {"RDMATUNE_WORKLOAD=b\x00NCCL_BUFFSIZE=8", nccl, nil}}, "", nil},
		"of none":                     {[]process{{"NCCL_BUFFSIZE=4", nccl, nil}, {"NCCL_BUFFSIZE=8", nccl, nil}}, "", nil},
		"of that asked":               {[]process{{"NCCL_BUFFSIZE=4", nccl, nil}, {"NCCL_BUFFSIZE=8", nccl, nil}}, "w", []string{"NCCL_BUFFSIZE"}},
		"transports of two workloads": {[]process{{"", "", own("a", 4096)}, {"", "", own("b", 8192)}}, "", nil},
		"transports of one":           {[]process{{"", "", own("a", 4096)}, {"RDMATUNE_WORKLOAD=b", "", own("a", 8192)}}, "", []string{"RDMA_LOW_LATENCY_HINT"}},
		"a shell that started one":    {[]process{{"", "", own("", 4096)}, {"", "/usr/bin/dash", nil}}, "w", nil},
		"hints of captured processes": {[]process{{"RDMA_LOW_LATENCY_HINT=4KiB", "", nil}, {"RDMA_LOW_LATENCY_HINT=8KiB", "", nil}}, "w", []string{"RDMA_LOW_LATENCY_HINT"}},
	} {
		t.Run(name, func(t *testing.T) {
			var files []txtar.File
			var pids []int
			owns := map[int]*Own{}
			for i, p := range tc.processes {
				pid := 200 + i
				dir := fmt.Sprintf("proc/%d/", pid)
				files = append(files,
					put(dir+"stat", fmt.Sprintf("%d (p) S%s 77 0\n", pid, strings.Repeat(" 0", 18))),
					put(dir+"status", "Uid:\t0\t0\t0\t0\n"), put(dir+"environ", p.env+"\x00"),
					put(dir+"maps", "7f00-7f01 r-xp 00000000 08:01 1 "+p.mapped+"\n"),
				)
				pids = append(pids, pid)
				if p.own != nil {
					owns[pid] = p.own
				}
			}
			r, err := Processes(t.Context(), machine(t, nil, nil, files...), pids, Options{Workload: tc.workload, Own: owns})
			if err != nil || len(r.Processes) != len(pids) {
				t.Fatalf("%+v, %v", r, err)
			}
			var got []string
			for _, f := range r.Findings {
				if strings.HasPrefix(f.Message, "processes disagree") {
					got = append(got, f.Variable)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s%+v", diff, r.Findings)
			}
		})
	}
}

func TestVersionOf(t *testing.T) {
	for file, want := range map[string]string{
		nccl: "2.21.5", ucp: "", "/x/libucp.so.0": "", ompi: "", nvshmem: "", "/x/libnvshmem_host.so.3.0.6": "3.0.6",
		mooncak: "", "/x/deep_ep.so": "", "/x/libnccl.so.2.1\u009b": "2.1?",
	} {
		if got := versionOf(LibraryOf(file), file); got != want {
			t.Errorf("version of %s is %q, want %q", file, got, want)
		}
	}
}
