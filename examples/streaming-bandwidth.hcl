# Video or checkpoint streaming: megabytes in each message, and a heartbeat now and
# then. Bandwidth is what matters and small messages are rare, so the hint is 0,
# explicitly none: it also takes a hint away that the program's environment gives.
# Heartbeats get their inline tier without a hint.

workload "stream" {
  description = "frames of 8 MiB, a heartbeat of 64 bytes each second"
  device      = "mlx5_0"

  match {
    comm = "streamd"
  }

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 4, threads_per_core = 1 })
  }

  irq_affinity {
    cpus = cpuset_subtract(
      cpus_near(self.device, { cores = 8, threads_per_core = 1 }),
      self.cpu_pinning.cpus,
    )
  }

  # The control connection is TCP on the same NIC; its interrupts may wait.
  coalescing {
    adaptive_rx = true
  }

  hint {
    size = 0
  }
}
