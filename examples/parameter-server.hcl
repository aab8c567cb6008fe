# A parameter server: many workers pull and push small updates, now and then a
# whole shard. What matters is the tail of the small ones. The histogram is what
# the server counted; its median, with a margin, is the hint.

variable "device" {
  type    = string
  default = "mlx5_0"
}

locals {
  # message size = messages in an hour, from the server's own counters
  updates = {
    "512B" = 81000
    "2KiB" = 400000
    "4KiB" = 390000
    "1MiB" = 900
  }
}

workload "parameter-server" {
  description = "one server process on each node"
  device      = var.device

  match {
    exe = "/opt/*/bin/ps-server"
  }

  cpu_pinning {
    cpus = cpus_near(self.device, { cores = 4, threads_per_core = 1 })
  }

  frequency_lock {
    frequency = "max"
    governor  = "performance"
  }

  irq_affinity {
    cpus = cpuset_subtract(
      cpus_near(self.device, { cores = 12, threads_per_core = 1 }),
      self.cpu_pinning.cpus,
    )
  }

  # The bootstrap and the checkpoints go over TCP on the same NIC.
  coalescing {
    adaptive_rx = false
    rx_usecs    = 4
  }

  hint {
    size       = median_hint(local.updates)
    completion = "adaptive"
    switch {
      cooldown = "30m"
    }
  }
}
