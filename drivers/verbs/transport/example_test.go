package transport_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
)

// pair returns both ends of a connection within this process.
func pair(ctx context.Context, t *transport.Transport) (a, b *transport.Conn) {
	l, err := t.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	if a, err = t.Dial(ctx, l.Addr().String()); err != nil {
		log.Fatal(err)
	}
	if b, err = l.Accept(ctx); err != nil {
		log.Fatal(err)
	}
	return a, b
}

// One process listens, another one dials; here they are one.
func Example() {
	ctx := context.Background()
	t, err := transport.Open(ctx, transport.Options{Device: "soft0"})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	l, err := t.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		c, err := l.Accept(ctx)
		if err != nil {
			log.Fatal(err)
		}
		buf := make([]byte, 1024)
		n, err := c.Recv(ctx, buf)
		if err == nil {
			err = c.Send(ctx, append([]byte("echo: "), buf[:n]...))
		}
		if err != nil {
			log.Fatal(err)
		}
	}()
	c, err := t.Dial(ctx, l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Send(ctx, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, err := c.Recv(ctx, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(buf[:n]))
	// Output: echo: hello
}

// Large messages from and into registered memory are neither copied nor does
// anything have to be registered for them.
func ExampleTransport_Register() {
	ctx := context.Background()
	t, err := transport.Open(ctx, transport.Options{Device: "soft0"})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	a, b := pair(ctx, t)
	memory, err := t.Register(2 << 20)
	if err != nil {
		log.Fatal(err)
	}
	gradient, sum := memory.Bytes()[:1<<20], memory.Bytes()[1<<20:]
	copy(gradient, "gradient")
	sent := make(chan error)
	go func() { sent <- a.Send(ctx, gradient) }()
	n, err := b.Recv(ctx, sum)
	if err = errors.Join(err, <-sent, memory.Close()); err != nil {
		log.Fatal(err)
	}
	rendezvous := a.Info().Sent.Tiers[2]
	fmt.Println(n, "bytes,", rendezvous.Copied, "copied by", rendezvous.Name)
	// Output: 1048576 bytes, 0 copied by rendezvous
}

// A program that must not block sends as much as the peer has room for.
func ExampleConn_TrySend() {
	ctx := context.Background()
	hint := int64(4096)
	t, err := transport.Open(ctx, transport.Options{Device: "soft0", Hint: &hint})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	a, b := pair(ctx, t)
	for err == nil {
		err = a.TrySend([]byte("sample"))
	}
	fmt.Println(err, errors.Is(err, transport.ErrWouldBlock))
	buf := make([]byte, 100)
	n, err := b.Recv(ctx, buf)
	fmt.Println(string(buf[:n]), err)
	// Output:
	// send would block true
	// sample <nil>
}

// What the program says of its messages decides how its connections are set up.
func ExampleOptions_hint() {
	ctx := context.Background()
	for _, hint := range []int64{0, 16 << 10} {
		t, err := transport.Open(ctx, transport.Options{Device: "soft0", Hint: &hint})
		if err != nil {
			log.Fatal(err)
		}
		a, _ := pair(ctx, t)
		i := a.Info()
		fmt.Println(i.Profile, "copies up to", i.Eager)
		if err := t.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// general copies up to 8240
	// low_latency copies up to 16384
}
