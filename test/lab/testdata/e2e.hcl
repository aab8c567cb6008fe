# What e2e.sh applies while the benchmark runs. Both of its processes are of this
# workload and get one CPU of each NUMA node; the interrupts of rxe1's card go to CPU 3.
workload "bench" {
  device = "rxe1"

  cpu_pinning {
    cpus = "0,2"
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

  hint {
    size = "16KiB"
    switch {
      drain_timeout = "60s"
      cooldown      = "0s"
    }
  }
}
