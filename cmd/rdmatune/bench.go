package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// defaultPort is where bench serve waits for the first contact.
const defaultPort = "7471"

// benchFlags are the flags of bench's commands.
type benchFlags struct {
	device   string
	workload string
	port     uint16
	once     bool
	sizes    string
	duration string
	count    int
	counted  bool // count was given
	warmup   int
	asJSON   bool
}

func newBench(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure round trips over the transport, and prove that no message is lost",
		Long: `Send numbered, checksummed messages over a connection of the verbs transport and
report latency and every message lost, duplicated, reordered or corrupted. The
processes belong to a workload, so an apply meanwhile switches their connection.`,
		Example: `  rdmatune bench loop
  rdmatune bench serve --device rxe0
  rdmatune bench connect 10.9.0.1 --device rxe1 --sizes 8B,4KiB --duration 8s --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchServe(o), newBenchConnect(o), newBenchLoop(o))
	return cmd
}

func (b *benchFlags) registerCommon(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.device, "device", "", "RDMA `device`; soft0 needs no hardware (default soft0, on another node its first device)")
	cmd.Flags().StringVar(&b.workload, "workload", "bench", "`address` of the workload that the process belongs to, as in a spec")
}

func (b *benchFlags) registerClient(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.sizes, "sizes", "8B,1KiB,16KiB", "message `sizes`, separated by commas")
	cmd.Flags().StringVar(&b.duration, "duration", "", "measure for this `time`, shared by the sizes")
	cmd.Flags().IntVar(&b.count, "count", 0, "measure this `number` of messages of each size (default 1000, unless --duration is given)")
	cmd.Flags().IntVar(&b.warmup, "warmup", bench.DefaultWarmup, "messages after each change of size that are checked but not timed")
	cmd.Flags().BoolVar(&b.asJSON, "json", false, "print the report as one JSON document")
}

// A bencher is an open node and a transport on one of its devices.
type bencher struct {
	*session
	facts     *node.Facts
	device    string
	simulated bool
	transport *transport.Transport
	conn      transport.ConnInfo // of the client, as it was in the end
}

// note keeps what a client's connection says of itself.
func (x *bencher) note(info transport.ConnInfo) { x.conn = info }

// softwareDrivers are RDMA drivers without hardware: what is measured on them says
// nothing of a NIC.
var softwareDrivers = []string{"soft", "rxe", "rdma_rxe", "siw"}

// openBench opens the transport on the device of the flags.
func (o *options) openBench(ctx context.Context, b *benchFlags) (*bencher, error) {
	s, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	if !spec.ValidAddress(b.workload) {
		return nil, errors.Join(fmt.Errorf("--workload %q is not the address of a workload, such as bench or allreduce[\"0\"]", b.workload), s.close())
	}
	x := &bencher{session: s, device: b.device, simulated: s.node.Kind() != node.Local}
	if x.facts, err = s.node.Facts(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	var names []string
	found, software := false, false
	for _, r := range x.facts.RDMA {
		names = append(names, r.Name)
		if x.device == "" && (x.simulated || r.Name == "soft0") {
			x.device = r.Name
		}
		if r.Name == x.device {
			found = true
			software = r.Driver != nil && slices.Contains(softwareDrivers, *r.Driver)
		}
	}
	if !found {
		err := fmt.Errorf("the node %s has no RDMA device", s.node.Ref())
		if len(names) > 0 {
			err = fmt.Errorf("the node %s has no RDMA device %q; it has %s", s.node.Ref(), x.device, strings.Join(names, ", "))
		}
		return nil, errors.Join(err, s.close())
	}
	x.transport, err = transport.Open(ctx, transport.Options{
		Device: x.device, Soft: x.simulated, Workload: b.workload, RunDir: s.node.RunDir(),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	x.simulated = x.simulated || software
	return x, nil
}

func (x *bencher) close() error { return errors.Join(x.transport.Close(), x.session.close()) }

// options turns the flags into what the engine takes.
func (b *benchFlags) options(x *bencher) (bench.Options, error) {
	out := bench.Options{Workload: b.workload, Device: x.device, Simulated: x.simulated, Count: b.count, Warmup: &b.warmup}
	switch {
	case b.duration != "" && b.counted:
		return out, errors.New("--duration and --count exclude each other")
	case b.counted && b.count <= 0:
		return out, fmt.Errorf("--count %d: it must be above 0", b.count)
	case b.warmup < 0:
		return out, fmt.Errorf("--warmup %d: it must not be negative", b.warmup)
	}
	if b.duration != "" {
		d, err := param.ParseDuration(b.duration)
		if err != nil {
			return out, fmt.Errorf("--duration: %w", err)
		}
		if d == 0 {
			return out, errors.New("--duration: it must be above 0")
		}
		out.Duration = d
	} else if b.count == 0 {
		out.Count = 1000
	}
	for _, text := range strings.Split(b.sizes, ",") {
		n, notice, err := param.ParseBytes(strings.TrimSpace(text))
		if err != nil {
			return out, fmt.Errorf("--sizes: %w", err)
		}
		if notice != "" {
			printf(os.Stderr, "Notice: --sizes: %s\n", notice)
		}
		out.Sizes = append(out.Sizes, n)
	}
	return out, nil
}

func newBenchServe(o *options) *cobra.Command {
	b := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer the messages of bench connect",
		Long: `Answer the messages of bench connect, client after client, until interrupted. The
port is open on the device's own address and on loopback only.`,
		Example: `  rdmatune bench serve
  rdmatune bench serve --device rxe0 --workload allreduce --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, cancel := interruptible(cmd.Context())
			defer cancel()
			x, err := o.openBench(ctx, b)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, x.close()) }()
			var addrs []string
			for _, host := range x.transport.Addresses() {
				addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(int(b.port))))
			}
			l, err := x.transport.Listen(ctx, addrs...)
			if err != nil {
				return err
			}
			defer l.Close()
			printf(os.Stdout, "Serving workload %q on %s, at %s.\n", b.workload, x.device, l.Addr())
			bad := false
			err = bench.Serve(ctx, func(ctx context.Context) (bench.Conn, error) { return l.Accept(ctx) }, bench.ServeOptions{
				Device: x.device,
				OnClient: func(s bench.Served) {
					bad = !writeServed(s) || bad
					if b.once {
						cancel()
					}
				},
			})
			if err == nil && bad && b.once {
				return exitCode(exitError)
			}
			return err
		},
	}
	b.registerCommon(cmd)
	cmd.Flags().Uint16Var(&b.port, "port", 7471, "TCP `port` of the first contact; 0 takes a free one and says which")
	cmd.Flags().BoolVar(&b.once, "once", false, "end after the first client, with 1 if it lost anything")
	return cmd
}

// writeServed says how a client's run went and reports whether all was well.
func writeServed(s bench.Served) bool {
	var total bench.Counts
	answered := uint64(0)
	for _, z := range s.Sizes {
		total = total.Add(z.Counts)
		answered += z.Answered
	}
	printf(os.Stdout, "Client of workload %q: %d messages answered; lost %d, duplicated %d, reordered %d, corrupted %d.\n",
		s.Workload, answered, total.Lost, total.Duplicated, total.Reordered, total.Corrupted)
	if s.Err != nil {
		printf(os.Stderr, "Client ended early: %v\n", s.Err)
	}
	return s.Err == nil && total.OK()
}

func newBenchConnect(o *options) *cobra.Command {
	b := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "connect HOST[:PORT]",
		Short: "Measure round trips to a bench serve",
		Long: `Measure round trips to a bench serve and record them as an experiment. Exit code
1 when any message was lost, duplicated, reordered or corrupted.`,
		Example: `  rdmatune bench connect 127.0.0.1 --sizes 8B,4KiB --duration 8s
  rdmatune bench connect 10.9.0.1 --device rxe1 --count 10000 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.counted = cmd.Flags().Changed("count")
			addr := args[0]
			if _, _, err := net.SplitHostPort(addr); err != nil {
				addr = net.JoinHostPort(strings.Trim(addr, "[]"), defaultPort)
			}
			return o.measure(cmd.Context(), b, func(ctx context.Context, x *bencher, bo bench.Options) (bench.Report, error) {
				c, err := x.transport.Dial(ctx, addr)
				if errors.Is(err, syscall.ECONNREFUSED) {
					return bench.Report{}, fmt.Errorf("%w: is rdmatune bench serve running there, with this port?", err)
				}
				if err != nil {
					return bench.Report{}, err
				}
				r, err := bench.Client(ctx, c, bo)
				x.note(c.Info())
				r.Switches = c.Info().Switches
				if closeErr := c.Close(); err == nil {
					err = closeErr
				}
				return r, err
			})
		},
	}
	b.registerCommon(cmd)
	b.registerClient(cmd)
	return cmd
}

