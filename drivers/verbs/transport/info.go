package transport

import (
	"slices"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// Info describes the connection.
func (c *Conn) Info() ConnInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.cur
	f := s.follows
	first := s.lanes[0]
	i := ConnInfo{
		ID: c.id, Peer: c.peer, Dialed: c.dialed, Epoch: s.epoch, Generation: c.generation,
		Profile: first.prof.name, Completion: string(first.prof.completion), Hint: f.hint, Origin: f.origin,
		Eager: int64(first.eagerMax()), Inline: int64(max(first.inlineMax(), 0)),
		Ordered: !s.layout.unordered, Fixed: c.fixed != nil, Dual: s.layout.lanes > 1, Bands: s.bands(), Degraded: s.degraded(),
		Lanes: []control.Lane{}, Sent: c.sentTraffic.describe(), Received: c.recvTraffic.describe(),
		Switches: append([]Switch{}, c.switches...),
	}
	if c.err != nil {
		i.Err = c.err.Error()
	}
	for _, s := range append(slices.Clone(c.retired), c.cur) {
		for _, l := range s.lanes {
			if !l.freed {
				i.Registered += int64(len(l.mem))
			}
			if !l.closed {
				i.Lanes = append(i.Lanes, l.describe(s.epoch))
			}
		}
	}
	for k := range c.out {
		i.Registered += int64(c.out[k].mem.len)
	}
	for k := range c.in {
		if in := &c.in[k]; in.state == inAnswered {
			i.Registered += int64(in.size)
		}
	}
	return i
}

// FullEvents returns how often a Send of this connection found no slot or credit and
// had to wait, whatever lanes it had. It allocates nothing.
func (c *Conn) FullEvents() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

// describe returns l as the control socket shows it. Caller holds conn.mu.
func (l *lane) describe(epoch uint32) control.Lane {
	granted := l.qp.Cap()
	return control.Lane{
		Epoch: epoch, QPN: l.qp.Num(), PeerQPN: l.peerQPN, Index: l.index,
		Profile: l.prof.name, Completion: string(l.prof.completion),
		SendWR: granted.SendWR, RecvWR: granted.RecvWR, MaxInline: granted.Inline, Moderated: l.cq.moderated, Vector: completionVector,
		Segment: l.segment(), Credits: int(int32(l.limit - l.sentData)), Messages: l.sentData, Depth: l.outstanding(),
		HighWater: l.highWater, FullEvents: l.full, Registered: int64(len(l.mem)),
	}
}

// bands says how each size of message goes. Caller holds Conn.mu.
func (s *laneSet) bands() []control.Band {
	ends := []int{MaxMessage}
	for _, l := range s.lanes[:s.layout.lanes] {
		ends = append(ends, l.inlineMax(), l.eagerMax())
	}
	if s.layout.lanes > 1 {
		ends = append(ends, int(min(s.layout.small, MaxMessage)))
	}
	slices.Sort(ends)
	out := []control.Band{}
	from := 0
	for _, to := range ends {
		if to < from {
			continue
		}
		i := s.layout.lane(to)
		b := control.Band{From: int64(from), To: int64(to), Tier: s.lanes[i].tier(to).String(), Lane: i}
		from = to + 1
		if n := len(out); n > 0 && out[n-1].Tier == b.Tier && out[n-1].Lane == b.Lane {
			out[n-1].To = b.To
			continue
		}
		out = append(out, b)
	}
	return out
}
