package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/bench"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/measure"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
)

// A meter measures for guards, on connections of its own or on the live ones.
type meter struct {
	s     *session
	facts *node.Facts
	// before has, by guard, what live connections had done before the apply.
	before map[string]bins
}

// bins counts completions by the lower end of their time, in nanoseconds.
type bins map[int64]uint64

// since returns what b has more than an earlier count, as a histogram. A bin is a
// quarter of a power of two wide; its upper end is the careful guess.
func (b bins) since(earlier bins) *measure.Histogram {
	h := measure.New()
	for from, count := range b {
		h.RecordN(time.Duration(float64(from)*math.Exp2(0.25)), int64(count-min(earlier[from], count)))
	}
	return h
}

// remember looks at the live connections of guards before anything is changed.
func (m *meter) remember(ctx context.Context, guards []plan.Guard) {
	m.before = map[string]bins{}
	for _, g := range guards {
		if g.Kind != "completion" {
			continue
		}
		if b, _, err := m.completions(ctx, g); err == nil {
			m.before[g.Address()] = b
		}
	}
}

// Bounds of a guard's measurement.
const (
	guardStall = 10 * time.Second // for one answer of the peer
	guardTime  = 5 * time.Minute  // for all of it
	liveTime   = 30 * time.Second // for enough messages on live connections
	livePause  = 100 * time.Millisecond
)

func (m *meter) measure(ctx context.Context, g plan.Guard) (apply.Measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, guardTime)
	defer cancel()
	if g.Kind == "completion" {
		return m.live(ctx, g)
	}
	if g.Peer == "" {
		return apply.Measurement{}, errors.New(`no peer is given to measure against (peer = "host:7471", where rdmatune bench serve answers)`)
	}
	settings, _, err := control.ReadPublished(m.s.node.RunDir(), g.Workload)
	if err != nil {
		return apply.Measurement{}, err
	}
	if settings == nil {
		settings = &control.Settings{} // the workload has no hint
	}
	o := bench.Options{Sizes: []int64{g.Size}, Count: g.Count, Workload: g.Workload, Device: g.Device, Stall: guardStall}
	if g.Kind == "stream" {
		o.Mode = bench.Streams
	}
	r, err := m.against(ctx, g.Device, g.Peer, []arm{{name: "guard " + g.Name, settings: *settings}}, o)
	if err != nil {
		return apply.Measurement{}, err
	}
	return measurement(r)
}

// An arm is a set-up to be measured.
type arm struct {
	name     string
	settings control.Settings
}

// against measures arms side by side against a bench serve, each on a connection of
// its own.
func (m *meter) against(ctx context.Context, device, peer string, arms []arm, o bench.Options) (r bench.Report, err error) {
	t, err := transport.Open(ctx, transport.Options{Device: device, Soft: m.s.node.Kind() != node.Local, Private: true})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	o.Alloc = registered(t)
	o.Simulated = simulated(m.s.node, m.facts, device)
	var list []bench.Arm
	for _, a := range arms {
		c, err := t.DialFixed(ctx, peer, a.settings)
		if err != nil {
			return r, fmt.Errorf("%w (does rdmatune bench serve answer there?)", err)
		}
		list = append(list, connArm(a.name, []*transport.Conn{c}))
	}
	r, err = bench.Run(ctx, list, o)
	if err == nil && !r.OK() {
		err = errors.New("messages were lost, duplicated, reordered or corrupted while it was measured")
	}
	return r, err
}

// measurement is what a guard's run found.
func measurement(r bench.Report) (apply.Measurement, error) {
	s := r.Sizes[0]
	record, err := recorded(r, s)
	if err != nil {
		return apply.Measurement{}, err
	}
	return apply.Measurement{
		Latency: s.Latency, Bandwidth: s.Bandwidth(), Simulated: r.Simulated, Record: []experiment.Size{record},
		Series: []experiment.Series{{Name: r.Series[0].Name, Hint: r.Series[0].Hint, Profile: r.Series[0].Profile}},
	}, nil
}

// live waits until the workload's connections have completed enough messages of the
// tier that the guard's size takes, and returns how long those took.
func (m *meter) live(ctx context.Context, g plan.Guard) (apply.Measurement, error) {
	before, _, err := m.completions(ctx, g)
	if err != nil {
		return apply.Measurement{}, err
	}
	deadline := time.Now().Add(liveTime)
	for {
		now, tier, err := m.completions(ctx, g)
		if err != nil {
			return apply.Measurement{}, err
		}
		h := now.since(before)
		if h.N() >= int64(g.Count) {
			return m.liveRecord(g, tier, h)
		}
		if time.Now().After(deadline) {
			if g.P99Max == 0 && h.N() > 0 || h.N() >= 100 {
				return m.liveRecord(g, tier, h)
			}
			return apply.Measurement{}, fmt.Errorf("only %s on the live connections within %s", param.Count(h.N(), "timed message"), liveTime)
		}
		select {
		case <-ctx.Done():
			return apply.Measurement{}, ctx.Err()
		case <-time.After(livePause):
		}
	}
}

// liveRecord makes a record of what live connections did, and of what they had done
// before the apply.
func (m *meter) liveRecord(g plan.Guard, tier string, h *measure.Histogram) (apply.Measurement, error) {
	out := apply.Measurement{Latency: h, Simulated: simulated(m.s.node, m.facts, g.Device)}
	add := func(name string, h *measure.Histogram) error {
		encoded, err := h.Encode()
		if err != nil || h.N() == 0 {
			return err
		}
		sum := h.Summary()
		out.Series = append(out.Series, experiment.Series{Name: name})
		out.Record = append(out.Record, experiment.Size{
			Series: name, Kind: experiment.Completion, Tier: tier, Size: g.Size, N: sum.N, P50: int64(sum.P50), P99: int64(sum.P99),
			P999: int64(sum.P999), Max: int64(sum.Max), Histogram: encoded,
		})
		return nil
	}
	name := "guard " + g.Name
	return out, errors.Join(add(name+", before", m.before[g.Address()].since(nil)), add(name, h))
}

// completions adds up, by bin, the times from post to completion of the tier that
// carries the guard's size on the workload's live connections.
func (m *meter) completions(ctx context.Context, g plan.Guard) (bins, string, error) {
	list, err := control.List(ctx, m.s.node.RunDir())
	if err != nil {
		return nil, "", err
	}
	sum := bins{}
	found, name := false, ""
	for _, p := range list {
		if p.Workload != g.Workload || p.Err != "" {
			continue
		}
		for _, c := range p.Conns {
			at := slices.IndexFunc(c.Bands, func(b control.Band) bool { return b.From <= g.Size && g.Size <= b.To })
			if c.Fixed || at < 0 {
				continue
			}
			found, name = true, c.Bands[at].Tier
			for _, t := range c.Sent.Tiers {
				if t.Name == name {
					for _, b := range t.Times {
						sum[b.From] += b.Count
					}
				}
			}
		}
	}
	if !found {
		return nil, "", errors.New("the workload has no live connection to measure on")
	}
	return sum, name, nil
}
