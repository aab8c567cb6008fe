# What package.sh has the daemon keep. There are no processes in this workload: what is
# tuned is the card of rxe1 and the CPUs 0 and 2.
workload "node" {
  device = "rxe1"

  cpu_pinning {
    cpus = "0,2"
  }

  frequency_lock {
    frequency = "2200MHz"
    governor  = "performance"

    cstate_max_latency = "2us"
  }

  cpu_dma_latency {
    max_latency = "10us"
  }

  irq_affinity {
    cpus     = "3"
    strategy = "single"
  }

  coalescing {
    rx_usecs = 0
  }
}
