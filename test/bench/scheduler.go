package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// byScheduler shows what Go's scheduler has to do with a result: the binding and the
// transport as they are, and the same program on a quiet runtime. Of a stream, the
// transport once with as many goroutines that send as there are messages under way, and
// once with a single one, which is how perftest sends.
var byScheduler = []contestant{
	{"perftest", perftestDuels},
	{"binding", rawDuels},
	{"binding, quiet", quiet(rawDuels)},
	{"transport", overDuels},
	{"transport, quiet", quiet(overDuels)},
	{"transport, one sender", oneSender},
	{"one sender, quiet", quiet(oneSender)},
}

// scheduling are the measurements that compare them.
var scheduling = []measurement{
	{name: "scheduler 8 B", size: 8, count: 5000, settings: byScheduler, quiet: true},
	{name: "scheduler 16 KiB", size: 16 << 10, count: 1000, settings: byScheduler, quiet: true},
	{name: "scheduler 64 KiB", size: 64 << 10, stream: true, count: 400, settings: byScheduler, quiet: true},
	{name: "scheduler 2 MiB", size: 2 << 20, stream: true, count: 16, settings: byScheduler, quiet: true},
}

func oneSender(o options, m measurement) []duel {
	if !m.stream {
		return nil
	}
	return []duel{overDuel(o, m, "-hint", "0", "-in-flight", "1")}
}

// needsQuiet reports whether a run in the lab measures any of these. Devices in software
// need the runtime as it is: goroutines do their work.
func (o options) needsQuiet() bool {
	return !o.soft && slices.ContainsFunc(scheduling, func(m measurement) bool { return strings.Contains(m.name, o.only) })
}

// quietProgram is this program on a quiet runtime, as the host of the server finds it.
const quietProgram = "bench-quiet"

// quiet is what duels does, with both ends on a quiet runtime.
func quiet(duels func(options, measurement) []duel) func(options, measurement) []duel {
	return func(o options, m measurement) []duel {
		all := duels(o, m)
		for i := range all {
			server := o.quiet
			if o.server != "" {
				server = quietProgram
			}
			all[i].server = slices.Concat([]string{server}, all[i].server[1:])
			all[i].client = slices.Concat([]string{o.quiet}, all[i].client[1:])
		}
		return all
	}
}

// patches make Go's runtime quiet: it wakes no thread to look for goroutines that the
// others could leave to it, and has no monitor that preempts. Nobody should run a program
// on that; but where one goroutine polls and the others wait, nothing runs beside it then.
var patches = []struct{ old, new string }{
	{"\nfunc wakep() {\n\t// Be", "\nfunc wakep() {\n\treturn\n\t// Be"},
	{"\tif haveSysmon {\n\t\tsystemstack(", "\tif false {\n\t\tsystemstack("},
}

// scheduler is the file with the scheduler of the Go that builds.
func scheduler(ctx context.Context) (name string, text []byte, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", nil, fmt.Errorf("go env: %w", err)
	}
	name = filepath.Join(string(bytes.TrimSpace(root)), "src/runtime/proc.go")
	text, err = os.ReadFile(name)
	return name, text, err
}

// buildQuiet builds this program on a quiet runtime: file.
func buildQuiet(ctx context.Context, file string) (err error) {
	source, proc, err := scheduler(ctx)
	if err != nil {
		return err
	}
	if proc, err = patched(proc); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	tmp, err := os.MkdirTemp("", "rdmatune-quiet-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	replacement, overlay := filepath.Join(tmp, "proc.go"), filepath.Join(tmp, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {source: replacement}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(replacement, proc, 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return err
	}
	return goBuild(ctx, file, "-overlay", overlay)
}

// patched is the runtime's proc.go with the patches. A runtime that they do not fit is an
// error: what would be measured is not what the result says.
func patched(proc []byte) ([]byte, error) {
	for _, p := range patches {
		if n := bytes.Count(proc, []byte(p.old)); n != 1 {
			return nil, fmt.Errorf("%q is there %d times, want once: this runtime cannot be made quiet", p.old, n)
		}
		proc = bytes.Replace(proc, []byte(p.old), []byte(p.new), 1)
	}
	return proc, nil
}

// goBuild builds this program into file.
func goBuild(ctx context.Context, file string, flags ...string) error {
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", file}, flags, []string{"github.com/rdmatune/rdmatune/test/bench"})
	build := exec.CommandContext(ctx, "go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, tail(out))
	}
	return nil
}
