# Data-parallel training over NCCL: 64 ranks, one process for each GPU and NIC,
# gradients reduced in a ring. The node is tuned for every rank, and programs on
# rdmatune's transport learn how large one message of the ring is. NCCL itself has
# no setting that means the same: it gains from the tuned node alone.

rdmatune {
  required_version = ">= 0.1.0"
}

variable "ranks" {
  type    = number
  default = 64
}

variable "gradient_bytes" {
  type        = number
  default     = 67108864
  description = "Bytes of one gradient bucket."
}

locals {
  nics = { for rank in range(8) : tostring(rank) => "mlx5_${rank}" }
}

workload "allreduce" {
  description = "gradient all-reduce, one process per GPU and NIC"
  for_each    = local.nics
  device      = each.value

  match {
    comm = "python3"
    env  = { LOCAL_RANK = each.key }
  }

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 8, threads_per_core = 1 })
  }

  frequency_lock {
    frequency = "2600MHz"
    governor  = "performance"
  }

  # Interrupts stay on the NIC's own NUMA node, and off the cores of every rank on it.
  irq_affinity {
    cpus     = cpuset_subtract(node.rdma[self.device].local_cpus, local.pinned)
    strategy = "spread"
  }

  hint {
    size = gradient_hint(var.gradient_bytes, var.ranks)
    switch {
      drain_timeout = "2s"
      cooldown      = "10m"
    }
  }
}

locals {
  pinned = cpuset_union([for nic in values(local.nics) : cpus_near(nic, { cores = 8, threads_per_core = 2 })]...)
}
