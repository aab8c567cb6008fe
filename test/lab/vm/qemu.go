package vm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// commandLine is the kernel's. Without tsc=reliable the guest falls back to a clock
// ten times slower to read; without mitigations=off page-table isolation, which no
// emulated CPU needs, triples the cost of each system call; without no_timer_check it
// panics where a loaded host lets its timer tick too late.
const commandLine = "console=ttyS0 panic=-1 quiet tsc=reliable mitigations=off no_timer_check " + proto.Mark

// boot runs QEMU until the guest powers off. It is killed when the script has not
// started within bootLimit, after limit, when ctx ends, or with this process.
func (m machine) boot(ctx context.Context, c *console, bootLimit, limit time.Duration) error {
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	whole := time.AfterFunc(limit, func() { cancel(fmt.Errorf("not done after %v", limit)) })
	defer whole.Stop()
	start := time.AfterFunc(bootLimit, func() { cancel(fmt.Errorf("%w after %v", errNotUp, bootLimit)) })
	defer start.Stop()
	up := false
	c.onReady = func() { up = true; start.Stop() }

	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.args()...)
	cmd.Stdout, cmd.Stderr = c, c
	cmd.WaitDelay = 5 * time.Second // should anything else hold the console's pipe
	// The kernel sends the signal when the thread that started QEMU ends, so that
	// thread stays ours until QEMU is done.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	switch {
	case parent.Err() != nil:
		return fmt.Errorf("machine stopped: %w", context.Cause(parent))
	case ctx.Err() != nil:
		return fmt.Errorf("machine killed: %w", context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("qemu: %w", err)
	case err != nil:
		return fmt.Errorf("qemu ended early: %w", err)
	case !up:
		return fmt.Errorf("%w: it went off before its script began", errNotUp)
	}
	return nil
}

// args describes the machine: q35 with two NUMA nodes of two CPUs, a card on each
// joined by a hub, the results directory by 9p, and the ports that report to files.
//
// The CPU model is an Intel one, because acpi-cpufreq leaves AMD families to other
// drivers. The root bridge that QEMU is given last is probed first: node 0 comes last,
// so that its card becomes eth0.
func (m machine) args() []string {
	chipset, kernelArgs := []string{"-machine", "q35"}, commandLine
	if m.remapping {
		chipset = []string{"-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on"}
		kernelArgs += " intel_iommu=on"
	}
	args := append(chipset,
		"-accel", "tcg,thread=multi", "-cpu", "Nehalem-v1",
		"-smp", strconv.Itoa(proto.CPUs)+",sockets=2,cores=2", "-m", "1024",
		"-object", "memory-backend-ram,id=m0,size=512M", "-numa", "node,nodeid=0,cpus=0-1,memdev=m0",
		"-object", "memory-backend-ram,id=m1,size=512M", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", m.kernel.Image, "-initrd", m.initramfs, "-append", kernelArgs,
		"-acpitable", "file="+quote(m.ssdt),
		"-fsdev", "local,id=out,security_model=none,path="+quote(m.out),
		"-device", "virtio-9p-pci,fsdev=out,bus=pcie.0,mount_tag="+proto.ShareTag,
	)
	for _, node := range []int{1, 0} {
		n := strconv.Itoa(node)
		args = append(args,
			"-device", fmt.Sprintf("pxb-pcie,id=bridge%s,bus=pcie.0,numa_node=%s,bus_nr=%d", n, n, 64*(node+1)),
			"-device", fmt.Sprintf("pcie-root-port,id=port%s,bus=bridge%s,chassis=%d,slot=%d", n, n, node+1, node+1),
			"-netdev", fmt.Sprintf("hubport,id=wire%s,hubid=0", n),
			"-device", fmt.Sprintf("e1000e,netdev=wire%s,bus=port%s,romfile=,mac=%s", n, n, proto.MACs[node]),
		)
	}
	port := func(id string, number int, file string) {
		args = append(args,
			"-chardev", "file,id="+id+",path="+quote(file),
			"-device", fmt.Sprintf("isa-debugcon,iobase=%#x,chardev=%s", number, id))
	}
	port("exit", proto.ExitPort, m.exitFile)
	for cpu := range proto.CPUs {
		port("pstate"+strconv.Itoa(cpu), proto.PStatePort+cpu, m.pstateFile(cpu))
	}
	return args
}
