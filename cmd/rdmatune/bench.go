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

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
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
	clientFlags
}

func newBench(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the transport, and prove that no message is lost",
		Long: `Send numbered, checksummed messages over connections of the verbs transport and
report latency or bandwidth and every message lost, duplicated, reordered or
corrupted. The processes belong to a workload, so an apply meanwhile switches their
connections; those of --hints keep the hint that they were made with.`,
		Example: `  rdmatune bench loop
  rdmatune bench serve --device rxe0
  rdmatune bench connect 10.9.0.1 --device rxe1 --hints 0,8KiB --sizes 8B..64KiB`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchServe(o), newBenchConnect(o), newBenchLoop(o), newBenchAllreduce(o), newBenchRank(o))
	return cmd
}

// deviceDefault says what benchDevice takes without a name.
const deviceDefault = "default soft0, on another node its first device"

func (b *benchFlags) registerCommon(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.device, "device", "", "RDMA `device`; soft0 needs no hardware ("+deviceDefault+")")
	cmd.Flags().StringVar(&b.workload, "workload", "bench", "`address` of the workload that the process belongs to, as in a spec")
}

// A bencher is an open node and a transport on one of its devices.
type bencher struct {
	*session
	facts     *node.Facts
	device    string
	simulated bool
	transport *transport.Transport
	conns     []*transport.Conn // of the client
}

// switches are the changes of path of the client's connections so far.
func (x *bencher) switches() []control.Switch {
	var out []control.Switch
	for _, c := range x.conns {
		out = append(out, c.Info().Switches...)
	}
	return out
}

// closeConns closes the client's connections.
func (x *bencher) closeConns() error {
	var errs []error
	for _, c := range x.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

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
	x := &bencher{session: s, simulated: s.node.Kind() != node.Local}
	if x.facts, err = s.node.Facts(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if x.device, err = benchDevice(s.node, x.facts, b.device); err != nil {
		return nil, errors.Join(err, s.close())
	}
	x.transport, err = transport.Open(ctx, transport.Options{
		Device: x.device, Soft: x.simulated, Workload: b.workload, RunDir: s.node.RunDir(), Mirror: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	x.simulated = simulated(s.node, x.facts, x.device)
	return x, nil
}

// benchDevice is the device of a node that is called name; without a name, the software
// device of this machine, or the first of another node.
func benchDevice(n *node.Node, facts *node.Facts, name string) (string, error) {
	var names []string
	for _, r := range facts.RDMA {
		names = append(names, r.Name)
	}
	if name == "" {
		name = "soft0"
		if n.Kind() != node.Local && len(names) > 0 {
			name = names[0]
		}
	}
	switch {
	case slices.Contains(names, name):
		return name, nil
	case len(names) == 0:
		return "", fmt.Errorf("the node %s has no RDMA device", n.Ref())
	}
	return "", fmt.Errorf("the node %s has no RDMA device %q; it has %s", n.Ref(), name, strings.Join(names, ", "))
}

// registered allocates registered memory, so that no message of a benchmark has to be
// registered while it is timed.
func registered(t *transport.Transport) bench.Allocator {
	return func(n int) ([]byte, func(), error) {
		b, err := t.Register(n)
		if err != nil {
			return nil, nil, err
		}
		return b.Bytes(), func() { b.Close() }, nil
	}
}

// simulated reports whether what is measured on a device says nothing of a NIC.
func simulated(n *node.Node, facts *node.Facts, device string) bool {
	if n.Kind() != node.Local {
		return true
	}
	for _, r := range facts.RDMA {
		if r.Name == device {
			return r.Driver != nil && slices.Contains(softwareDrivers, *r.Driver)
		}
	}
	return false
}

func (x *bencher) close() error { return errors.Join(x.transport.Close(), x.session.close()) }

func newBenchServe(o *options) *cobra.Command {
	b := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer the messages of bench connect",
		Long: `Answer the messages of bench connect, of several clients at once, until interrupted.
The port is open on the device's own address and on loopback only.`,
		Example: `  rdmatune bench serve
  rdmatune bench serve --device rxe0 --workload allreduce --once`,
		Args: arguments(0, 0, ""),
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
				Device: x.device, Alloc: registered(x.transport), Once: b.once,
				OnClient: func(s bench.Served) { bad = !writeServed(s) || bad },
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
	printf(os.Stdout, "Client of workload %q: %s answered; lost %d, duplicated %d, reordered %d, corrupted %d.\n",
		s.Workload, param.Count(answered, "message"), total.Lost, total.Duplicated, total.Reordered, total.Corrupted)
	if s.Err != nil {
		printf(os.Stderr, "Client ended early: %v\n", s.Err)
	}
	return s.Err == nil && total.OK()
}
