package main

import (
	"errors"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
)

func (f *specFlags) register(cmd *cobra.Command) {
	cmd.Flags().Var(varFlag{&f.vars, false}, "var", "give a variable its `name=value`; may be repeated")
	cmd.Flags().Var(varFlag{&f.vars, true}, "var-file", "take variables from a `file` of assignments; may be repeated")
}

func newPlan(o *options) *cobra.Command {
	var f specFlags
	var asJSON, detailed, destroy, force bool
	var out string
	cmd := &cobra.Command{
		Use:   "plan " + specArg,
		Short: "Show what apply would change",
		Long: `Show what differs between a spec and this node, its processes and their live
connections. Nothing is changed, and no privilege is needed where the kernel's
files are readable. Without an argument the directory's *.hcl files are the spec.
Targets that change alike share a row, and so do many interrupts that are spread
over CPUs: --json has each. Numbers behind a # are the line and column in the spec.

Exit codes: 0 success, 1 error. With --detailed-exitcode: 0 no changes,
1 error, 2 changes, 3 only drift (what an earlier apply set and somebody changed).`,
		Example: `  rdmatune plan
  rdmatune plan node.hcl --var gradient_bytes=134217728
  rdmatune plan --node sim:dgx examples/allreduce.hcl
  rdmatune plan --json --detailed-exitcode node.hcl
  rdmatune plan --out node.plan node.hcl && rdmatune apply node.plan`,
		Args:              arguments(0, 1, ""),
		ValidArgsFunction: specFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := drivers.Look(cmd.Context())
			switch {
			case destroy && len(args) > 0:
				return errors.New("--destroy restores everything: it takes no spec")
			case force && !destroy:
				return errors.New("--force is for --destroy")
			case cmd.Flags().Changed("out"):
				if err := checkOut(out); err != nil {
					return err
				}
			}
			var sp *spec.Spec
			if !destroy {
				var diags hcl.Diagnostics
				var err error
				if sp, diags, err = o.load(args, f, asJSON); err != nil {
					if asJSON && diags.HasErrors() {
						return o.jsonError(diags)
					}
					return err
				}
			}
			s, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer s.close()
			p, err := s.makePlan(ctx, sp, force)
			if err != nil {
				return err
			}
			if err := o.show(p, asJSON); err != nil {
				return err
			}
			if out != "" {
				if err := o.savePlan(out, s, p, f, force); err != nil {
					return err
				}
			}
			switch {
			case len(p.plan.Unreadable) > 0:
				return exitCode(exitError)
			case detailed && p.plan.OnlyDrift():
				return exitCode(exitDrift)
			case detailed && !p.plan.Empty():
				return exitCode(exitChanges)
			}
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the plan as one JSON document")
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "exit with 2 for changes, 3 for drift only")
	cmd.Flags().StringVar(&out, "out", "", "save the plan to a `file` that apply can be given")
	cmd.Flags().BoolVar(&destroy, "destroy", false, "plan the restoring of every original instead")
	cmd.Flags().BoolVar(&force, "force", false, "with --destroy, restore also what somebody else has changed since")
	return cmd
}

// show prints a plan with the diagnostics around it; with errors it ends the command.
func (o *options) show(p *planning, asJSON bool) error {
	if p.plan == nil { // the spec does not fit the node
		if asJSON {
			return o.jsonError(p.diags)
		}
		if err := o.writeDiagnostics(os.Stderr, p.files(), p.diags); err != nil {
			return err
		}
		return exitCode(exitError)
	}
	if asJSON {
		if err := p.plan.WriteJSON(os.Stdout, p.diags); err != nil {
			return err
		}
	} else {
		all := append(append(hcl.Diagnostics{}, p.diags...), p.plan.Diags...)
		if err := o.writeDiagnostics(os.Stderr, p.files(), all); err != nil {
			return err
		}
		if err := p.plan.WriteText(os.Stdout, plan.Style{Color: o.colorOn(os.Stdout)}); err != nil {
			return err
		}
	}
	if p.plan.Errored() {
		return exitCode(exitError)
	}
	return nil
}

// jsonError prints diagnostics as the JSON of a plan without changes.
func (o *options) jsonError(diags hcl.Diagnostics) error {
	if err := (&plan.Plan{}).WriteJSON(os.Stdout, diags); err != nil {
		return err
	}
	return exitCode(exitError)
}

func newValidate(o *options) *cobra.Command {
	var f specFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate " + specArg,
		Short: "Check a spec without looking at a node",
		Long: `Check everything about a spec that can be wrong on any node: syntax, names,
types, units, cycles. The node is not looked at; plan does that.`,
		Example:           "  rdmatune validate node.hcl",
		Args:              arguments(0, 1, ""),
		ValidArgsFunction: specFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			sp, diags, err := o.load(args, f, asJSON)
			if asJSON && sp != nil {
				doc := map[string]any{"format_version": plan.FormatVersion, "valid": err == nil, "diagnostics": plan.Diagnostics(diags)}
				return errors.Join(writeJSON(doc), err)
			}
			if err != nil {
				return err
			}
			if err := o.writeDiagnostics(os.Stderr, sp.Files, diags); err != nil {
				return err
			}
			printf(os.Stdout, "The spec is valid.\n")
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
