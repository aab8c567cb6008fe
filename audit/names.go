package audit

import (
	"maps"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// misnomers are names that documents and scripts use, and that nothing reads.
var misnomers = map[string]string{
	"CUDA_RDMA_LOW_LATENCY_HINT":      "RDMA_LOW_LATENCY_HINT",
	"RDMA_LOW_LATENCY_SIZE_HINT":      "RDMA_LOW_LATENCY_HINT",
	"NCCL_RDMA_LOW_LATENCY_HINT":      "RDMA_LOW_LATENCY_HINT",
	"UCX_RNDV_THRESHOLD":              "UCX_RNDV_THRESH",
	"UCX_RENDEZVOUS_THRESH":           "UCX_RNDV_THRESH",
	"NCCL_LL_THRESHOLD":               "NCCL_P2P_LL_THRESHOLD",
	"NCCL_BUFFERSIZE":                 "NCCL_BUFFSIZE",
	"NCCL_BUFFER_SIZE":                "NCCL_BUFFSIZE",
	"MC_INLINE":                       "MC_MAX_INLINE",
	"NVSHMEM_SYMMETRIC_HEAP_SIZE":     "NVSHMEM_SYMMETRIC_SIZE",
	"FI_RXM_BUFFER_SIZE":              "FI_OFI_RXM_BUFFER_SIZE",
	"OMPI_MCA_btl_openib_eager_limit": "UCX_RNDV_THRESH",
	"OMPI_MCA_btl_openib_max_eager":   "UCX_RNDV_THRESH",
	"OMPI_MCA_pml_ucx_rndv_thresh":    "UCX_RNDV_THRESH",
	"OMPI_MCA_pml_ob1_eager_limit":    "OMPI_MCA_btl_tcp_eager_limit",
	"RDMATUNE_LOW_LATENCY_HINT":       "RDMA_LOW_LATENCY_HINT",
	"RDMATUNE_HINT":                   "RDMA_LOW_LATENCY_HINT",
	"NVSHMEM_RDMA_LOW_LATENCY_HINT":   "RDMA_LOW_LATENCY_HINT",
}

// names finds variables of the environment that nothing reads under that name.
func (s *subject) names() {
	keys := map[string]string{}
	for _, v := range Table {
		if v.FileKey != "" && v.FileKey != v.Name {
			keys[v.FileKey] = v.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		if VariableByName(name) != nil {
			continue
		}
		if full, ok := keys[name]; ok {
			s.find(Trap, VariableByName(full), "write "+full, "%s is a name for configuration files; in the environment it is %s", name, full)
			continue
		}
		if near := nearest(name); near != "" {
			s.find(Trap, nil, "write "+near, "%s=%s: nothing reads this name; the nearest one is %s", printable.Line(name), printable.Line(s.env[name].text), near)
		}
	}
}

// nearest returns the known name that name is probably meant to be, "" when it is not
// near any: libraries have many names that are not in the table, and are right.
func nearest(name string) string {
	if to, ok := misnomers[name]; ok {
		return to
	}
	if len(name) > 100 || VariableByName(name) != nil {
		return ""
	}
	if strings.HasSuffix(name, "LOW_LATENCY_HINT") {
		return "RDMA_LOW_LATENCY_HINT"
	}
	owned := slices.ContainsFunc(Libraries, func(l *Library) bool { return l.owns(strings.ToUpper(name)) })
	if !owned && !strings.HasPrefix(name, "RDMA_LOW") {
		return ""
	}
	best, least := "", 3
	if len(name) < 12 {
		least = 2
	}
	for _, v := range Table {
		if d := distance(strings.ToUpper(name), strings.ToUpper(v.Name), least); d < least {
			best, least = v.Name, d
		}
	}
	return best
}

// distance is the number of characters to insert, remove, replace or swap with a
// neighbour to turn a into b; limit or more is limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return min(last[len(b)], limit)
}
