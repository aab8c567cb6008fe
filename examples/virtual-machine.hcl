# The same control frames in a virtual machine with a passed-through NIC. The spec is
# accepted, and the plan says what may be hollow about it: the host has the clocks, and
# a hypervisor or firmware may take a hint and not act on it. Measure before and after,
# and leave the hint out when nothing changes.

workload "control" {
  device = "mlx5_0"

  match {
    exe = "/opt/cell/bin/controller"
  }

  cpu_pinning {
    cpus = "2-3"
  }

  frequency_lock {
    frequency = "max"
  }

  irq_affinity {
    cpus = "0-1"
  }

  hint {
    size = "256B"
  }
}
