# Control frames of a robot cell or an exchange gateway: small, all of one size, one
# after the other, and late is as bad as lost. This is what a hint is for: every
# message is at most 256 bytes, nothing else is on the NIC, and the node is tuned.

workload "control" {
  description = "motion controller, 96-byte frames every 125 us"
  device      = "mlx5_0"

  match {
    exe = "/opt/cell/bin/controller"
  }

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 2, threads_per_core = 1 })
  }

  frequency_lock {
    frequency          = "base"
    governor           = "performance"
    cstate_max_latency = "2us"
  }

  # The other CPUs as well, since the controller's sensors wake them: as long as
  # rdmatune reconcile runs, which has to hold it.
  cpu_dma_latency {
    max_latency = "20us"
  }

  irq_affinity {
    cpus = cpuset_subtract(
      cpus_near(self.device, { cores = 4, threads_per_core = 1 }),
      self.cpu_pinning.cpus,
    )
    strategy = "spread"
  }

  hint {
    size       = "256B"
    completion = "busy" # the controller has its cores to itself
  }
}
