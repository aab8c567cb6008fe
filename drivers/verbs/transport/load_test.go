package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// modes are the ways of the soft provider that a real NIC may have.
var modes = []struct {
	name     string
	provider soft.Provider
}{
	{"plain", soft.Provider{}},
	{"shuffled", soft.Provider{Shuffle: true}},
	{"moderated", soft.Provider{Moderation: true}},
	{"ignoring", soft.Provider{Ignore: true}},
	{"all", soft.Provider{Shuffle: true, Moderation: true, Ignore: true}},
}

// inModes runs f in each mode; on a device that RDMATUNE_DEVICE names there is one.
func inModes(t *testing.T, f func(*testing.T, soft.Provider)) {
	t.Helper()
	if os.Getenv("RDMATUNE_DEVICE") != "" {
		f(t, soft.Provider{})
		return
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { f(t, m.provider) })
	}
}

// settle sets what the connections of tr shall have, without opening a switch.
func settle(t *testing.T, tr *Transport, gen uint64, s control.Settings) {
	t.Helper()
	s.DrainTimeoutMS = &slow
	if _, err := tr.Order(t.Context(), control.Order{ID: "t", Generation: gen, Workload: "w", Settings: &s}); err != nil {
		t.Fatal(err)
	}
}

// hinted are settings with a hint and a dual lane, ordered or not.
func hinted(size int64, dual, ordered bool) control.Settings {
	s := control.Settings{Size: &size}
	if dual {
		lanes := control.LanesDual
		s.Lanes, s.Ordered = &lanes, &ordered
	}
	return s
}

// A load is messages that tell what they are.
type load struct {
	seed  uint64
	sizes []int
}

// newLoad returns n messages of up to most bytes, half of them small.
func newLoad(seed uint64, n, most int) load {
	rng := rand.New(rand.NewPCG(seed, 7))
	l := load{seed: seed, sizes: make([]int, n)}
	for i := range l.sizes {
		l.sizes[i] = 16 + rng.IntN(most-15)
		if rng.IntN(2) == 0 {
			l.sizes[i] = 16 + rng.IntN(1000)
		}
	}
	return l
}

// pattern is what messages are cut from.
var pattern = func() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// fill makes buf message i.
func (l load) fill(buf []byte, i int) []byte {
	msg := buf[:l.sizes[i]]
	copy(msg, pattern[i%256:])
	binary.BigEndian.PutUint64(msg, uint64(i))
	binary.BigEndian.PutUint64(msg[8:], l.seed)
	return msg
}

// index checks that msg is one of l, whole, and returns which.
func (l load) index(msg []byte) (int, error) {
	if len(msg) < 16 || binary.BigEndian.Uint64(msg[8:]) != l.seed {
		return 0, fmt.Errorf("message of %d bytes is of no load", len(msg))
	}
	i := int(binary.BigEndian.Uint64(msg))
	if i < 0 || i >= len(l.sizes) || l.sizes[i] != len(msg) {
		return 0, fmt.Errorf("message %d of %d bytes", i, len(msg))
	}
	if !bytes.Equal(msg[16:], pattern[i%256+16:i%256+len(msg)]) {
		return 0, fmt.Errorf("message %d of %d bytes is damaged", i, len(msg))
	}
	return i, nil
}

func (l load) most() int {
	most := 0
	for _, n := range l.sizes {
		most = max(most, n)
	}
	return most
}

// send sends all messages in order.
func (l load) send(ctx context.Context, c *Conn) error {
	buf := make([]byte, l.most())
	for i := range l.sizes {
		if err := c.Send(ctx, l.fill(buf, i)); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
	}
	return nil
}

// recv receives all messages, each once. order returns which order a message is in;
// nil is one for all, and -1 none.
func (l load) recv(ctx context.Context, c *Conn, order func(size int) int) error {
	buf := make([]byte, l.most())
	seen := make([]bool, len(l.sizes))
	last := map[int]int{}
	for range l.sizes {
		n, err := c.Recv(ctx, buf)
		if err != nil {
			return err
		}
		i, err := l.index(buf[:n])
		if err != nil {
			return err
		}
		if seen[i] {
			return fmt.Errorf("message %d came twice", i)
		}
		seen[i] = true
		class := 0
		if order != nil {
			class = order(n)
		}
		if class >= 0 && i < last[class] {
			return fmt.Errorf("message %d of %d bytes after %d", i, n, last[class])
		}
		last[class] = i
	}
	return nil
}

func anyOrder(int) int { return -1 }
