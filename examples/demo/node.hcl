# The processes of workload "bench" get two cores near their NIC, at one frequency;
# the NIC's interrupts stay off them; and the transport learns that messages are
# mostly up to 4 KiB.
workload "bench" {
  device = "mlx5_0"

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 2 })
  }

  frequency_lock {
    frequency = "2600MHz"
    governor  = "performance"
  }

  irq_affinity {
    cpus = cpuset_subtract(node.rdma[self.device].local_cpus, self.cpu_pinning.cpus)
  }

  hint {
    size = "4KiB"
  }
}
