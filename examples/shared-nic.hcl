# A NIC with virtual functions, and a storage daemon's queue pairs on it. A hint above
# 0 earns warnings here: its queues, its link and its caches are not this workload's
# alone. Give the workload a NIC of its own, or set the hint to 0.

workload "rpc" {
  device = "mlx5_0"

  match {
    comm = "rpc-server"
  }

  cpu_pinning {
    cpus = "2-3"
  }

  frequency_lock {
    frequency = "2600MHz"
  }

  irq_affinity {
    cpus = "0-1"
  }

  hint {
    size = "4KiB"
  }
}
