package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A duel is one run of one contestant: a server's and a client's command line, and
// how to read what the client prints. A client may do without a server.
type duel struct {
	server, client []string
	env            []string
	parse          func(out []byte) (map[string]float64, error)
}

// A contestant makes its runs of a measurement, or none. Their metrics together are
// one run.
type contestant struct {
	name  string
	duels func(o options, m measurement) []duel
}

// A measurement is what is compared.
type measurement struct {
	name   string
	size   int
	stream bool
	write  bool // RDMA write instead of send; a stream only
	alone  bool // the binding's own costs: nothing is sent
	quiet  bool // needs this program on a quiet runtime
	count  int
	// settings of the transport that are compared with each other; none: it is compared
	// with the other contestants.
	settings []contestant
}

// measurements are all that there are, with counts for a machine that moves some
// tens of MiB a second.
func measurements() []measurement {
	all := []measurement{{name: "costs of the binding", alone: true}}
	for _, s := range []struct {
		size, count int
	}{{8, 3000}, {1 << 10, 2000}, {16 << 10, 1000}} {
		all = append(all, measurement{name: "latency " + sizeName(s.size), size: s.size, count: s.count})
	}
	for _, s := range []struct {
		size, count int
	}{{64 << 10, 400}, {2 << 20, 16}} {
		all = append(all,
			measurement{name: "send bandwidth " + sizeName(s.size), size: s.size, stream: true, count: s.count},
			measurement{name: "write bandwidth " + sizeName(s.size), size: s.size, stream: true, write: true, count: s.count})
	}
	return append(all, comparisons()...)
}

// sizeName is a size as people write it.
func sizeName(n int) string {
	for _, u := range []struct {
		size int
		name string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// measureAll runs all contestants of each measurement in turns. The order turns round
// from round to round, so that nobody always comes after the same one. After each
// round keep gets what there is: an interrupt loses only what is under way.
func measureAll(ctx context.Context, o options, keep func(Results) error) (Results, error) {
	if o.addr == "" {
		return Results{}, errors.New("-addr, the address of the server's device, is needed")
	}
	if o.peerDevice == "" {
		o.peerDevice = o.device
	}
	if o.gid < 0 {
		o.gid = findGID(o.device, o.addr, o.server == "")
	}
	if o.peerGID < 0 {
		o.peerGID = findGID(o.peerDevice, o.addr, true)
	}
	who, err := chosen(o.who)
	if err != nil {
		return Results{}, err
	}
	r := Results{Machine: machine(o), Load: load1()}
	for _, m := range measurements() {
		if !strings.Contains(m.name, o.only) || m.quiet && o.quiet == "" {
			continue
		}
		who := m.contestants(who)
		m.name = o.label + m.name
		for round := range o.runs {
			if err := r.round(ctx, o, m, who, round); err != nil {
				return r, err
			}
			fmt.Fprintf(os.Stderr, "bench: %s: round %d of %d\n", m.name, round+1, o.runs)
			if err := keep(r); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// round adds one run of each contestant: all of them, or none where one fails.
func (r *Results) round(ctx context.Context, o options, m measurement, who []contestant, n int) error {
	type one struct {
		name string
		got  map[string]float64
	}
	var all []one
	for i := range who {
		c := who[(n+i)%len(who)]
		for _, d := range c.duels(o, m) {
			got, err := d.run(ctx, o)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", m.name, c.name, err)
			}
			all = append(all, one{c.name, got})
		}
	}
	for _, a := range all {
		for metric, v := range a.got {
			r.record(m.name, a.name, metric, v)
		}
	}
	return nil
}

// chosen are the contestants that names has, all when it is empty.
func chosen(names string) ([]contestant, error) {
	if names == "" {
		return contestants, nil
	}
	var out []contestant
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no contestant %q", name)
		}
		out = append(out, contestants[i])
	}
	return out, nil
}

// patience bounds a run.
const patience = 2 * time.Minute

// run starts the server, then the client until it finds the server ready.
func (d duel) run(ctx context.Context, o options) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(d.server) == 0 {
		out, err := command(ctx, pinned(o.cpus, d.client), d.env).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", d.client[0], err, tail(out))
		}
		return d.parse(out)
	}
	var serverOut bytes.Buffer
	server := command(ctx, append(strings.Fields(o.server), pinned(o.serverCPUs, d.server)...), d.env)
	server.Stdout, server.Stderr = &serverOut, &serverOut
	if err := server.Start(); err != nil {
		return nil, err
	}
	gone := make(chan error, 1)
	go func() { gone <- server.Wait() }()
	stop := func() {
		server.Process.Signal(unix.SIGTERM)
		<-gone
	}
	for {
		var out bytes.Buffer
		client := command(ctx, pinned(o.cpus, d.client), d.env)
		client.Stdout, client.Stderr = &out, &out
		err := client.Run()
		if err == nil {
			select {
			case err = <-gone:
			case <-ctx.Done():
				stop()
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %s", d.server[0], err, tail(serverOut.Bytes()))
			}
			return d.parse(out.Bytes())
		}
		select {
		case serr := <-gone:
			return nil, fmt.Errorf("%s: %w: %s; server: %v: %s", d.client[0], err, tail(out.Bytes()), serr, tail(serverOut.Bytes()))
		case <-ctx.Done():
			stop()
			return nil, fmt.Errorf("%s: %w: %s", d.client[0], err, tail(out.Bytes()))
		case <-time.After(50 * time.Millisecond): // the server may not listen yet
		}
	}
}

func command(ctx context.Context, args, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	return cmd
}

// pinned runs args on the CPUs of list.
func pinned(list string, args []string) []string {
	if list == "" {
		return args
	}
	return append([]string{"taskset", "-c", list}, args...)
}

func tail(b []byte) string {
	return strings.TrimSpace(string(b[max(0, len(b)-600):]))
}

// findGID returns the index of the RoCE v2 entry for addr in the device's table, or,
// when addr is the other side's, of its first IPv4 entry; 0 when there is none.
func findGID(device, addr string, own bool) int {
	dir := filepath.Join("/sys/class/infiniband", device, "ports/1")
	for i := range 256 {
		gid, err := os.ReadFile(filepath.Join(dir, "gids", strconv.Itoa(i)))
		if err != nil {
			break
		}
		kind, _ := os.ReadFile(filepath.Join(dir, "gid_attrs/types", strconv.Itoa(i)))
		if !strings.HasPrefix(string(gid), "0000:0000:0000:0000:0000:ffff:") || strings.TrimSpace(string(kind)) != "RoCE v2" {
			continue
		}
		if !own || mapped(addr) == strings.TrimSpace(string(gid)) {
			return i
		}
	}
	return 0
}

// mapped is an IPv4 address as sysfs writes its GID.
func mapped(addr string) string {
	var a, b, c, d byte
	if n, _ := fmt.Sscanf(addr, "%d.%d.%d.%d", &a, &b, &c, &d); n != 4 {
		return ""
	}
	return fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a, b, c, d)
}

// microseconds reads a number of us as ns.
func microseconds(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%q is no time", s)
	}
	return v * 1000, nil
}
