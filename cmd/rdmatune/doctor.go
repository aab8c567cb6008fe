package main

import (
	"context"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/doctor"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/internal/gpu"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/spec"
)

func newDoctor(o *options) *cobra.Command {
	var f workloadFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [WORKLOAD]",
		Short: "Say what this node can and cannot do",
		Long: `Examine the node: RDMA devices, ports, links and addresses, the verbs library, what
the devices grant, GPUDirect RDMA for each pair of GPU and NIC, virtualisation, who
else uses the NICs, and the base tuning. Each finding has its evidence, why it
matters and what to do; what cannot be read is unknown, never fine.

With WORKLOAD it says whether a hint serves that workload: an answer with evidence, or
"unanswered", to each criterion. Nothing is changed.

Exit codes: 0 examined, whatever was found; 1 error.`,
		Example: `  rdmatune doctor
  rdmatune doctor --json | jq '.findings[] | select(.level == "problem")'
  rdmatune doctor allreduce --spec node.hcl`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			s, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer s.close()
			var w *spec.Workload
			if len(args) > 0 {
				if w, err = f.workload(ctx, o, s, args[0], os.Environ()); err != nil {
					return err
				}
			}
			r, err := s.examine(ctx, w, true)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(r)
			}
			return r.WriteText(os.Stdout)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// examine examines the session's node, for a workload when w is not nil. With open it
// tries out the local devices and asks the GPU driver, too.
func (s *session) examine(ctx context.Context, w *spec.Workload, open bool) (*doctor.Report, error) {
	in := doctor.Input{Node: s.node}
	var err error
	if in.Facts, err = s.node.Facts(ctx); err != nil {
		return nil, err
	}
	if s.node.Kind() == node.Local && open {
		in.Verbs = ibverbs.Provider{}
		if len(in.Facts.GPUs) > 0 {
			in.GPUs, in.GPUErr = gpu.Devices()
		}
	}
	var pids []int
	if w != nil {
		if pids, _, err = s.processesOf(ctx, w); err != nil {
			return nil, err
		}
	}
	if in.View, err = s.look(ctx, pids); err != nil {
		return nil, err
	}
	if w != nil {
		in.Workload = &doctor.Workload{Address: w.Address, Device: w.Device, Hint: hintOf(w), PIDs: pids}
		for _, want := range w.Wants {
			if want.Unavailable == "" {
				in.Workload.Tuned = append(in.Workload.Tuned, string(want.Kind))
			}
		}
		transports, err := control.List(ctx, s.node.RunDir())
		if err != nil {
			return nil, err
		}
		for _, t := range transports {
			if slices.Contains(pids, t.PID) {
				in.Workload.Transports = append(in.Workload.Transports, t)
			}
		}
	}
	return doctor.Examine(ctx, in)
}
