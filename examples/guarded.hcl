# A hint that has to prove itself: after every apply that changes something, round trips
# are measured against rdmatune bench serve on another node, and an apply that makes the
# slowest of them too slow is undone. As a daemon, rdmatune reconcile keeps the rest so.

reconcile {
  sweep            = "1m"
  contested_after  = 3
  contested_window = "5m"
  on_stop          = "restore"
}

workload "rpc" {
  device = "mlx5_0"

  match {
    comm = "rpc-server"
  }

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 4 })
  }

  frequency_lock {
    frequency = "2600MHz"
  }

  irq_affinity {
    cpus = cpuset_subtract(node.rdma[self.device].local_cpus, self.cpu_pinning.cpus)
  }

  hint {
    size = "4KiB"
  }

  guard "tail" {
    size      = "8B"
    p99_max   = "20us"
    peer      = "10.9.0.1:7471"
    on_breach = "rollback"
  }

  guard "bandwidth" {
    kind          = "stream"
    size          = "1MiB"
    bandwidth_min = "80Gbit/s"
    peer          = "10.9.0.1:7471"
    on_breach     = "warn"
  }
}
