# What e2e.sh applies while the benchmark runs. The benchmark's client is on rxe1, so
# on eth1 and NUMA node 1: the process gets CPU 2, the card's interrupts CPU 3.
workload "bench" {
  device = "rxe1"

  cpu_pinning {
    cpus = "2"
  }

  frequency_lock {
    frequency = "2200MHz"
    governor  = "performance"
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
