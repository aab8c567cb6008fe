package rdmanl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrUnavailable says that the kernel has no RDMA netlink: no RDMA at all, or its
// core module is not loaded.
var ErrUnavailable = errors.New("the kernel has no RDMA netlink (is ib_core loaded?)")

// errInterrupted is a dump during which what is listed changed.
var errInterrupted = errors.New("changed while it was listed")

// Commands of RDMA_NLDEV, and its number among the clients of NETLINK_RDMA.
const (
	cmdGet     = 1
	cmdPortGet = 5
	cmdQPGet   = 10
	cmdCMIDGet = 11
	cmdCQGet   = 12
	cmdMRGet   = 13
	cmdCtxGet  = 22

	client      = 5 // RDMA_NL_NLDEV
	clientShift = 10
)

// retries bounds how often an interrupted list is asked for again.
const retries = 5

// An exchange sends one request and returns the payloads of the answers; with
// errInterrupted what came of an interrupted dump.
type exchange func(command uint16, flags int, payload []byte) ([][]byte, error)

// Conn is a connection to the kernel's RDMA family, in the network namespace of the
// thread that dialled. It serves one request at a time.
type Conn struct {
	do    exchange
	close func()
}

// Dial connects. A kernel without RDMA netlink is ErrUnavailable.
func Dial() (*Conn, error) {
	s, err := nl.Subscribe(unix.NETLINK_RDMA)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("RDMA netlink: %w", err)
	}
	timeout := unix.Timeval{Sec: 10}
	if err := errors.Join(s.SetSendTimeout(&timeout), s.SetReceiveTimeout(&timeout)); err != nil {
		s.Close()
		return nil, fmt.Errorf("RDMA netlink: %w", err)
	}
	_ = s.SetExtAck(true) // the kernel's text is a help, not a need
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_RDMA: {Socket: s}}
	return &Conn{close: s.Close, do: func(command uint16, flags int, payload []byte) ([][]byte, error) {
		req := nl.NewNetlinkRequest(int(client<<clientShift|command), flags)
		req.Sockets = sockets
		req.AddRawData(payload)
		answers, err := req.Execute(unix.NETLINK_RDMA, 0)
		if errors.Is(err, nl.ErrDumpInterrupted) {
			err = errInterrupted
		}
		return answers, err
	}}, nil
}

// Close closes the connection.
func (c *Conn) Close() { c.close() }

// dump asks for a list until it comes in one piece, and for what came of the last
// attempt with errInterrupted when it never does.
func (c *Conn) dump(ctx context.Context, command uint16, payload []byte) (answers [][]byte, err error) {
	for range retries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if answers, err = c.do(command, unix.NLM_F_DUMP, payload); !errors.Is(err, errInterrupted) {
			return answers, err
		}
	}
	return answers, fmt.Errorf("incomplete: %w in each of %d attempts", err, retries)
}

// Read lists everything. What cannot be listed is a Problem and costs nothing else;
// the error is ctx's, or that the devices themselves cannot be listed.
func (c *Conn) Read(ctx context.Context) (*Table, error) {
	t := &Table{}
	answers, err := c.dump(ctx, cmdGet, nil)
	if err != nil {
		if !errors.Is(err, errInterrupted) {
			return nil, fmt.Errorf("RDMA devices: %w", err)
		}
		t.problem("", "devices", err)
	}
	for _, a := range answers {
		d, err := decodeDevice(a)
		if err != nil {
			t.problem("", "devices", err)
			continue
		}
		t.Devices = append(t.Devices, d)
	}
	slices.SortFunc(t.Devices, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	for _, d := range t.Devices {
		device := u32(attrDevIndex, d.Index)
		for port := range min(d.Ports, maxPorts) {
			answers, err := c.do(cmdPortGet, 0, append(u32(attrDevIndex, d.Index), u32(attrPortIndex, port+1)...))
			if err != nil || len(answers) != 1 {
				t.problem(d.Name, fmt.Sprintf("port %d", port+1), cmp.Or(err, errTruncated))
				continue
			}
			l, err := decodeLink(d.Name, answers[0])
			if err != nil {
				t.problem(d.Name, fmt.Sprintf("port %d", port+1), err)
				continue
			}
			t.Links = append(t.Links, l)
		}
		t.QPs = append(t.QPs, collect(ctx, c, t, d.Name, "queue pairs", cmdQPGet, device, decodeQPs, func(q QP) uint32 { return q.Number })...)
		t.CQs = append(t.CQs, collect(ctx, c, t, d.Name, "completion queues", cmdCQGet, device, decodeCQs, func(q CQ) uint32 { return q.Number })...)
		t.MRs = append(t.MRs, collect(ctx, c, t, d.Name, "memory regions", cmdMRGet, device, decodeMRs, func(m MR) uint32 { return m.Number })...)
		t.Contexts = append(t.Contexts, collect(ctx, c, t, d.Name, "contexts", cmdCtxGet, device, decodeContexts, func(x Context) uint32 { return x.Number })...)
		t.CMIDs = append(t.CMIDs, collect(ctx, c, t, d.Name, "connection ids", cmdCMIDGet, device, decodeCMIDs, func(x CMID) uint32 { return x.Number })...)
	}
	return t, ctx.Err()
}

// maxPorts bounds the ports of a device that are asked for; real ones have one or two.
const maxPorts = 16

// collect lists one kind of resource of a device, each once and by number: a list
// that changes while the kernel makes it may name one twice.
func collect[T any](ctx context.Context, c *Conn, t *Table, device, what string, command uint16, payload []byte,
	decode func(string, []byte) ([]T, error), number func(T) uint32) []T {
	answers, err := c.dump(ctx, command, payload)
	if err != nil {
		t.problem(device, what, err)
		if !errors.Is(err, errInterrupted) {
			return nil
		}
	}
	var out []T
	for _, a := range answers {
		some, err := decode(device, a)
		if err != nil {
			t.problem(device, what, err)
		}
		out = append(out, some...)
	}
	slices.SortStableFunc(out, func(a, b T) int { return cmp.Compare(number(a), number(b)) })
	return slices.CompactFunc(out, func(a, b T) bool { return number(a) == number(b) })
}

// problem notes why a list is not whole. A kernel that does not know the list
// (EOPNOTSUPP, EINVAL) and a refused one (EPERM) are told apart from others.
func (t *Table) problem(device, what string, err error) {
	reason := err.Error()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		reason = "not permitted (" + reason + "): CAP_NET_ADMIN is needed"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		reason = "this kernel does not list them (" + reason + ")"
	}
	t.Problems = append(t.Problems, Problem{Device: device, What: what, Reason: reason})
}

// u32 is an attribute with a 32-bit number.
func u32(typ uint16, v uint32) []byte {
	b := native.AppendUint16(nil, attrHeader+4)
	b = native.AppendUint16(b, typ)
	return native.AppendUint32(b, v)
}
