package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/param"
)

// clientFlags say what is measured.
type clientFlags struct {
	sizes       string
	mix         string
	mode        string
	hints       string
	lanes       string
	duration    string
	count       int
	warmup      int
	rounds      int
	rate        float64
	inFlight    int
	burst       int
	connections int
	asJSON      bool

	given map[string]bool // flags that were given
	arms  []*int64        // of hints, parsed
}

func (c *clientFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.sizes, "sizes", "8B,1KiB,16KiB", "message `sizes`, separated by commas; 8B..64KiB doubles from one to the other")
	f.StringVar(&c.mix, "mix", "", "round trips of mixed `sizes` by weight, such as 4KiB=95,1MiB=5")
	f.StringVar(&c.mode, "mode", "round-trip", "`kind` of traffic: round-trip, stream (bandwidth, one way) or both-ways")
	f.StringVar(&c.hints, "hints", "", "measure side by side with these `hints`, such as none,0,8KiB, each on connections of its own")
	f.StringVar(&c.lanes, "lanes", "single", "`lanes` of the connections of --hints: single or dual")
	f.StringVar(&c.duration, "duration", "", "measure for this `time`, shared by sizes and hints")
	f.IntVar(&c.count, "count", 0, "measure this `number` of messages of each size and hint (default 1000, unless --duration is given)")
	f.IntVar(&c.warmup, "warmup", bench.DefaultWarmup, "messages after each change of size that are checked but not timed; 0 measures cold")
	f.IntVar(&c.rounds, "rounds", 0, "`turns` in which a count is shared, so that hints alternate (default 10 with --hints, else 1)")
	f.Float64Var(&c.rate, "rate", 0, "messages per second on each connection at most; 0 is no bound")
	f.IntVar(&c.burst, "burst", 1, "`messages` of round trips that are sent at once before their answers are waited for")
	f.IntVar(&c.inFlight, "in-flight", bench.DefaultInFlight, "messages of a stream under way at once on each connection")
	f.IntVar(&c.connections, "connections", 1, "connections that are used at once, for each hint")
	f.BoolVar(&c.asJSON, "json", false, "print the report as one JSON document")
	completeWords(cmd, "mode", "round-trip", "stream", "both-ways")
	completeWords(cmd, "lanes", control.LanesSingle, control.LanesDual)
}

// completeWords completes a flag with the words that it takes.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is not there: a mistake of the caller
	}
}

// modes are the values of --mode.
var modes = map[string]bench.Mode{"round-trip": bench.RoundTrips, "stream": bench.Streams, "both-ways": bench.BothWays}

// maxConnections bounds --connections times the hints: a server takes no more clients.
const maxConnections = bench.MaxClients

