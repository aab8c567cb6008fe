package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// Options say how Open sets a transport up.
type Options struct {
	// Device is the RDMA device ("mlx5_0", "rxe0", "soft0").
	Device string
	// Soft serves any device name with the soft provider: the device belongs to a
	// simulated node.
	Soft bool
	// Workload names the workload that this process belongs to; "" takes
	// RDMATUNE_WORKLOAD, which may be unset.
	Workload string
	// RunDir is rdmatune's run directory (/run/rdmatune); "" serves no control
	// socket and reads no published hint.
	RunDir string
	// Hint is what the program itself says of its message sizes, in bytes. Nil: nothing.
	Hint *int64
	// Logger gets one line at start and one per switch; nil discards.
	Logger *slog.Logger
	// GIDIndex picks the GID table entry; nil picks the one of the control
	// channel's local address, else the first that carries an IPv4 address.
	GIDIndex *int
}

// ConnInfo, EffectiveHint and Switch are as the control socket shows them.
type (
	ConnInfo      = control.Conn
	EffectiveHint = control.EffectiveHint
	Switch        = control.Switch
)

// A Transport is one process's use of one device.
type Transport struct{}

// A Listener accepts connections.
type Listener struct{}

// A Conn is a connection between two processes: messages, in order, exactly once
// while it lives.
type Conn struct{}

var errNotYet = errors.New("transport: not yet")

// Open opens the device, settles the effective hint and serves the control socket.
func Open(ctx context.Context, o Options) (*Transport, error) { return nil, errNotYet }

// Listen announces on addrs ("host:port", TCP, for the hello). A port of 0 in the
// first picks one that the others share.
func (t *Transport) Listen(ctx context.Context, addrs ...string) (*Listener, error) {
	return nil, errNotYet
}

// Dial connects to a Listener's address.
func (t *Transport) Dial(ctx context.Context, addr string) (*Conn, error) { return nil, errNotYet }

// Connections describes the live connections by ascending id.
func (t *Transport) Connections() []ConnInfo { return nil }

// Hint returns the hint that new connections follow.
func (t *Transport) Hint() EffectiveHint { return EffectiveHint{} }

// Addresses returns the hosts that Listen is usually given: the device's IPv4
// addresses and 127.0.0.1.
func (t *Transport) Addresses() []string { return nil }

// Close closes all connections and the control socket.
func (t *Transport) Close() error { return nil }

// Accept returns the next connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) { return nil, errNotYet }

// Addr returns the first address listened on.
func (l *Listener) Addr() net.Addr { return nil }

// Close stops listening; accepted connections stay.
func (l *Listener) Close() error { return nil }

// Send sends msg, blocking while the peer has no room; msg may be reused on return.
func (c *Conn) Send(ctx context.Context, msg []byte) error { return errNotYet }

// Recv receives the next message into buf and returns its size.
func (c *Conn) Recv(ctx context.Context, buf []byte) (int, error) { return 0, errNotYet }

// Close delivers or reports every message that was sent.
func (c *Conn) Close() error { return nil }

// Info describes the connection.
func (c *Conn) Info() ConnInfo { return ConnInfo{} }
