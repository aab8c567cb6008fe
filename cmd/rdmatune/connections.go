package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/audit/live"
)

func newConnections(o *options) *cobra.Command {
	var asJSON, watch bool
	var interval time.Duration
	var count int
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "Show every connection on the RDMA devices",
		Long: `Show, per process and RDMA device, every queue pair: of rdmatune's own transport with
its lanes, granted capabilities, and the hint in force with its origin; of others
what the kernel tells. Beside them each process's threads with their CPUs, its
memory, and how threads, completion queues and the device's interrupts lie to each
other. What no interface tells is "(not observable)".

DEPTH is the work requests that the device grants for sending and for receiving: those
of the lane's messages (16 at low latency, else 256), 24 of the transport's own, and
what the device adds by rounding up.`,
		Example: `  rdmatune connections
  rdmatune connections --json | jq '.processes[] | {pid, comm}'
  rdmatune connections --watch --interval 1s`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case interval <= 0:
				return errors.New("--interval must be above 0")
			case count < 0:
				return errors.New("--count must not be below 0")
			}
			s, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			for n := 1; ; n++ {
				v, err := s.look(cmd.Context())
				if err != nil {
					return err
				}
				if err := writeView(v, asJSON, watch, n > 1); err != nil {
					return err
				}
				if !watch || count > 0 && n >= count {
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-time.After(interval):
				}
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document; with --watch one on each line")
	cmd.Flags().BoolVar(&watch, "watch", false, "look again and again")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "with --watch, the `time` between two looks")
	cmd.Flags().IntVar(&count, "count", 0, "with --watch, end after so many looks; 0 is never")
	return cmd
}

// look looks at the session's node now.
func (s *session) look(ctx context.Context) (*live.View, error) {
	transports, err := s.transports(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := s.node.Facts(ctx)
	if err != nil {
		return nil, err
	}
	return live.Look(ctx, s.node, live.Options{Facts: facts, Transports: transports, Placement: true})
}

func writeView(v *live.View, asJSON, watch, again bool) error {
	if asJSON && watch {
		return json.NewEncoder(os.Stdout).Encode(v)
	}
	if asJSON {
		return writeJSON(v)
	}
	if watch {
		if again {
			printf(os.Stdout, "\n")
		}
		printf(os.Stdout, "== %s\n", time.Now().Format(time.DateTime))
	}
	return v.WriteText(os.Stdout)
}
