package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/bench/ring"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// allreduceFlags are the flags of bench allreduce.
type allreduceFlags struct {
	device string
	ranks  int
	sizes  string
	count  int
	warmup int
	asJSON bool
}

// Defaults of bench allreduce.
const (
	allreduceCount  = 200
	allreduceWarmup = 10
)

// A size is measured with either hint in at least minTurns turns, if there are as many
// all-reduces, and in turns of at most maxTurn of them: an interrupt then leaves something
// of both.
const (
	minTurns = 10
	maxTurn  = 20
)

// A ringJob is what a rank is told to do.
type ringJob struct {
	Rank, Ranks   int
	Device        string
	Sizes         []int64
	Count, Warmup int
	Rounds        int
}

// arms are the set-ups that a job measures: hint 0, and of each size the hint that
// matches its messages.
func (j ringJob) hints() []int64 {
	out := []int64{0}
	for _, s := range j.Sizes {
		out = append(out, ring.MatchedHint(s, j.Ranks))
	}
	return out
}

// A ringCell is what a rank measured of one size with one hint.
type ringCell struct {
	Size      int64
	Matched   bool // else hint 0
	Histogram []byte
	Profile   map[string]string
}

// A ringLine is one line between the parent and a rank, whichever field is set. When all
// ranks have answered, the parent ends its lines, and the ranks end.
type ringLine struct {
	Job   *ringJob   `json:",omitempty"` // to the rank, first
	Addr  string     `json:",omitempty"` // of the rank; then to it: of the next rank
	Stop  bool       `json:",omitempty"` // to the rank: measure no more, and say what there is
	Cells []ringCell `json:",omitempty"` // of the rank, in the end: what it measured
	Error string     `json:",omitempty"` // of the rank: why it ended early
	Wrong bool       `json:",omitempty"` // of the rank: with it, a sum was wrong
}

func newBenchAllreduce(o *options) *cobra.Command {
	f := &allreduceFlags{}
	cmd := &cobra.Command{
		Use:   "allreduce",
		Short: "Measure a ring all-reduce between several processes",
		Long: `Start one process for each rank on this node, join them in a ring over the transport,
and time all-reduces of float32 data, with hint 0 and with the hint that matches the
messages (a rank's share of the data and a fifth), in turns. Every result is checked.
It says above which size the low-latency path loses. An interrupt ends the run with a
report of what was measured until then.`,
		Example: `  rdmatune bench allreduce --ranks 4
  rdmatune bench allreduce --ranks 4 --device rxe0,rxe1 --sizes 256KiB..2MiB`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.allreduce(cmd, f) },
	}
	cmd.Flags().StringVar(&f.device, "device", "", "RDMA `devices`, separated by commas; ranks take them in turn ("+deviceDefault+")")
	cmd.Flags().IntVar(&f.ranks, "ranks", 2, "`number` of processes")
	cmd.Flags().StringVar(&f.sizes, "sizes", "256KiB..2MiB", "`sizes` of the data that is reduced")
	cmd.Flags().IntVar(&f.count, "count", allreduceCount, "all-reduces that are timed of each size and hint, each by every rank")
	cmd.Flags().IntVar(&f.warmup, "warmup", allreduceWarmup, "all-reduces before each turn that are checked but not timed")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	return cmd
}

