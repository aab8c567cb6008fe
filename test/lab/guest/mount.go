package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// mountAll mounts the kernel's file systems where a node has them.
func mountAll() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"devpts", "/dev/pts"},
		{"tmpfs", "/dev/shm"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
		{"cgroup2", "/sys/fs/cgroup"},
		{"debugfs", "/sys/kernel/debug"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("%s: %w", m.dir, err)
		}
	}
	return nil
}

// mountShare mounts the host's results directory. It needs the 9p modules.
func mountShare() error {
	if err := os.MkdirAll(proto.Share, 0o755); err != nil {
		return err
	}
	const options = "trans=virtio,version=9p2000.L,msize=262144"
	return unix.Mount(proto.ShareTag, proto.Share, "9p", 0, options)
}
