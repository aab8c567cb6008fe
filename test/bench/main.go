// Command bench measures rdmatune against the tools that people measure RDMA with:
// its verbs binding and its transport against perftest and UCX, in turns on the same
// device, at least ten times each.
//
//	go run ./test/bench                         in the lab's virtual machine
//	go run ./test/bench -device mlx5_0 -addr 10.0.0.1                  both ends here
//	go run ./test/bench -device mlx5_0 -addr 10.0.0.2 -server "ssh b"  the server there
//
// addr is the address of the server's device. A real run needs perftest and, for its
// part, ucx_perftest and rdmatune on the path of both hosts. Results are written as
// JSON; -doc renders them as Markdown, as docs/performance.md is.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// options are the flags.
type options struct {
	device, peerDevice string
	addr               string
	server             string // command prefix of the servers
	gid, peerGID       int
	cpus, serverCPUs   string
	runs               int
	only, who          string
	results, doc       string
	render             bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && (args[0] == "raw-serve" || args[0] == "raw-connect") {
		return runRaw(args[0], args[1:])
	}
	var o options
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	f.StringVar(&o.device, "device", "", "RDMA `device` of this side; without it the lab's machine is booted")
	f.StringVar(&o.peerDevice, "peer-device", "", "RDMA `device` of the server (default: as -device)")
	f.StringVar(&o.addr, "addr", "", "IP `address` of the server's device")
	f.StringVar(&o.server, "server", "", "`command` that runs another on the server's host, such as \"ssh host\"")
	f.IntVar(&o.gid, "gid", -1, "`index` of this side's GID for the tools (default: found by address)")
	f.IntVar(&o.peerGID, "peer-gid", -1, "`index` of the server's (default: found by address, or as -gid)")
	f.StringVar(&o.cpus, "cpus", "", "`list` of CPUs for the clients")
	f.StringVar(&o.serverCPUs, "server-cpus", "", "`list` of CPUs for the servers")
	f.IntVar(&o.runs, "runs", 10, "`number` of runs of each")
	f.StringVar(&o.only, "only", "", "`text` that the names of the measurements must have")
	f.StringVar(&o.who, "who", "", "`names` of the contestants, separated by commas (default: all)")
	f.StringVar(&o.results, "results", "", "`file` that the results are added to")
	f.StringVar(&o.doc, "doc", "", "Markdown `file` to render the results to")
	f.BoolVar(&o.render, "render", false, "measure nothing, render -results to -doc")
	f.Parse(args)
	var r Results
	if o.results != "" {
		b, err := os.ReadFile(o.results)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("results: %w", err)
		}
	}
	if !o.render {
		var fresh Results
		var err error
		if o.device == "" {
			fresh, err = runLab(ctx, o)
		} else {
			fresh, err = measure(ctx, o)
		}
		if err != nil {
			return err
		}
		r.add(fresh)
	}
	if o.results != "" {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.results, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	text := r.markdown()
	if o.doc == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(o.doc, []byte(text), 0o644)
}

// Results are what was measured on one machine.
type Results struct {
	Machine string   // what it is, for the reader
	Series  []Series // by measurement and contestant
}

// A Series is one contestant's runs of one measurement.
type Series struct {
	Measurement string
	Contestant  string
	Metric      string    // "P50", "P99": ns of half a round trip; "MiB/s"
	Runs        []float64 // in the order of the rounds: run i of all contestants belong together
}

// add puts the series of other in, in place of older ones of the same name.
func (r *Results) add(other Results) {
	r.Machine = other.Machine
	for _, s := range other.Series {
		r.Series = slices.DeleteFunc(r.Series, func(old Series) bool {
			return old.Measurement == s.Measurement && old.Contestant == s.Contestant && old.Metric == s.Metric
		})
		r.Series = append(r.Series, s)
	}
}

// record adds one run.
func (r *Results) record(measurement, contestant, metric string, value float64) {
	for i := range r.Series {
		s := &r.Series[i]
		if s.Measurement == measurement && s.Contestant == contestant && s.Metric == metric {
			s.Runs = append(s.Runs, value)
			return
		}
	}
	r.Series = append(r.Series, Series{measurement, contestant, metric, []float64{value}})
}

// fields splits a command prefix.
func fields(s string) []string { return strings.Fields(s) }
