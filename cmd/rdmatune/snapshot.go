package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/param"
)

func newSnapshot(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot FILE.tar.gz",
		Short: "Capture the node, to plan against it elsewhere",
		Long: `Write what rdmatune reads of this node to an archive that --node takes: the files
of /sys and /proc from which the facts follow, the settings that it could manage,
the coalescing of network devices, and the queue pairs and other resources on the
RDMA devices with the ids of the threads that made them. No process's files are
among them.`,
		Example: `  rdmatune snapshot node.tar.gz
  rdmatune plan --node node.tar.gz node.hcl`,
		Args: arguments(1, 1, "one FILE.tar.gz is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasSuffix(args[0], ".tar.gz") {
				return fmt.Errorf("%s: the name must end in .tar.gz", args[0])
			}
			if err := replaceable(args[0]); err != nil {
				return err
			}
			ctx := cmd.Context()
			s, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer s.close()
			snap := s.node.StartSnapshot()
			facts, err := s.node.Facts(ctx)
			if err != nil {
				return err
			}
			if _, err := s.node.BootID(); err != nil {
				return err
			}
			s.wire() // the drivers read through the recorder from here on
			scopes := map[param.Kind][]string{param.Frequency: {"turbo"}}
			for _, p := range facts.Cpufreq {
				scopes[param.Frequency] = append(scopes[param.Frequency], p.Policy)
			}
			for cpu := range facts.CPUs.Cores {
				scopes[param.Frequency] = append(scopes[param.Frequency], "cpu"+cpu)
			}
			for _, r := range facts.RDMA {
				for _, v := range r.IRQs {
					scopes[param.IRQ] = append(scopes[param.IRQ], v.Key)
				}
			}
			for _, n := range facts.Netdevs {
				scopes[param.Coalescing] = append(scopes[param.Coalescing], n.Name)
			}
			for kind, targets := range scopes {
				// What cannot be read here cannot be read of the capture either.
				if o := s.drivers.Observe(ctx, kind, param.Scope{Targets: targets}); o.Err != nil {
					printf(os.Stderr, "Notice: %s: %v\n", kind, o.Err)
				}
			}
			for _, n := range facts.Netdevs {
				if err := snap.Coalescing(n.Name); err != nil {
					printf(os.Stderr, "Notice: coalescing: %v\n", err)
				}
			}
			if err := snap.Resources(ctx); err != nil {
				printf(os.Stderr, "Notice: RDMA resources: %v\n", err)
			}
			var b bytes.Buffer
			if err := snap.Write(&b); err != nil {
				return err
			}
			if err := renameio.WriteFile(args[0], b.Bytes(), 0o644); err != nil {
				var errno syscall.Errno
				if errors.As(err, &errno) {
					err = errno
				}
				return fmt.Errorf("write %s: %w", args[0], err)
			}
			printf(os.Stdout, "Captured this node in %s (%d KiB). Use it with: rdmatune plan --node %s\n", args[0], b.Len()/1024, args[0])
			return nil
		},
	}
}
