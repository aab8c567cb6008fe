# A shuffle service that moves anything from 100-byte acknowledgements to 64 MiB
# blocks on one connection. No size is typical: a hint would give up bandwidth for
# blocks or put them through a shallow queue. 0 says so explicitly, also to a program
# that would otherwise guess; the node is tuned all the same.

workload "shuffle" {
  description = "sizes span six orders of magnitude"
  device      = "mlx5_4"

  match {
    comm = "shuffled"
    user = "shuffle"
  }

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 6, threads_per_core = 2 })
  }

  frequency_lock {
    frequency = "base"
  }

  irq_affinity {
    cpus = cpuset_subtract(node.rdma[self.device].local_cpus, self.cpu_pinning.cpus)
  }

  hint {
    size = 0
  }
}