// options turns the flags, which all holds, into what the engine takes.
func (b *benchFlags) options(all *pflag.FlagSet) (bench.Options, error) {
	b.given = map[string]bool{}
	all.Visit(func(f *pflag.Flag) { b.given[f.Name] = true })
	out := bench.Options{
		Workload: b.workload, Count: b.count, Warmup: &b.warmup, Rounds: b.rounds,
		Rate: b.rate, InFlight: b.inFlight, Burst: b.burst,
	}
	var known bool
	if out.Mode, known = modes[b.mode]; !known {
		return out, fmt.Errorf("--mode %q: it must be round-trip, stream or both-ways", b.mode)
	}
	if err := b.check(out.Mode); err != nil {
		return out, err
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
	var err error
	from := "--sizes"
	if b.mix != "" {
		from, out.Mode = "--mix", bench.Mixed
		out.Sizes, out.Weights, err = parseMix(b.mix)
	} else {
		out.Sizes, err = parseSizes(b.sizes)
	}
	if err == nil {
		if err = bench.CheckSizes(out.Sizes); err != nil {
			err = fmt.Errorf("%s: %w", from, err)
		}
	}
	if err == nil && out.Mode.Streaming() {
		err = b.checkInFlight(out.Sizes)
	}
	if err == nil {
		b.arms, err = parseHints(b.hints)
	}
	return out, err
}

// checkInFlight refuses, or says of the default, that fewer messages are under way than was
// meant, since the largest size bounds that for all.
func (b *benchFlags) checkInFlight(sizes []int64) error {
	most := bench.MostInFlight(sizes)
	if b.inFlight <= most {
		return nil
	}
	largest := param.FormatBytes(slices.Max(sizes))
	if b.given["in-flight"] {
		return fmt.Errorf("--in-flight %d: at most %d where a size is %s", b.inFlight, most, largest)
	}
	printf(os.Stderr, "Notice: %s in flight at once, of every size, since one is %s: measure it alone\n", param.Count(most, "message"), largest)
	return nil
}

// check holds what a flag may say, and with which others, before the engine does: that
// knows no flags, and takes a 0 for what was not given.
func (b *benchFlags) check(mode bench.Mode) error {
	numbers := []struct {
		flag           string
		value, low, up int
	}{
		{"warmup", b.warmup, 0, bench.MaxWarmup}, {"rounds", b.rounds, 1, bench.MaxRounds}, {"in-flight", b.inFlight, 1, bench.MaxInFlight},
		{"burst", b.burst, 1, bench.MaxBurst}, {"connections", b.connections, 1, maxConnections},
	}
	for _, n := range numbers {
		if b.given[n.flag] && (n.value < n.low || n.value > n.up) {
			return fmt.Errorf("--%s %d: it must be %d to %d", n.flag, n.value, n.low, n.up)
		}
	}
	switch {
	case b.duration != "" && b.given["count"]:
		return errors.New("--duration and --count exclude each other")
	case b.given["count"] && b.count <= 0:
		return fmt.Errorf("--count %d: it must be above 0", b.count)
	case b.rate != 0 && !(b.rate >= bench.MinRate && b.rate <= bench.MaxRate):
		return fmt.Errorf("--rate %g: it must be 0, or %g to %g", b.rate, bench.MinRate, bench.MaxRate)
	case b.rate > 0 && mode.Streaming():
		return fmt.Errorf("--rate is about round trips: --mode %s goes as fast as it can", b.mode)
	case b.burst > 1 && mode != bench.RoundTrips:
		return fmt.Errorf("--burst is about round trips: --mode %s does not go with it", b.mode)
	case b.burst > 1 && b.rate > 0:
		return errors.New("--burst and --rate exclude each other: what a burst sends is due at once")
	case b.lanes != control.LanesSingle && b.lanes != control.LanesDual:
		return fmt.Errorf("--lanes %q: it must be single or dual", b.lanes)
	case b.lanes == control.LanesDual && b.hints == "":
		return errors.New("--lanes is about the connections of --hints: without them the workload's settings decide")
	case b.mix != "" && (b.given["sizes"] || mode != bench.RoundTrips):
		return errors.New("--mix is about round trips of its own sizes: neither --sizes nor another --mode goes with it")
	}
	return nil
}

// parseSize parses a size of a flag and prints its notice.
func parseSize(flag, text string) (int64, error) {
	n, notice, err := param.ParseBytes(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", flag, err)
	}
	if notice != "" {
		printf(os.Stderr, "Notice: %s: %s\n", flag, notice)
	}
	return n, nil
}

// parseSizes parses a list of sizes and ranges, which double.
func parseSizes(list string) ([]int64, error) {
	var out []int64
	for _, text := range strings.Split(list, ",") {
		low, high, isRange := strings.Cut(text, "..")
		from, err := parseSize("--sizes", low)
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			if to, err = parseSize("--sizes", high); err != nil {
				return nil, err
			}
			if from < 1 || to < from {
				return nil, fmt.Errorf("--sizes: %q does not go up", text)
			}
		}
		for n := from; n <= to && len(out) <= bench.MaxSizes; n *= 2 {
			out = append(out, n)
			if n == 0 {
				break
			}
		}
	}
	return out, nil
}

// parseMix parses sizes with their weights.
func parseMix(list string) (sizes []int64, weights []float64, err error) {
	for _, text := range strings.Split(list, ",") {
		size, weight, ok := strings.Cut(text, "=")
		if !ok {
			return nil, nil, fmt.Errorf("--mix: %q is not a size and a weight, such as 4KiB=95", text)
		}
		n, err := parseSize("--mix", size)
		if err != nil {
			return nil, nil, err
		}
		w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		if err != nil || !(w > 0 && w < bench.MaxWeight) {
			return nil, nil, fmt.Errorf("--mix: the weight %q of %s must be a number above 0 and below %g", weight, size, bench.MaxWeight)
		}
		sizes, weights = append(sizes, n), append(weights, w)
	}
	return sizes, weights, nil
}

// parseHints parses a list of hints; "none" is nil.
func parseHints(list string) ([]*int64, error) {
	if list == "" {
		return nil, nil
	}
	var out []*int64
	for _, text := range strings.Split(list, ",") {
		var hint *int64
		if strings.TrimSpace(text) != "none" {
			n, err := parseSize("--hints", text)
			if err != nil {
				return nil, err
			}
			if n > param.MaxHint {
				return nil, fmt.Errorf("--hints: %s is above %s, the largest message", param.FormatBytes(n), param.FormatBytes(param.MaxHint))
			}
			hint = &n
		}
		if slices.ContainsFunc(out, func(h *int64) bool { return hintName(h) == hintName(hint) }) {
			return nil, fmt.Errorf("--hints: %s is there twice", strings.TrimSpace(text))
		}
		out = append(out, hint)
	}
	return out, nil
}
