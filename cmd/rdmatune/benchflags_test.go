package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmatune/rdmatune/bench"
)

// TestBenchFlags: what the flags of a measurement cannot be is said once, with the flag's
// name; what is given is never taken for what is not.
func TestBenchFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "",
		"--burst 4096":                  "",
		"--mix 8B=1 --burst 4":          "",
		"--in-flight 256 --mode stream": "",
		"--hints 2GiB,none":             "",
		"--warmup 0":                    "",
		"--burst 0":                     "--burst 0: it must be 1 to 4096",
		"--burst -2":                    "--burst -2: it must be 1 to 4096",
		"--burst 4097":                  "--burst 4097: it must be 1 to 4096",
		"--burst 4 --mode stream":       "--burst is about round trips: --mode stream does not go with it",
		"--burst 4 --mode both-ways":    "--burst is about round trips: --mode both-ways does not go with it",
		"--burst 4 --rate 5":            "--burst and --rate exclude each other: what a burst sends is due at once",
		"--rate -1":                     "--rate -1: it must be 0, or 0.001 to 1e+09",
		"--rate NaN":                    "--rate NaN: it must be 0, or 0.001 to 1e+09",
		"--rate 1e-300":                 "--rate 1e-300: it must be 0, or 0.001 to 1e+09",
		"--rate 5 --mode stream":        "--rate is about round trips: --mode stream goes as fast as it can",
		"--in-flight 0":                 "--in-flight 0: it must be 1 to 256",
		"--in-flight 17 --mode stream --sizes 8B,4MiB": "--in-flight 17: at most 16 where a size is 4 MiB",
		"--in-flight 16 --mode stream --sizes 8B,4MiB": "",
		"--mode stream --sizes 64MiB":                  "",
		"--in-flight -1":                               "--in-flight -1: it must be 1 to 256",
		"--in-flight 257 --mode both-ways":             "--in-flight 257: it must be 1 to 256",
		"--rounds 0":                                   "--rounds 0: it must be 1 to 10000",
		"--rounds -1":                                  "--rounds -1: it must be 1 to 10000",
		"--warmup -1":                                  "--warmup -1: it must be 0 to 1000000",
		"--connections 0":                              "--connections 0: it must be 1 to 8",
		"--count 0":                                    "--count 0: it must be above 0",
		"--count 5 --duration 1s":                      "--duration and --count exclude each other",
		"--hints 0,3GiB":                               "--hints: 3 GiB is above 2 GiB, the largest message",
		"--hints 8B,8B":                                "--hints: 8B is there twice",
		"--sizes 2GiB":                                 "--sizes: a message has 8 B (number and checksum) to 64 MiB, not 2 GiB",
		"--sizes 7B":                                   "--sizes: a message has 8 B (number and checksum) to 64 MiB, not 7 B",
		"--sizes 8B,8B":                                "--sizes: 8 B is there twice",
		"--mix 2GiB=1":                                 "--mix: a message has 8 B (number and checksum) to 64 MiB, not 2 GiB",
	} {
		b, cmd := &benchFlags{}, &cobra.Command{}
		b.registerCommon(cmd)
		b.register(cmd)
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.options(cmd.Flags()); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if bench.MaxClients != 8 {
		t.Errorf("--connections is bounded by %d", bench.MaxClients)
	}
}

// TestFlagsThatAreNoNumbers: every flag says what it takes in words of its own.
func TestFlagsThatAreNoNumbers(t *testing.T) {
	looked := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			for _, value := range []string{"-1", "x", "99999999999999999999", "1.5.2"} {
				arg := "--" + f.Name + "=" + value
				err := c.ParseFlags([]string{arg})
				if err == nil {
					continue
				}
				looked++
				if said := c.FlagErrorFunc()(c, err).Error(); !strings.Contains(said, "--"+f.Name) || strings.Contains(said, "strconv") {
					t.Errorf("%s %s: %s", c.CommandPath(), arg, said)
				}
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	if looked < 50 {
		t.Errorf("%d flags were refused", looked)
	}
	serve, _, err := newRoot().Find([]string{"bench", "serve"})
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.FlagErrorFunc()(serve, serve.ParseFlags([]string{"--port", "-1"})); err == nil || err.Error() != `--port "-1": it must be a whole number from 0 to 65535` {
		t.Error(err)
	}
}
