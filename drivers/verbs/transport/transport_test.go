package transport

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

// openSoft opens a transport on soft0, or on the device that RDMATUNE_DEVICE names,
// with what an environment could say shut out.
func openSoft(t *testing.T, o Options, p soft.Provider) *Transport {
	t.Helper()
	t.Setenv(EnvHint, "")
	t.Setenv(EnvWorkload, "")
	o.Device = cmp.Or(os.Getenv("RDMATUNE_DEVICE"), "soft0")
	tr, err := open(t.Context(), o, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil && !errors.As(err, new(*ConnError)) {
			t.Errorf("close transport: %v", err)
		}
	})
	return tr
}

// connect returns the two ends of a connection from a to b.
func connect(t *testing.T, a, b *Transport) (*Conn, *Conn) {
	t.Helper()
	l, err := b.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ca, err := a.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cb, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ca, cb
}

func bytesPtr(n int64) *int64 { return &n }

// stream sends n messages with their number in them, of sizes up to most, and
// returns how many it tried to send.
func stream(ctx context.Context, c *Conn, n int, most int, seed uint64) (int, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	msg := make([]byte, most)
	for i := range n {
		size := 8 + rng.IntN(most-7)
		binary.BigEndian.PutUint64(msg, uint64(i))
		msg[size-1] = byte(i)
		if size == 8 {
			binary.BigEndian.PutUint64(msg, uint64(i))
		}
		if err := c.Send(ctx, msg[:size]); err != nil {
			return i + 1, err
		}
	}
	return n, nil
}

// check receives what stream sent and reports the first difference.
func check(ctx context.Context, c *Conn, n int, most int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, most)
	for i := range n {
		size := 8 + rng.IntN(most-7)
		got, err := c.Recv(ctx, buf)
		if err != nil {
			return err
		}
		if got != size || binary.BigEndian.Uint64(buf)&^0xff != uint64(i)&^0xff || buf[size-1] != byte(i) {
			return errors.New("lost, duplicated, reordered or damaged")
		}
	}
	return nil
}

func TestSizes(t *testing.T) {
	for _, hint := range []*int64{nil, bytesPtr(0), bytesPtr(8192)} {
		a := openSoft(t, Options{Hint: hint}, soft.Provider{})
		b := openSoft(t, Options{}, soft.Provider{Shuffle: true})
		ca, cb := connect(t, a, b)
		sizes := []int{0, 1, 8, 200, 4096, 8192, 8193, 1 << 20}
		if hint == nil {
			sizes = append(sizes, 64<<20)
		}
		for _, size := range sizes {
			msg := make([]byte, size)
			for i := range msg {
				msg[i] = byte(i * 7)
			}
			done := make(chan error, 1)
			go func() { done <- ca.Send(t.Context(), msg) }()
			buf := make([]byte, size)
			n, err := cb.Recv(t.Context(), buf)
			if err != nil || n != size || !bytes.Equal(buf, msg) {
				t.Fatalf("size %d: got %d bytes, %v", size, n, err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if err := ca.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := cb.Recv(t.Context(), nil); err != io.EOF {
			t.Fatalf("after the peer's close: %d, %v", n, err)
		}
	}
}

func TestSwitchUnderLoad(t *testing.T) {
	a := openSoft(t, Options{}, soft.Provider{Shuffle: true})
	b := openSoft(t, Options{}, soft.Provider{})
	patient(t, b)
	ca, cb := connect(t, a, b)
	const messages, most = 20000, 20000
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	errs := make(chan error, 4)
	for i, c := range []*Conn{ca, cb} {
		go func() {
			_, err := stream(ctx, c, messages, most, uint64(1+i))
			errs <- err
		}()
	}
	go func() { errs <- check(ctx, cb, messages, most, 1) }()
	go func() { errs <- check(ctx, ca, messages, most, 2) }()
	gen := uint64(0)
	left := 4
	for left > 0 {
		select {
		case err := <-errs:
			if err != nil {
				t.Fatal(err)
			}
			left--
			continue
		default:
		}
		gen++
		size := int64(gen%2) * 16384
		res, err := a.Order(ctx, control.Order{ID: "t", Generation: gen, Workload: "w", Settings: &control.Settings{Size: &size, DrainTimeoutMS: &slow}, Open: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range res.Outcomes {
			if o.Outcome != control.Switched {
				t.Fatalf("outcome %+v\na: %+v\nb: %+v", o, ca.Info(), cb.Info())
			}
		}
	}
	t.Logf("%d switches; last %+v", gen, ca.Info().Switches[len(ca.Info().Switches)-1])
}
