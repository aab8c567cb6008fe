package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/param"
)

// hintName names the arm that follows a hint.
func hintName(h *int64) string {
	if h == nil {
		return "no hint"
	}
	return "hint " + param.FormatBytes(*h)
}

// armName is hintName with the lanes.
func (c *clientFlags) armName(h *int64) string {
	name := hintName(h)
	if c.lanesSetting(h) != nil {
		name += ", two lanes"
	}
	return name
}

func newBenchConnect(o *options) *cobra.Command {
	b := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "connect HOST[:PORT]",
		Short: "Measure against a bench serve",
		Long: `Measure against a bench serve and record it as an experiment. Exit code 1 when any
message was lost, duplicated, reordered or corrupted.`,
		Example: `  rdmatune bench connect 127.0.0.1 --sizes 8B,4KiB --duration 8s
  rdmatune bench connect 10.9.0.1 --device rxe1 --hints 0,8KiB,64KiB --sizes 8B..64KiB
  rdmatune bench connect 10.9.0.1 --device rxe1 --mode stream --sizes 64KiB,2MiB --json`,
		Args: arguments(1, 1, "one HOST[:PORT] is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr := args[0]
			if _, _, err := net.SplitHostPort(addr); err != nil {
				addr = net.JoinHostPort(strings.Trim(addr, "[]"), defaultPort)
			}
			return o.measure(cmd, b, func(ctx context.Context, x *bencher, bo bench.Options) (bench.Report, error) {
				arms, err := x.dialArms(ctx, addr, b)
				if errors.Is(err, syscall.ECONNREFUSED) {
					return bench.Report{}, fmt.Errorf("%w: is rdmatune bench serve running there, with this port?", err)
				}
				if err != nil {
					return bench.Report{}, err
				}
				r, err := bench.Run(ctx, arms, bo)
				r.Switches = x.switches()
				if closeErr := x.closeConns(); err == nil {
					err = closeErr
				}
				return r, err
			})
		},
	}
	b.registerCommon(cmd)
	b.register(cmd)
	return cmd
}

func newBenchLoop(o *options) *cobra.Command {
	b := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "loop",
		Short: "Measure with both ends in one process",
		Example: `  rdmatune bench loop
  rdmatune bench loop --device rxe0 --sizes 8B --count 10000
  rdmatune bench loop --mix 4KiB=95,1MiB=5 --hints 0,8KiB`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.measure(cmd, b, func(ctx context.Context, x *bencher, bo bench.Options) (bench.Report, error) {
				l, err := x.transport.Listen(ctx, net.JoinHostPort(x.transport.Addresses()[0], "0"))
				if err != nil {
					return bench.Report{}, err
				}
				defer l.Close()
				r, err := bench.LoopArms(ctx,
					func(ctx context.Context) (bench.Conn, error) { return l.Accept(ctx) },
					b.connections*max(len(b.arms), 1),
					func(ctx context.Context) ([]bench.Arm, error) { return x.dialArms(ctx, l.Addr().String(), b) }, bo)
				r.Switches = x.switches()
				return r, err
			})
		},
	}
	b.registerCommon(cmd)
	b.register(cmd)
	return cmd
}

// lanesSetting is the lanes of a connection with hint h; without one there is but one.
func (c *clientFlags) lanesSetting(h *int64) *string {
	if h == nil || *h == 0 || c.lanes == control.LanesSingle {
		return nil
	}
	return &c.lanes
}

// dialArms connects to addr for every hint; without any, as the workload says.
func (x *bencher) dialArms(ctx context.Context, addr string, b *benchFlags) ([]bench.Arm, error) {
	hints := b.arms
	if n := len(hints) * b.connections; n > maxConnections {
		return nil, fmt.Errorf("%d hints with %d connections each are more than the %d clients of a server", len(hints), b.connections, maxConnections)
	}
	dial := func(ctx context.Context, _ *int64) (*transport.Conn, error) { return x.transport.Dial(ctx, addr) }
	if len(hints) == 0 {
		hints = []*int64{nil}
	} else {
		dial = func(ctx context.Context, h *int64) (*transport.Conn, error) {
			return x.transport.DialFixed(ctx, addr, transport.Settings{Size: h, Lanes: b.lanesSetting(h)})
		}
	}
	var arms []bench.Arm
	for _, h := range hints {
		var conns []*transport.Conn
		for range b.connections {
			c, err := dial(ctx, h)
			if err != nil {
				return nil, errors.Join(err, x.closeConns())
			}
			conns = append(conns, c)
			x.conns = append(x.conns, c)
		}
		name := ""
		if b.hints != "" {
			name = b.armName(h)
		}
		arms = append(arms, connArm(name, conns))
	}
	return arms, nil
}

// connArm makes an arm of connections of one profile.
func connArm(name string, conns []*transport.Conn) bench.Arm {
	info := conns[0].Info()
	a := bench.Arm{
		Name: name, Hint: info.Hint, Profile: profileOf(info),
		Tier:     func(size int64) string { return tierOf(info, size) },
		Counters: func() bench.Counters { return countersOf(conns) },
	}
	for _, c := range conns {
		a.Conns = append(a.Conns, c)
	}
	return a
}

// countersOf adds up what the queues of connections went through.
func countersOf(conns []*transport.Conn) bench.Counters {
	var sum bench.Counters
	for _, c := range conns {
		sum.FullEvents += c.FullEvents() // the lanes' own end with them, at a switch
		for _, l := range c.Info().Lanes {
			sum.HighWater = max(sum.HighWater, l.HighWater)
		}
	}
	return sum
}

// errUnmeasured is an interrupt that left nothing to show.
var errUnmeasured = errors.New("interrupted before anything was measured")

// measure runs one client, prints its report and records it.
func (o *options) measure(cmd *cobra.Command, b *benchFlags, client func(context.Context, *bencher, bench.Options) (bench.Report, error)) (err error) {
	// What is wrong with the flags is said before anything is opened.
	bo, err := b.options(cmd.Flags())
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	x, err := o.openBench(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	bo.Device, bo.Simulated = x.device, x.simulated
	if o.colorOn(os.Stderr) {
		bo.Progress = benchProgress(bo)
	}
	began := time.Now()
	before := x.node.Activity(x.facts, x.device)
	bo.Alloc = registered(x.transport)
	r, runErr := client(ctx, x, bo)
	cut := r.CutShort(runErr)
	switch {
	case ctx.Err() != nil && !r.Measured() && (r.OK() || cut || len(r.Sizes) == 0 && errors.Is(runErr, context.Canceled)):
		return errUnmeasured
	case len(r.Sizes) == 0:
		return runErr
	case cut:
		runErr = nil
	}
	var recordErr error
	r.Experiment, recordErr = o.record(ctx, x, b, r, began, before, runErr, cut)
	if b.asJSON {
		err = writeJSON(r)
	} else {
		err = r.WriteText(os.Stdout)
	}
	if err := errors.Join(err, recordErr); err != nil {
		return errors.Join(runErr, err)
	}
	if runErr == nil && !r.OK() && !cut {
		return exitCode(exitError)
	}
	return runErr
}