func (f *allreduceFlags) job() (ringJob, error) {
	j := ringJob{Ranks: f.ranks, Count: f.count, Warmup: f.warmup, Rounds: max(min(minTurns, f.count), (f.count+maxTurn-1)/maxTurn)}
	var err error
	if j.Sizes, err = parseSizes(f.sizes); err != nil {
		return j, err
	}
	switch {
	case f.ranks < 2 || f.ranks > ring.MaxRanks:
		return j, fmt.Errorf("--ranks %d: it must be 2 to %d", f.ranks, ring.MaxRanks)
	case f.count < 1 || f.count > 1_000_000 || f.warmup < 0 || f.warmup > 1_000_000:
		return j, errors.New("--count must be 1 to 1000000 and --warmup not negative")
	case len(j.Sizes) > 8:
		return j, fmt.Errorf("--sizes: %d sizes; at most 8, each has connections of its own", len(j.Sizes))
	}
	for _, s := range j.Sizes {
		if s < int64(4*f.ranks) || s > ring.MaxData || s%4 != 0 {
			return j, fmt.Errorf("--sizes: %s must be a multiple of 4 bytes, from 4 for each rank to %s", param.FormatBytes(s), param.FormatBytes(ring.MaxData))
		}
	}
	return j, nil
}

func (o *options) allreduce(cmd *cobra.Command, f *allreduceFlags) (err error) {
	j, err := f.job()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	facts, err := s.node.Facts(ctx)
	if err != nil {
		return err
	}
	devices := strings.Split(f.device, ",")
	for i, name := range devices {
		if name == "" && len(devices) > 1 {
			return fmt.Errorf("--device %q: a name is missing", f.device)
		}
		if devices[i], err = benchDevice(s.node, facts, strings.TrimSpace(name)); err != nil {
			return err
		}
	}
	began := time.Now()
	before := s.node.Activity(facts, devices[0])
	printf(os.Stderr, "Measuring %s on %d ranks, %s of each size and hint ...\n", param.Count(len(j.Sizes), "size"), j.Ranks, param.Count(j.Count, "all-reduce"))
	cells, runErr := o.runRing(ctx, j, devices)
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	r := newRingReport(j, cells)
	switch r.Interrupted = interrupted; {
	case interrupted && len(r.Sizes) == 0:
		return errors.New("interrupted before anything was measured; the ranks are ended")
	case !interrupted && runErr != nil:
		return runErr
	}
	e := experiment.Experiment{
		ID: experiment.NewID(began), Time: began.UTC(), Kind: experiment.Bench, Workload: "allreduce", Status: experiment.Done,
		Duration: time.Since(began), Node: s.identity(facts, devices[0]), Device: devices[0], Simulated: simulated(s.node, facts, devices[0]),
		Version: spec.Version, Detail: experiment.Detail{
			Notes: []string{fmt.Sprintf("ring all-reduce of %d ranks on %s; sizes are of the data, latencies from a barrier to the end of all ranks", j.Ranks, strings.Join(devices, ", "))},
		},
	}
	if interrupted {
		e.Status = experiment.Interrupted
	}
	if runErr != nil {
		e.Error = runErr.Error()
	}
	s.surroundings(ctx, &e, facts, devices[0], before)
	r.Simulated = e.Simulated
	// What was measured is shown also where it cannot be recorded.
	recordErr := r.record(ctx, s.node.StateDir(), &e)
	if recordErr == nil {
		r.Experiment = e.ID
	}
	if f.asJSON {
		err = writeJSON(r)
	} else {
		err = r.writeText()
	}
	return errors.Join(runErr, err, recordErr)
}

// stopTime is how long ranks may take to say what they have, when they are stopped.
const stopTime = 10 * time.Second

// runRing starts the ranks, introduces them to each other, and returns what all of them
// measured; after an interrupt, what those measured that say so in time.
func (o *options) runRing(ctx context.Context, j ringJob, devices []string) ([]ringCell, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	spare := context.AfterFunc(ctx, kill) // nothing is lost with ranks that have not begun
	ranks := make([]*ringProcess, j.Ranks)
	for i := range ranks {
		j.Rank, j.Device = i, devices[i%len(devices)]
		if ranks[i], err = startRank(alive, self, o, j); err != nil {
			break
		}
	}
	if err == nil {
		err = introduce(ranks)
	}
	var cells []ringCell
	if err == nil && spare() {
		unheard := context.AfterFunc(ctx, func() {
			for _, p := range ranks {
				p.write(ringLine{Stop: true}) // one that is gone is seen below
			}
			time.AfterFunc(stopTime, kill)
		})
		cells, err = collect(ctx, alive, ranks, kill)
		unheard()
	}
	if err != nil {
		kill() // the others wait for one that is gone
	}
	ranks = slices.DeleteFunc(ranks, func(p *ringProcess) bool { return p == nil })
	for _, p := range ranks {
		p.in.Close() // which lets it end; one after the other they would miss each other
	}
	killed := err != nil || ctx.Err() != nil
	for _, p := range ranks {
		if waitErr := p.cmd.Wait(); !killed {
			err = errors.Join(err, waitErr)
		}
	}
	return cells, err
}

