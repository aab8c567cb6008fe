package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/audit"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// exitTrap ends an audit that found something that contradicts the spec or is a trap.
const exitTrap = 3

func newAudit(o *options) *cobra.Command {
	var f workloadFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit [WORKLOAD] [-- COMMAND ARGUMENT...]",
		Short: "Show what communication libraries really read",
		Long: `Show, for each variable by which a communication library is told of message sizes,
what environment and configuration files say, which wins by that library's own
precedence, and the number that the library would really parse from it: UCX, UCC,
NCCL, Open MPI, libfabric, NVSHMEM, Mooncake, and rdmatune's own.

Without arguments every process is audited that has one of these libraries mapped;
with WORKLOAD the processes of that workload, against the spec's hint; with a command
that command before it runs, also through env, mpirun (-x, --mca, --tune) and srun,
with this shell's environment unless --node is another machine.

Exit codes: 0 nothing found, 1 error, 3 something contradicts the spec, is read
differently by processes of one workload, or is a trap (16K read as 16).`,
		Example: `  rdmatune audit
  rdmatune audit allreduce --spec node.hcl
  rdmatune audit -- mpirun -n 2 -x UCX_RNDV_THRESH=16K --mca btl_tcp_eager_limit 64k ./train
  rdmatune audit --json -- env NCCL_BUFFSIZE=4M ./train | jq '.variables[]'
  rdmatune audit compare node1.json node2.json`,
		Args: ofWorkload(func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash > 1 || dash < 0 && len(args) > 1 {
				return errors.New("at most one WORKLOAD; a command follows --")
			}
			if cmd.ArgsLenAtDash() >= 0 && len(args) == cmd.ArgsLenAtDash() {
				return errors.New("a command must follow --")
			}
			return nil
		}),
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			var command []string
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args, command = args[:dash], args[dash:]
			}
			s, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			r, err := o.audit(cmd.Context(), s, &f, args, command)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(r)
			} else {
				err = r.WriteText(os.Stdout)
			}
			if err == nil && !r.Clean() {
				err = exitCode(exitTrap)
			}
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.AddCommand(newAuditCompare())
	return cmd
}

func (o *options) audit(ctx context.Context, s *session, f *workloadFlags, args, command []string) (*audit.Report, error) {
	var opt audit.Options
	var w *spec.Workload
	if len(args) > 0 {
		var err error
		if w, err = f.workload(ctx, o, s, args[0], os.Environ()); err != nil {
			return nil, err
		}
		opt.Workload, opt.Hint = w.Address, hintOf(w)
	}
	if command != nil {
		var environ []string
		cwd := ""
		if s.node.Kind() == node.Local { // another machine has another environment
			environ = os.Environ()
			cwd, _ = os.Getwd()
		}
		r := audit.Command(s.node, command, environ, cwd, opt)
		if s.node.Kind() != node.Local {
			r.Notes = append(r.Notes, fmt.Sprintf("this shell's environment is not looked at: node %s is %s, another machine; what the command gets there can be given, as in env NAME=VALUE COMMAND",
				s.node.Ref(), s.node.Kind()))
		}
		return r, nil
	}
	transports, err := s.transports(ctx)
	if err != nil {
		return nil, err
	}
	opt.Own = ownHints(transports)
	pids, hidden, err := s.auditable(ctx, w, opt.Own)
	if err != nil {
		return nil, err
	}
	r, err := audit.Processes(ctx, s.node, pids, opt)
	if err != nil {
		return nil, err
	}
	if hidden != "" {
		r.Notes = append(r.Notes, hidden)
	}
	return r, nil
}

// auditable returns the processes of w, or without one those that have a communication
// library mapped or rdmatune's transport.
func (s *session) auditable(ctx context.Context, w *spec.Workload, own map[int]*audit.Own) (pids []int, hidden string, err error) {
	if w != nil {
		return s.processesOf(ctx, w)
	}
	table := s.node.Procs()
	all, err := table.PIDs()
	if err != nil {
		return nil, "this node shows no processes: " + err.Error(), nil
	}
	denied := 0
	for _, pid := range all {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		if pid == s.node.Self() {
			continue
		}
		if _, ok := own[pid]; ok {
			pids = append(pids, pid)
			continue
		}
		maps, err := table.Mapped(pid)
		if errors.Is(err, os.ErrPermission) {
			denied++
		}
		for _, m := range maps {
			if audit.LibraryOf(m.Path) != nil {
				pids = append(pids, pid)
				break
			}
		}
	}
	if denied > 0 {
		hidden = "what may not be looked at by this user: the mapped files of " + param.Count(denied, "other process")
	}
	slices.Sort(pids)
	return pids, hidden, nil
}

func newAuditCompare() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare FILE.json FILE.json...",
		Short: "Compare what the processes of several nodes read",
		Long: `Compare reports of "rdmatune audit --json", as of the nodes of one job: every variable
that is not read alike by all processes is shown with who reads what.

Exit codes: 0 all alike, 1 error, 3 something differs.`,
		Example: `  ssh node1 rdmatune audit allreduce --json >node1.json
  ssh node2 rdmatune audit allreduce --json >node2.json
  rdmatune audit compare node1.json node2.json`,
		Args: arguments(2, many, "two FILE.json or more are"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var names []string
			var reports []*audit.Report
			for _, name := range args {
				b, err := readBounded(name)
				if err != nil {
					return err
				}
				r, err := audit.ReadReport(b)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				names = append(names, filepath.Base(name))
				reports = append(reports, r)
			}
			c := audit.Compare(names, reports)
			var err error
			if asJSON {
				err = writeJSON(c)
			} else {
				err = c.WriteText(os.Stdout)
			}
			if err == nil && len(c.Differences) > 0 {
				err = exitCode(exitTrap)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// readBounded reads a file that is no larger than a report may be.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, audit.MaxReport+1))
}
