// Command rdmatune tunes RDMA and GPU nodes by declaration: it shows what a spec
// would change on a node and its live connections, makes it so, and can undo it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmatune/rdmatune/drivers/verbs/ibverbs"
	"github.com/rdmatune/rdmatune/spec"
)

// Exit codes, beside those of an apply (4 rolled back, 5 a rollback that could not finish).
const (
	exitOK      = 0
	exitError   = 1
	exitChanges = 2 // with --detailed-exitcode
	exitDrift   = 3 // with --detailed-exitcode: only drift
)

// An exitCode ends the program with a code after everything was said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := newRoot()
	root.SetArgs(doubleDashes(root, args))
	err := root.ExecuteContext(context.Background())
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return exitError
}

// interruptible returns a context that ends at the first signal that asks the
// program to end; the second one ends it at once. It is for what must not stop
// halfway: elsewhere signals do what they always do. A reader of the output that
// goes away must not stop it either.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		fmt.Fprintln(os.Stderr, "\nInterrupted: ending in an orderly way. Interrupt again to stop at once.")
		cancel()
		if _, ok := <-signals; ok {
			os.Exit(130)
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(signals)
		signal.Reset(syscall.SIGPIPE)
		cancel()
	})
}

// doubleDashes lets Terraform's single dash stand for the double one: -out means
// --out when there is such a flag.
func doubleDashes(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil {
		return args
	}
	long := map[string]bool{"help": true}
	note := func(f *pflag.Flag) { long[f.Name] = true }
	cmd.Flags().VisitAll(note)
	cmd.InheritedFlags().VisitAll(note)
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		if strings.HasPrefix(a, "-") && len(name) > 1 && long[name] {
			a = "-" + a
		}
		out[i] = a
	}
	return out
}

func newRoot() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "rdmatune",
		Short: "Declarative tuning of RDMA and GPU nodes",
		Long: `rdmatune tunes RDMA and GPU nodes by declaration. HCL specs say which CPUs a
workload's processes run on, at which frequency, where the NIC's interrupts go,
and how large its messages typically are. rdmatune shows what differs on this
node and its live connections, makes it so, switches the verbs transport's path
once without losing a message, and can undo all of it.`,
		Example: `  rdmatune plan node.hcl
  rdmatune apply node.hcl
  rdmatune plan --node sim:dgx examples/allreduce.hcl
  rdmatune destroy`,
		Version:           spec.Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return noneEmpty(cmd.Flags()) },
	}
	root.SetVersionTemplate(version(ibverbs.Built))
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&o.node, "node", "local", "the node: local, a simulated one (sim:dgx, sim:large, sim:shared, sim:small, sim:vm), or a captured `tree` (directory or .tar.gz)")
	flags.StringVar(&o.stateDir, "state-dir", "", "`directory` of state and experiments (default /var/lib/rdmatune for root, else $XDG_STATE_HOME/rdmatune); lock, control sockets and published hints are in $RDMATUNE_RUN_DIR (default /run/rdmatune), those of another node than local below this directory")
	if err := root.RegisterFlagCompletionFunc("node", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"local", "sim:dgx", "sim:large", "sim:small", "sim:shared", "sim:vm"}, cobra.ShellCompDirectiveDefault
	}); err != nil {
		panic(err) // the flag above is not there
	}
	flags.BoolVar(&o.compact, "compact-warnings", false, "print warnings without source and explanation")
	flags.BoolVar(&o.noColor, "no-color", false, "no colours, as with NO_COLOR set")
	root.AddCommand(newFacts(o), newSnapshot(o), newValidate(o), newPlan(o), newApply(o), newDestroy(o), newReconcile(o), newBench(o), newTune(o), newExperiments(o),
		newConnections(o), newAudit(o), newEnv(o), newExec(o), newDoctor(o), newStatus(o), newVersion(), newDocs())
	return root
}

// noneEmpty refuses a flag whose value is empty, as that of a script's variable is that was
// never set: what would be done then was not asked for.
func noneEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = errors.Join(err, fmt.Errorf("--%s: it needs a value; leave the flag out for its default", f.Name))
		}
	})
	return err
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(0, 0, ""),
		Run:   func(*cobra.Command, []string) { printf(os.Stdout, "%s", version(ibverbs.Built)) },
	}
}

// version is the line of the version, and what this build lacks.
func version(verbs bool) string {
	if !verbs {
		return "rdmatune " + spec.Version + " (built without verbs: it opens no RDMA device but soft0)\n"
	}
	return "rdmatune " + spec.Version + "\n"
}
