package audit

import (
	"strconv"
	"strings"
)

// ob1Header is what Open MPI's ob1 takes of an eager limit for its own header: the size
// of the union of its headers, 48 to 64 bytes by version.
const ob1Header = 64

// Table has one row for each variable that is audited. Defaults are those of the
// libraries' source; where a library decides by device, "auto".
var Table = append(ownRows(), append(ucxRows(), otherRows()...)...)

func decimal(hint int64) string { return strconv.FormatInt(hint, 10) }

func ownRows() []Variable {
	return []Variable{
		{
			Library: "rdmatune", Name: "RDMA_LOW_LATENCY_HINT", API: "transport.Options.Hint", HCL: "hint.size", Unit: "bytes", Default: "none", Scope: "process",
			Boundary: "size <= value is low latency; 0 is explicitly none", Doc: "the hint of the transport; below an order by apply and the program's own",
			read: parseHint, express: decimal,
		},
		{Library: "rdmatune", Name: "RDMATUNE_WORKLOAD", API: "transport.Options.Workload", Unit: "text", Default: "none", Scope: "process", Doc: "the workload whose published hint counts", read: parseText},
		{Library: "rdmatune", Name: "RDMATUNE_RUN_DIR", API: "transport.Options.RunDir", Unit: "text", Default: "/run/rdmatune", Scope: "process", Doc: "directory of control sockets and published hints", read: parseText},
	}
}

func ucxRows() []Variable {
	ucp := func(name, def, unit, doc string) Variable {
		return Variable{Library: "ucx", Name: "UCX_" + name, FileKey: "UCX_" + name, API: "ucp_config_modify(" + name + ")", Unit: unit, Default: def, Scope: "process", Doc: doc, read: parseUCX}
	}
	rows := []Variable{
		ucp("RNDV_THRESH", "auto", "bytes", "messages of this size and above take the rendezvous protocol"),
		ucp("RNDV_SEND_NBR_THRESH", "256k", "bytes", "as RNDV_THRESH for non-blocking receives, only with RNDV_THRESH=auto"),
		ucp("RNDV_THRESH_FALLBACK", "inf", "bytes", "rendezvous threshold where the computed one cannot be had"),
		ucp("ZCOPY_THRESH", "auto", "bytes", "from this size on messages are not copied"),
		ucp("BCOPY_THRESH", "auto", "bytes", "from this size on messages are copied"),
		ucp("SEG_SIZE", "8192", "bytes", "size of a segment in copied protocols"),
		ucp("TM_THRESH", "1024", "bytes", "hardware tag matching from this size on"),
		ucp("MIN_RNDV_CHUNK_SIZE", "16k", "bytes", "smallest piece of a striped rendezvous"),
		ucp("MAX_EAGER_RAILS", "1", "count", "devices that share an eager message"),
		ucp("MAX_RNDV_RAILS", "2", "count", "devices that share a rendezvous"),
	}
	rows[0].HCL, rows[0].read = "hint.size", parseRndv
	rows[0].Boundary = "exclusive: a threshold of T is forced from size >= T, so a hint of H is T = H + 1"
	rows[0].express = func(hint int64) string { return decimal(hint + 1) }
	// Each inherits from the one named beside it where it is not set itself.
	for _, t := range []struct{ name, from, tx, rx string }{
		{"IB", "", "256", "4096"},
		{"RC", "IB", "256", "4095"}, {"RC_VERBS", "RC", "256", "4095"}, {"RC_MLX5", "RC", "256", "4095"},
		{"DC", "RC", "128", "4095"}, {"DC_MLX5", "DC", "128", "4095"},
		{"UD", "IB", "256", "4096"}, {"UD_VERBS", "UD", "256", "4096"}, {"UD_MLX5", "UD", "256", "4096"},
	} {
		add := func(name, def, unit, doc, root string) {
			full := "UCX_" + t.name + "_" + name
			v := Variable{Library: "ucx", Name: full, FileKey: full, Unit: unit, Default: def, Scope: "process, transport " + t.name, Doc: doc, read: parseUCX}
			if t.name != root {
				v.fallback = "UCX_" + t.from + "_" + name
			}
			rows = append(rows, v)
		}
		add("TX_MIN_INLINE", "64", "bytes", "inline space to reserve at least; the device's limit bounds it", "IB")
		add("TX_QUEUE_LEN", t.tx, "count", "depth of the send queue", "IB")
		add("RX_QUEUE_LEN", t.rx, "count", "depth of the receive queue", "IB")
		if strings.HasPrefix(t.name, "RC") {
			add("TX_CQ_MODERATION", "64", "count", "work requests without a completion of their own, which is no interrupt moderation", "RC")
		}
	}
	u := rows[0]
	u.Library, u.Name, u.FileKey = "ucc", "UCC_UCX_RNDV_THRESH", "UCC_UCX_RNDV_THRESH"
	u.fallback = "UCX_RNDV_THRESH"
	u.API, u.Doc = "", "UCX_RNDV_THRESH for what UCC sends; UCX_RNDV_THRESH stands where it is not set"
	rows = append(rows, u,
		Variable{Library: "ucc", Name: "UCC_TL_UCP_TUNE", FileKey: "UCC_TL_UCP_TUNE", Unit: "text", Default: "built in", Scope: "process", Doc: "algorithms by message size, which choose no path in UCX", read: parseText},
		Variable{Library: "ucc", Name: "UCC_CONFIG_FILE", Unit: "text", Default: "auto", Scope: "process", Doc: "the configuration file; empty reads none", read: parseText})
	return rows
}

