package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/drivers/dmalatency"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/irqbalance"
	"github.com/rdmatune/rdmatune/internal/rivals"
	"github.com/rdmatune/rdmatune/internal/rundir"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/reconcile/serve"
	"github.com/rdmatune/rdmatune/reconcile/watch"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// reconcileFlags are those of reconcile.
type reconcileFlags struct {
	socket    string
	listen    string
	logFormat string
	logLevel  string
	onStop    string
	dryRun    bool
	replace   bool
}

func newReconcile(o *options) *cobra.Command {
	var f specFlags
	var r reconcileFlags
	cmd := &cobra.Command{
		Use:   "reconcile [FILE or DIRECTORY]",
		Short: "Keep the node as a spec wants it",
		Long: `Apply the spec and keep it applied, until stopped: on every write by another program
to a managed interrupt affinity, cpufreq or PM QoS file, on what the kernel changes by
itself (driver reload, link up, CPU online), on every new process of a workload, and by
a slow sweep. Without an argument the directory's *.hcl files are the spec; the files are
read again when they change, and the last good spec is kept while they are invalid.

With an invalid spec it starts as well, unless standard error is a terminal, where somebody
can mend it: with the last good spec of an earlier run where that is known; else, when an
earlier run has set something, it leaves everything as it is until the spec is valid; else
it ends with 1.

What another program rewrites again and again is left to it, and reported (contested).
A connection is asked to switch once in a generation. Whether originals are restored on
a clean stop, and how patient it is, says the spec's reconcile block.

Signals: SIGHUP reads the spec again and retries what was given up, SIGTERM and SIGINT
stop. rdmatune status asks it how things are; /metrics, /healthz and /status are served
on its socket.

Exit codes: 0 stopped by a signal, with the tuning left or the originals restored; 1 it
could not start (an invalid spec, another daemon, another spec that tunes the node), could
not go on (its lock is lost), or could not restore.`,
		Example: `  rdmatune reconcile /etc/rdmatune
  rdmatune reconcile --dry-run node.hcl
  rdmatune reconcile --listen 127.0.0.1:9464 --log-format json /etc/rdmatune
  rdmatune reconcile --node sim:small node.hcl
  curl --unix-socket /run/rdmatune/reconcile.sock http://localhost/metrics`,
		Args:              arguments(0, 1, ""),
		ValidArgsFunction: specFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.reconcile(cmd.Context(), args, f, r)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.socket, "socket", "", "Unix `socket` to answer on (default reconcile.sock in the run directory)")
	flags.StringVar(&r.listen, "listen", "", "also answer on this loopback `address:port`")
	flags.StringVar(&r.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&r.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&r.onStop, "on-stop", "", "leave or restore: what a clean stop does to the tuning (default: as the spec says)")
	flags.BoolVar(&r.dryRun, "dry-run", false, "look and tell, and change nothing")
	flags.BoolVar(&r.replace, "replace", false, "also when the node is tuned by another spec, whose settings are then restored")
	for name, words := range map[string][]string{"log-format": {"text", "json"}, "log-level": {"debug", "info", "warn", "error"}, "on-stop": {"leave", "restore"}} {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag above is not there
		}
	}
	return cmd
}

// check reports what is wrong with the flags before anything is begun.
func (r *reconcileFlags) check() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not debug, info, warn or error", r.logLevel)
	}
	if !slices.Contains([]string{"", "leave", "restore"}, r.onStop) {
		return nil, fmt.Errorf("--on-stop: %q is not leave or restore", r.onStop)
	}
	if r.listen != "" {
		host, _, err := net.SplitHostPort(r.listen)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return nil, fmt.Errorf("--listen: %q is not a loopback address with a port, as in 127.0.0.1:9464: what it answers is for this machine", r.listen)
		}
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // with its unit in JSON, too
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	switch r.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is not text or json", r.logFormat)
}

// daemonGC makes the collector run at half as much garbage as usual: a daemon for years
// trades time for memory.
const daemonGC = 50