func newBenchLoop(o *options) *cobra.Command {
	b := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "loop",
		Short: "Measure round trips with both ends in one process",
		Example: `  rdmatune bench loop
  rdmatune bench loop --device rxe0 --sizes 8B --count 10000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.counted = cmd.Flags().Changed("count")
			return o.measure(cmd.Context(), b, func(ctx context.Context, x *bencher, bo bench.Options) (bench.Report, error) {
				var addrs []string
				for _, host := range x.transport.Addresses() {
					addrs = append(addrs, net.JoinHostPort(host, "0"))
				}
				l, err := x.transport.Listen(ctx, addrs[0])
				if err != nil {
					return bench.Report{}, err
				}
				defer l.Close()
				var dialed *transport.Conn
				r, err := bench.Loop(ctx,
					func(ctx context.Context) (bench.Conn, error) { return l.Accept(ctx) },
					func(ctx context.Context) (bench.Conn, error) {
						c, err := x.transport.Dial(ctx, l.Addr().String())
						dialed = c
						return c, err
					}, bo)
				if dialed != nil {
					x.note(dialed.Info())
					r.Switches = dialed.Info().Switches
				}
				return r, err
			})
		},
	}
	b.registerCommon(cmd)
	b.registerClient(cmd)
	return cmd
}

// measure runs one client, prints its report and records it.
func (o *options) measure(ctx context.Context, b *benchFlags, client func(context.Context, *bencher, bench.Options) (bench.Report, error)) (err error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	x, err := o.openBench(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	bo, err := b.options(x)
	if err != nil {
		return err
	}
	if o.colorOn(os.Stderr) {
		bo.Progress = benchProgress(bo)
	}
	began := time.Now()
	r, runErr := client(ctx, x, bo)
	if len(r.Sizes) == 0 {
		return runErr
	}
	var recordErr error
	r.Experiment, recordErr = o.record(ctx, x, b, r, began, runErr)
	if b.asJSON {
		err = writeJSON(r)
	} else {
		err = r.WriteText(os.Stdout)
	}
	if err := errors.Join(err, recordErr); err != nil {
		return errors.Join(runErr, err)
	}
	if runErr == nil && !r.OK() {
		return exitCode(exitError)
	}
	return runErr
}
