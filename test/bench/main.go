// Command bench measures rdmatune against the tools that people measure RDMA with:
// its verbs binding and its transport against perftest and UCX, in turns on the same
// device, at least ten times each.
//
//	go run ./test/bench                         in the lab's virtual machine
//	go run ./test/bench -soft -only hint        there, without an RDMA device
//	go run ./test/bench -device mlx5_0 -addr 10.0.0.1                  both ends here
//	go run ./test/bench -device mlx5_0 -addr 10.0.0.2 -server "ssh b"  the server there
//	go run ./test/bench build-quiet FILE        for -quiet: see below
//
// addr is the address of the server's device. A real run needs perftest and, for its
// part, ucx_perftest and rdmatune on the path of both hosts. Results are written as
// JSON; -doc renders them as Markdown, as docs/performance.md is.
//
// What Go's scheduler has to do with a result shows the same program on a runtime whose
// idle threads are left alone, which build-quiet builds. In the lab it is measured beside
// the others; elsewhere with -quiet (and as bench-quiet on the path of the server's host).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

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
	only, who, label   string
	soft               bool
	quiet              string // this program on a quiet runtime
	delay              time.Duration
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
	if len(args) > 0 {
		switch args[0] {
		case "raw-serve", "raw-connect", "raw-costs":
			return runRaw(args[0], args[1:])
		case "over-serve", "over-connect":
			return runOver(ctx, args[0], args[1:])
		case "over-switch":
			return runSwitch(ctx, args[1:])
		case "over-burst":
			return runBurst(ctx, args[1:])
		case "build-quiet":
			if len(args) != 2 {
				return errors.New("build-quiet takes the name of the file to build")
			}
			return buildQuiet(ctx, args[1])
		}
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
	f.StringVar(&o.who, "who", "", "`names` of the contestants, separated by commas (default: all); those of one comparison belong in one run")
	f.StringVar(&o.label, "label", "", "`text` before the names of the measurements in the results")
	f.BoolVar(&o.soft, "soft", false, "in the lab: between two devices in software over its loopback, instead of its RDMA device")
	f.DurationVar(&o.delay, "delay", 0, "in the lab, with -soft: `time` that a packet takes from one end to the other")
	f.StringVar(&o.quiet, "quiet", "", "`file` that build-quiet built, for the measurements of Go's scheduler")
	f.StringVar(&o.results, "results", "", "`file` that the results are added to")
	f.StringVar(&o.doc, "doc", "", "Markdown `file` to render the results to")
	f.BoolVar(&o.render, "render", false, "measure nothing, render -results to -doc")
	f.Parse(args)
	old, err := load(o.results)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	keep := func(fresh Results) error { return old.with(fresh).save(o.results) }
	var fresh Results
	switch {
	case o.render:
		fresh.Machine, fresh.Load = old.Machine, old.Load
	case o.device == "":
		fresh, err = runLab(ctx, o)
	default:
		fresh, err = measureAll(ctx, o, keep)
	}
	if err != nil {
		if len(fresh.Series) > 0 {
			err = errors.Join(err, keep(fresh))
		}
		return err
	}
	if err := keep(fresh); err != nil {
		return err
	}
	text := old.with(fresh).markdown()
	if o.doc == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(o.doc, []byte(text), 0o644)
}

// load reads results; a file that is not there, or has no name, has none.
func load(file string) (r Results, err error) {
	if file == "" {
		return r, nil
	}
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// save writes results to file, which may have no name.
func (r Results) save(file string) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// Results are what was measured on one machine.
type Results struct {
	Machine string   // what it is, for the reader
	Load    string   // the host's load average before the last run: other work on it
	Series  []Series // by measurement and contestant
}

// A Series is one contestant's runs of one measurement.
type Series struct {
	Measurement string
	Contestant  string
	Metric      string    // "P50", "P99": ns of half a round trip; "MiB/s"
	Runs        []float64 // in the order of the rounds: run i of all contestants belong together
}

// with returns r with the series of fresh, in place of older ones of the same name.
func (r Results) with(fresh Results) Results {
	out := Results{Machine: fresh.Machine, Load: fresh.Load}
	for _, s := range r.Series {
		if fresh.runs(s.Measurement, s.Contestant, s.Metric) == nil {
			out.Series = append(out.Series, s)
		}
	}
	out.Series = append(out.Series, fresh.Series...)
	return out
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
