package main

import (
	"os"

	"github.com/spf13/cobra"

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
		Args:              ofWorkload(arguments(0, 1, "")),
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			s, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer s.close()
			var workloads []*spec.Workload
			var due []string
			var all *spec.Resolved
			if len(args) > 0 {
				var sp *spec.Spec
				if all, sp, err = f.resolve(ctx, o, s); err != nil {
					return err
				}
				w, err := f.pick(all, args[0], os.Environ())
				if err != nil {
					return err
				}
				workloads = append(workloads, w)
				if due, err = s.notInForce(ctx, sp, w.Address); err != nil {
					return err
				}
			}
			facts, err := s.node.Facts(ctx)
			if err != nil {
				return err
			}
			r, _, err := s.examine(ctx, facts, question{spec: all, workloads: workloads, due: due})
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
