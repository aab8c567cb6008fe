# What reconcile.sh keeps while everything else on the machine works against it.
reconcile {
  sweep            = "2s"
  contested_after  = 4
  contested_window = "2m"
}

workload "trainer" {
  device = "rxe1"

  match {
    comm = "trainer"
  }

  cpu_pinning {
    cpus = "2"
  }

  cpu_dma_latency {
    max_latency = "3us"
  }

  frequency_lock {
    frequency = "2200MHz"
    governor  = "performance"

    cstate_max_latency = "2us"
  }

  irq_affinity {
    cpus     = "3"
    strategy = "single"
  }

  coalescing {
    rx_usecs = 0
  }
}

workload "named" {
  cpu_pinning {
    cpus = "2"
  }
}

workload "bench" {
  device = "rxe0"

  hint {
    size = "8KiB"
    switch {
      drain_timeout = "60s"
      cooldown      = "0s"
    }
  }
}
