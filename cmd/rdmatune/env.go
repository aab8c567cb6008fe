package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/audit"
)

// envFlags are what env and exec have in common.
type envFlags struct {
	workloadFlags
	libraries []string
	channels  int
}

func (f *envFlags) register(cmd *cobra.Command) {
	f.workloadFlags.register(cmd)
	var ids []string
	for _, l := range audit.Libraries {
		ids = append(ids, l.ID)
	}
	cmd.Flags().StringSliceVar(&f.libraries, "library", ids, "the `libraries` to express the hint for")
	cmd.Flags().IntVar(&f.channels, "channels", 0, "`channels` of NCCL's point-to-point messages, whose threshold is for each")
	if err := cmd.RegisterFlagCompletionFunc("library", cobra.FixedCompletions(ids, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag above is not there
	}
}

func (f *envFlags) check() error {
	for _, id := range f.libraries {
		if audit.LibraryByID(id) == nil {
			return fmt.Errorf("--library %.40q: there is no such library", id)
		}
	}
	if f.channels < 0 || f.channels > 1024 {
		return errors.New("--channels must be between 0 and 1024")
	}
	return nil
}

var envFormats = []string{"sh", "slurm", "dotenv", "json", "mpirun"}

func newEnv(o *options) *cobra.Command {
	var f envFlags
	var format string
	var list, asJSON bool
	cmd := &cobra.Command{
		Use:   "env WORKLOAD",
		Short: "Print what expresses a workload's hint for each library",
		Long: `Print the variables that express a workload's hint for each communication library,
each with its boundary rule: UCX's threshold is exclusive, NCCL's is per channel,
Open MPI's includes a header. A library that has no such variable is said to be not
expressible. They count for the next start of a program; what runs is switched live
only on rdmatune's own transport.`,
		Example: `  rdmatune env allreduce --spec node.hcl
  eval "$(rdmatune env allreduce --library ucx)"
  sbatch $(rdmatune env allreduce --format slurm) job.sh
  mpirun $(rdmatune env allreduce --format mpirun) -n 2 ./train
  rdmatune env --list`,
		Args: ofWorkload(func(_ *cobra.Command, args []string) error {
			switch {
			case list && len(args) > 0:
				return errors.New("--list takes no WORKLOAD")
			case !list && len(args) != 1:
				return errors.New("one WORKLOAD is needed, or --list")
			}
			return nil
		}),
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				format = "json"
			}
			if err := f.check(); err != nil {
				return err
			}
			if !slices.Contains(envFormats, format) {
				return fmt.Errorf("--format %.40q: there are %s", format, strings.Join(envFormats, ", "))
			}
			if list {
				return listVariables(format == "json")
			}
			s, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			w, err := f.workload(cmd.Context(), o, s, args[0], os.Environ())
			if err != nil {
				return err
			}
			e := audit.Expression{Workload: w.Address, Hint: hintOf(w), Libraries: f.libraries, Channels: f.channels}
			lines := audit.Express(e)
			if format == "json" {
				return writeJSON(map[string]any{"format_version": audit.FormatVersion, "workload": e.Workload, "hint": e.Hint, "lines": lines})
			}
			return writeLines(os.Stdout, lines, format)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&format, "format", "sh", "sh, slurm, dotenv, json or mpirun")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the same as --format json")
	cmd.Flags().BoolVar(&list, "list", false, "list every variable with its file key, API, attribute of the spec, unit, default and scope")
	if err := cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(envFormats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag above is not there
	}
	return cmd
}

// writeLines writes lines in a format for a program to read. What a format has no room
// for goes to standard error.
func writeLines(out io.Writer, lines []audit.Line, format string) error {
	var words []string
	for _, l := range lines {
		comment := l.Library + ": not expressible: " + l.NotExpressible
		if l.NotExpressible == "" {
			comment = l.Library
			if l.Boundary != "" {
				comment += ": " + l.Boundary
			}
		}
		switch format {
		case "sh", "dotenv":
			printf(out, "# %s\n", comment)
			if l.Name == "" {
				continue
			}
			if format == "sh" {
				printf(out, "export %s=%s\n", l.Name, audit.Quote(l.Value))
			} else {
				printf(out, "%s=%s\n", l.Name, audit.QuoteDotenv(l.Value))
			}
			continue
		}
		if l.Name == "" {
			printf(os.Stderr, "# %s\n", comment)
			continue
		}
		key, ok := strings.CutPrefix(l.Name, "OMPI_MCA_")
		// These words are for $(...), which splits at blanks and takes no quotes away.
		switch {
		case strings.ContainsAny(l.Value, " \t\n*?"), format == "slurm" && strings.Contains(l.Value, ","):
			printf(os.Stderr, "# %s: %q cannot be passed in this format\n", l.Name, l.Value)
		case format == "mpirun" && ok:
			words = append(words, "--mca", key, l.Value)
		case format == "mpirun":
			words = append(words, "-x", l.Name+"="+l.Value)
		default:
			words = append(words, l.Name+"="+l.Value)
		}
	}
	switch {
	case len(words) == 0:
		return nil
	case format == "slurm":
		printf(out, "--export=ALL,%s\n", strings.Join(words, ","))
	default:
		printf(out, "%s\n", strings.Join(words, " "))
	}
	return nil
}

// listVariables writes audit.Table.
func listVariables(asJSON bool) error {
	type row struct {
		Library  string `json:"library"`
		Name     string `json:"name"`
		FileKey  string `json:"file_key"`
		API      string `json:"api"`
		HCL      string `json:"hcl"`
		Unit     string `json:"unit"`
		Default  string `json:"default"`
		Scope    string `json:"scope"`
		Boundary string `json:"boundary,omitempty"`
		Doc      string `json:"doc"`
	}
	var rows []row
	for _, v := range audit.Table {
		rows = append(rows, row{v.Library, v.Name, v.FileKey, v.API, v.HCL, v.Unit, v.Default, v.Scope, v.Boundary, v.Doc})
	}
	if asJSON {
		return writeJSON(map[string]any{"format_version": audit.FormatVersion, "variables": rows})
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LIBRARY\tNAME\tFILE KEY\tAPI\tHCL\tUNIT\tDEFAULT\tSCOPE")
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Library, r.Name, dash(r.FileKey), dash(r.API), dash(r.HCL), r.Unit, r.Default, r.Scope)
	}
	return w.Flush()
}
