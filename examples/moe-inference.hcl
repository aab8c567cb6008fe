# Mixture-of-experts inference with DeepEP in its low-latency mode: each token's
# hidden state goes to the ranks of its experts and back, thousands of small
# messages for every layer. DeepEP has its own transport: what helps it here is the
# tuned node. The programs around it, on rdmatune's transport, get a hint that
# covers one dispatched token.

variable "hidden" {
  type    = number
  default = 7168
}

variable "tokens_per_rank" {
  type    = number
  default = 128
}

variable "experts" {
  type    = number
  default = 256
}

locals {
  # One dispatched token in BF16: 2 bytes a value, and 16 bytes that go before it.
  token_bytes = 16 + 2 * var.hidden

  # What DeepEP reserves for its buffers, for the description only.
  buffer_gib = deepep_low_latency_rdma_bytes(var.tokens_per_rank, var.hidden, 16, var.experts) / 1073741824
}

workload "moe" {
  description = format("expert dispatch and combine; DeepEP reserves %.1f GiB a rank", local.buffer_gib)
  for_each    = { for gpu in range(8) : tostring(gpu) => "mlx5_${gpu}" }
  device      = each.value

  match {
    cmdline = "*-m vllm.entrypoints*"
    env     = { LOCAL_RANK = each.key }
  }

  cpu_pinning {
    cpus    = cpus_near(self.device, { cores = 12, threads_per_core = 1 })
    threads = "unpinned" # the worker threads that the engine pinned stay where they are
  }

  frequency_lock {
    frequency = "max"
    governor  = "performance"
  }

  irq_affinity {
    cpus     = local.interrupts[each.key]
    strategy = "spread"
  }

  hint {
    size       = local.token_bytes
    completion = "busy"
  }
}

locals {
  # The last two cores of each NIC's share take its interrupts.
  interrupts = {
    for gpu in range(8) : tostring(gpu) => cpuset_subtract(
      cpus_near("mlx5_${gpu}", { cores = 14, threads_per_core = 1 }),
      cpus_near("mlx5_${gpu}", { cores = 12, threads_per_core = 1 }),
    )
  }
}