// introduce tells each rank where the next one listens.
func introduce(ranks []*ringProcess) error {
	addrs := make([]string, len(ranks))
	for i, p := range ranks {
		line, err := p.read()
		if err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
		addrs[i] = line.Addr
	}
	for i, p := range ranks {
		if err := p.write(ringLine{Addr: addrs[(i+1)%len(ranks)]}); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return nil
}

// collect returns what the ranks measured. After the first error all are killed, since
// they wait for each other. When ctx ends, they have been told to stop: one that has lost
// its neighbour by that says nothing wrong, and one that says nothing until alive ends and
// it with it, as one that is stopped does not, is left out with a notice.
func collect(ctx, alive context.Context, ranks []*ringProcess, kill func()) ([]ringCell, error) {
	type word struct {
		rank int
		line ringLine
		err  error
	}
	words := make(chan word, len(ranks))
	for i, p := range ranks { // at once: what one that has answered says is not lost by killing all
		go func() {
			line, err := p.read()
			words <- word{i, line, err}
		}()
	}
	var cells []ringCell
	var first error
	for range ranks {
		w := <-words
		cells = append(cells, w.line.Cells...)
		told := ctx.Err() != nil
		switch {
		case w.err == nil || first != nil || told && w.line.Error != "" && !w.line.Wrong:
			continue
		case told && alive.Err() != nil && w.line.Error == "":
			printf(os.Stderr, "Notice: rank %d said nothing within %v, and was ended: what it measured is not known.\n", w.rank, stopTime)
			continue
		}
		first = fmt.Errorf("rank %d: %w", w.rank, w.err)
		if !told {
			kill()
		}
	}
	return cells, first
}

// A ringProcess is a rank as its parent sees it.
type ringProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startRank starts the process of j.Rank, which dies with this one.
func startRank(ctx context.Context, self string, o *options, j ringJob) (*ringProcess, error) {
	args := []string{"bench", "rank"}
	if o.node != "" {
		args = append(args, "--node", o.node)
	}
	if o.stateDir != "" {
		args = append(args, "--state-dir", o.stateDir)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // a terminal's interrupt is for this process
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &ringProcess{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}
	return p, p.write(ringLine{Job: &j})
}

// write sends one line. It is for one goroutine at a time.
func (p *ringProcess) write(l ringLine) error { return json.NewEncoder(p.in).Encode(l) }

func (p *ringProcess) read() (ringLine, error) {
	var l ringLine
	if err := p.out.Decode(&l); err != nil {
		return l, fmt.Errorf("it ended early: %w", err)
	}
	if l.Error != "" {
		return l, errors.New(l.Error)
	}
	return l, nil
}

// newBenchRank is the command of one rank: allreduce starts it, nobody else.
func newBenchRank(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "rank", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A signal for all processes is for the parent to follow: it ends its ranks.
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			in := json.NewDecoder(bufio.NewReader(os.Stdin))
			out := json.NewEncoder(os.Stdout)
			last, err := o.rank(cmd.Context(), in, out)
			if err != nil {
				last.Error, last.Wrong = err.Error(), errors.Is(err, errWrongSum)
				return errors.Join(out.Encode(last), exitCode(exitError))
			}
			return nil
		},
	}
}