// reconcile runs the daemon.
func (o *options) reconcile(ctx context.Context, args []string, f specFlags, r reconcileFlags) (err error) {
	log, err := r.check()
	if err != nil {
		return err
	}
	debug.SetGCPercent(daemonGC)
	// What is wrong with the spec at the start is shown with its source, if it matters then.
	var last *spec.Spec
	var diags hcl.Diagnostics
	load := func() (*spec.Spec, hcl.Diagnostics) {
		last, diags = o.read(args, f)
		return last, diags
	}
	first, _ := load()
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	runDir := s.node.RunDir()
	if err := errors.Join(rundir.Make(runDir), control.MakeRunDir(runDir)); err != nil {
		return err
	}
	owner := state.Owner{PID: os.Getpid(), BootID: s.bootID, Command: strings.Join(os.Args, " "), Since: time.Now().UTC().Truncate(time.Second), Spec: first.Root, Given: first.Given()}
	var sound func() error
	if !r.dryRun {
		lock, err := state.AcquireDaemon(runDir, owner)
		if err != nil {
			return err
		}
		sound = lock.Held
		defer func() { err = errors.Join(err, lock.Release()) }()
	}
	if s.node.Kind() == node.Local && !r.dryRun {
		holder, err := dmalatency.NewHolder(dmalatency.Device, runDir)
		if err != nil {
			return err
		}
		defer holder.Release()
		s.hold(holder)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := watch.New(ctx, watch.Config{Local: s.node.Kind() == node.Local, Spec: specPaths(args, f), RunDir: runDir, Self: os.Getpid()})
	if err != nil {
		return err
	}
	defer w.Close()

	c := o.reconcileConfig(s, r, log)
	c.Owner, c.Load, c.Watcher, c.Sound = owner, load, w, sound
	c.Attended = term.IsTerminal(int(os.Stderr.Fd()))
	var server *serve.Server
	c.OnPass = func(p reconcile.Pass) { server.Observe(p) }
	c.OnAlive = func() { notify(log, daemon.SdNotifyWatchdog) }
	c.OnReload = func() func() {
		notify(log, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
		return func() { notify(log, daemon.SdNotifyReady) }
	}
	socket := r.socket
	if socket == "" {
		socket = filepath.Join(runDir, socketName)
	}
	c.OnBegin = func() {
		log.Info("started", "spec", owner.Spec, "node", s.node.Ref(), "socket", socket, "dry_run", r.dryRun, "version", spec.Version)
	}
	loop := reconcile.New(c)
	server = serve.New(loop.Status)
	defer func() { err = errors.Join(err, server.Shutdown(context.Background())) }()
	if err := server.Listen(socket); err != nil {
		return err
	}
	if r.listen != "" {
		addr, err := server.ListenTCP(r.listen)
		if err != nil {
			return err
		}
		log.Info("listening", "address", addr)
	}
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(hups)
	err = loop.Run(ctx, hups, func(fromSpec bool) bool {
		notify(log, daemon.SdNotifyStopping)
		return r.onStop == "restore" || r.onStop == "" && fromSpec
	}, func() { notify(log, daemon.SdNotifyReady) })
	if err != nil && diags.HasErrors() && errors.Is(err, reconcile.ErrNotBegun) {
		if r.logFormat == "json" {
			log.Error("spec invalid", "error", err)
		} else if err := o.writeDiagnostics(os.Stderr, last.Files, diags); err != nil {
			return err
		}
		return exitCode(exitError)
	}
	return err
}

// socketName is the daemon's socket in the run directory.
const socketName = "reconcile.sock"

// notify tells systemd, if it started this process.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Debug("notify systemd", "state", state, "error", err)
	}
}

// specPaths are the files and directories that a spec is read from.
func specPaths(args []string, f specFlags) []string {
	paths := []string{"."}
	if len(args) > 0 {
		paths = []string{args[0]}
	}
	for _, v := range f.vars {
		if v.File != "" {
			paths = append(paths, v.File)
		}
	}
	return paths
}

// read reads the spec of a command's arguments.
func (o *options) read(args []string, f specFlags) (*spec.Spec, hcl.Diagnostics) {
	path := "."
	if len(args) > 0 {
		path = args[0]
	}
	return spec.Load(path, spec.Options{Vars: f.vars, Environ: os.Environ()})
}

// reconcileConfig is what the loop is given of a session.
func (o *options) reconcileConfig(s *session, r reconcileFlags, log *slog.Logger) reconcile.Config {
	c := reconcile.Config{
		Node: s.node, Drivers: s.drivers, BootID: s.bootID, Version: spec.Version, Replace: r.replace, DryRun: r.dryRun, Log: log,
		Describe: func(kind experiment.Kind, sp *spec.Spec, doc *state.Document, facts *node.Facts) experiment.Experiment {
			return s.describe(kind, &planning{spec: sp, doc: doc, facts: facts})
		},
		Switches: s.switches,
		Meter: func(ctx context.Context, p *plan.Plan, facts *node.Facts) func(context.Context, plan.Guard) (apply.Measurement, error) {
			m := &meter{s: s, facts: facts}
			m.remember(ctx, p.Guards)
			return m.measure
		},
		Matches: func(r *spec.Resolved, pids []int) bool {
			table := s.node.Procs()
			for _, w := range r.Workloads {
				if !w.AboutProcesses() {
					continue
				}
				for _, pid := range pids {
					if ok, err := table.Belongs(pid, w.Address, w.Match); ok || err != nil {
						return true
					}
				}
			}
			return false
		},
	}
	if s.node.Kind() != node.Local {
		c.Before = s.adopt
	} else {
		keeper := irqbalance.NewKeeper(systemRunDir, s.node.RunDir())
		c.Leave = keeper.Wait
		c.Negotiate = func(ctx context.Context, irqs []int) (string, error) {
			a := keeper.Keep(ctx, irqs)
			return a.String(), a.Err
		}
		c.Rivals = func() []string { return rivalsOf(s.node) }
	}
	return c
}

// systemRunDir is where daemons of the machine have their sockets.
const systemRunDir = "/run"

// rivalsOf names the programs that may tune the same.
func rivalsOf(n *node.Node) []string {
	found, err := rivals.Find(n.Procs())
	var out []string
	if err != nil {
		out = append(out, "not all could be looked at: "+err.Error())
	}
	for _, r := range found {
		if r.Name != "irqbalance" { // it has a line of its own
			out = append(out, r.String())
		}
	}
	return out
}