func otherRows() []Variable {
	row := func(library, name, unit, def, doc string, read parser) Variable {
		v := Variable{Library: library, Name: name, Unit: unit, Default: def, Scope: "process", Doc: doc, read: read}
		if library != "mooncake" {
			v.FileKey = name
		}
		return v
	}
	with := func(v Variable, boundary string, express func(int64) string) Variable {
		v.HCL, v.Boundary, v.express = "hint.size", boundary, express
		return v
	}
	mca := func(name, def, doc string) Variable {
		return Variable{Library: "ompi", Name: "OMPI_MCA_" + name, FileKey: name, API: "MPI_T cvar " + name, Unit: "bytes", Default: def, Scope: "process", Doc: doc, read: parseMCA}
	}
	eager := func(v Variable) Variable {
		return with(v, "inclusive, and the value includes a header of 48 to 64 bytes: size <= value - header is eager", func(h int64) string { return decimal(h + ob1Header) })
	}
	perChannel := Variable{
		Library: "nccl", Name: "NCCL_P2P_LL_THRESHOLD", FileKey: "NCCL_P2P_LL_THRESHOLD", Unit: "bytes", Default: "16384", Scope: "channel",
		Doc: "point-to-point messages that use the low-latency protocol; a hint is divided by the channels", read: parseC,
	}
	return []Variable{
		with(perChannel, "inclusive and per channel: bytes <= channels x value is low latency", decimal),
		row("nccl", "NCCL_PROTO", "text", "by cost model", "protocols of collectives, for all sizes", parseText),
		row("nccl", "NCCL_THREAD_THRESHOLDS", "text", "8 8 64", "sizes from which more threads work", parseText),
		row("nccl", "NCCL_BUFFSIZE", "bytes", "4194304", "buffer of a channel with the Simple protocol", parseC),
		row("nccl", "NCCL_LL_BUFFSIZE", "bytes", "524288", "buffer of a channel with LL", parseC),
		row("nccl", "NCCL_LL128_BUFFSIZE", "bytes", "4915200", "buffer of a channel with LL128", parseC),
		row("nccl", "NCCL_P2P_NET_CHUNKSIZE", "bytes", "131072", "piece of a point-to-point message", parseC),
		row("nccl", "NCCL_IB_QPS_PER_CONNECTION", "count", "1", "queue pairs of a connection", parseC),
		row("nccl", "NCCL_IB_SPLIT_DATA_ON_QPS", "switch", "0", "spread each message over them", parseC),
		row("nccl", "NCCL_IB_USE_INLINE", "switch", "0", "inline the small clear-to-send write, never payload", parseC),
		row("nccl", "NCCL_IB_TIMEOUT", "count", "20", "queue pair timeout", parseC),
		row("nccl", "NCCL_IB_RETRY_CNT", "count", "7", "queue pair retries", parseC),
		row("nccl", "NCCL_IGNORE_CPU_AFFINITY", "switch", "0", "pin by the GPU's NUMA node whatever the process's own affinity is", parseC),
		row("nccl", "NCCL_NET_GDR_LEVEL", "text", "by topology", "farthest distance for GPUDirect RDMA", parseText),

		eager(mca("btl_tcp_eager_limit", "65536", "eager limit over TCP")),
		eager(mca("btl_sm_eager_limit", "4096", "eager limit in shared memory")),
		eager(mca("btl_vader_eager_limit", "4096", "eager limit in shared memory, before version 5")),
		mca("btl_self_eager_limit", "1024", "eager limit to itself"),

		with(row("libfabric", "FI_OFI_RXM_BUFFER_SIZE", "bytes", "16384", "buffer of an eager message", parseSaturating), "inclusive: size <= value is eager", decimal),
		row("libfabric", "FI_OFI_RXM_SAR_LIMIT", "bytes", "131072", "largest message sent in segments", parseSaturating),
		row("libfabric", "FI_VERBS_INLINE_SIZE", "bytes", "256", "inline space; 0 is the device's most", parseSaturating),
		row("libfabric", "FI_VERBS_TX_SIZE", "count", "384", "depth of the send queue", parseSaturating),
		row("libfabric", "FI_VERBS_RX_SIZE", "count", "384", "depth of the receive queue", parseSaturating),
		row("libfabric", "FI_EFA_INTER_MAX_MEDIUM_MESSAGE_SIZE", "bytes", "65536", "largest message in segments on EFA", parseSaturating),
		row("libfabric", "FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "bytes", "1048576", "smallest message by RDMA read on EFA", parseSaturating),
		row("libfabric", "FI_PREFER_SYSCONFIG", "text", "0", "the system file wins over the environment", parseText),

		row("nvshmem", "NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH", "count", "32", "requests of a doorbell; 1 sends each at once", parseLong),
		row("nvshmem", "NVSHMEM_QP_DEPTH", "count", "1024", "depth of a queue pair", parseLong),
		row("nvshmem", "NVSHMEM_IBGDA_NUM_RC_PER_PE", "count", "2", "queue pairs to each peer", parseLong),
		row("nvshmem", "NVSHMEM_IB_ENABLE_IBGDA", "switch", "0", "the GPU posts its own requests", parseFlag),
		row("nvshmem", "NVSHMEM_SYMMETRIC_SIZE", "bytes", "1073741824", "symmetric heap", parseScaled),

		row("mooncake", "MC_MAX_INLINE", "bytes", "64", "inline space of a queue pair", within(parseAtoi, 0, 65535)),
		row("mooncake", "MC_SLICE_SIZE", "bytes", "65536", "piece of a message", within(parseAtoi, 1, 1<<31-1)),
		row("mooncake", "MC_MAX_WR", "count", "256", "depth of a queue pair", within(parseAtoi, 1, 65535)),
		row("mooncake", "MC_MAX_SGE", "count", "4", "segments of a work request", within(parseAtoi, 1, 65535)),
		row("mooncake", "MC_NUM_QP_PER_EP", "count", "2", "queue pairs of an endpoint", within(parseAtoi, 1, 255)),
		row("mooncake", "MC_MAX_CQE_PER_CTX", "count", "4096", "depth of a completion queue", within(parseAtoi, 1, 65535)),
		row("mooncake", "MC_WORKERS_PER_CTX", "count", "2", "polling threads of a device", within(parseAtoi, 1, 8)),
		row("mooncake", "MC_MTU", "bytes", "4096", "path MTU", parseMTU),
	}
}

// parseMTU takes the path MTUs that Mooncake knows.
func parseMTU(text string, sizes bool) Parsed {
	p := parseAtoi(text, sizes)
	switch p.String() {
	case "512", "1024", "2048", "4096":
		return p
	}
	return Parsed{Rejected: "read as " + p.String() + ", which is none of 512, 1024, 2048, 4096: the default stays", Trap: p.Trap, KeepsDefault: true}
}
