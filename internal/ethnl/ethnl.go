// Package ethnl reads and sets the interrupt coalescing of a network device by
// ethtool's netlink interface (kernel 5.7 and later;
// Documentation/networking/ethtool-netlink.rst). Only the fields that are given are
// set, and the kernel's own words for a refusal are kept.
package ethnl

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrNotSupported says that the kernel or the device's driver has no such thing.
var ErrNotSupported = errors.New("not supported")

// Coalesce holds the coalescing parameters that rdmatune knows. A nil field is one
// that the driver does not offer, or that is to be left alone.
type Coalesce struct {
	AdaptiveRX, AdaptiveTX *bool
	RXUsecs, TXUsecs       *uint32
	RXFrames, TXFrames     *uint32
}

// An exchange sends one request to a netlink family and returns the payloads of
// the answers.
type exchange func(family uint16, flags int, payload []byte) ([][]byte, error)

// Conn is a connection to the kernel's ethtool family, in the network namespace of
// the thread that dialled. It serves one request at a time.
type Conn struct {
	do     exchange
	family uint16
	close  func()
}

// Dial connects. A kernel without ethtool netlink is ErrNotSupported.
func Dial() (*Conn, error) {
	s, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("generic netlink: %w", err)
	}
	timeout := unix.Timeval{Sec: 10}
	if err := errors.Join(s.SetSendTimeout(&timeout), s.SetReceiveTimeout(&timeout)); err != nil {
		s.Close()
		return nil, fmt.Errorf("generic netlink: %w", err)
	}
	// The kernel's text is a help, not a need: before 4.12 there is none.
	_ = s.SetExtAck(true)
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: s}}
	c := &Conn{close: s.Close, do: func(family uint16, flags int, payload []byte) ([][]byte, error) {
		req := nl.NewNetlinkRequest(int(family), flags)
		req.Sockets = sockets
		req.AddRawData(payload)
		return req.Execute(unix.NETLINK_GENERIC, 0)
	}}
	if err := c.findFamily(); err != nil {
		s.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() { c.close() }

// findFamily asks for the number that the kernel gave the ethtool family.
func (c *Conn) findFamily() error {
	attrs, err := c.describeFamily()
	if err != nil {
		return err
	}
	c.family = native.Uint16(attrs[nl.GENL_CTRL_ATTR_FAMILY_ID])
	return nil
}

// describeFamily returns what the kernel says of the ethtool family: its number, of
// at least 2 bytes, and the rest.
func (c *Conn) describeFamily() (map[uint16][]byte, error) {
	payload := message(nl.GENL_CTRL_CMD_GETFAMILY, nl.GENL_CTRL_VERSION)
	payload = appendAttr(payload, nl.GENL_CTRL_ATTR_FAMILY_NAME, append([]byte(unix.ETHTOOL_GENL_NAME), 0))
	answers, err := c.do(nl.GENL_ID_CTRL, 0, payload)
	if err != nil {
		return nil, fmt.Errorf("ethtool netlink family: %w", notSupported(err, unix.ENOENT))
	}
	for _, a := range answers {
		attrs, err := answer(a)
		if err != nil {
			return nil, fmt.Errorf("ethtool netlink family: %w", err)
		}
		if len(attrs[nl.GENL_CTRL_ATTR_FAMILY_ID]) >= 2 {
			return attrs, nil
		}
	}
	return nil, fmt.Errorf("ethtool netlink family: %w", ErrNotSupported)
}

// notSupported adds ErrNotSupported to err when it is one of the errnos by which
// the kernel says so.
func notSupported(err error, also ...error) error {
	for _, e := range append(also, unix.EOPNOTSUPP) {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrNotSupported, err)
		}
	}
	return err
}

// Get returns the coalescing of netdev; fields that its driver does not offer are
// nil. A driver without any is ErrNotSupported.
func (c *Conn) Get(netdev string) (Coalesce, error) {
	payload, err := request(unix.ETHTOOL_MSG_COALESCE_GET, netdev)
	if err != nil {
		return Coalesce{}, err
	}
	answers, err := c.do(c.family, 0, payload)
	if err != nil {
		return Coalesce{}, fmt.Errorf("%s: get coalescing: %w", netdev, notSupported(err))
	}
	if len(answers) != 1 {
		return Coalesce{}, fmt.Errorf("%s: get coalescing: %d answers", netdev, len(answers))
	}
	got, err := parseCoalesce(answers[0])
	if err != nil {
		return Coalesce{}, fmt.Errorf("%s: get coalescing: %w", netdev, err)
	}
	return got, nil
}

// Set sets the fields of want that are not nil, all or none of them. The kernel
// refuses the whole request when the driver does not offer one.
func (c *Conn) Set(netdev string, want Coalesce) error {
	payload, err := request(unix.ETHTOOL_MSG_COALESCE_SET, netdev)
	if err != nil {
		return err
	}
	payload = appendCoalesce(payload, want)
	if _, err := c.do(c.family, unix.NLM_F_ACK, payload); err != nil {
		return fmt.Errorf("%s: set coalescing: %w", netdev, notSupported(err))
	}
	return nil
}

// request starts a request about netdev.
func request(command uint8, netdev string) ([]byte, error) {
	if netdev == "" || len(netdev) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("%.40q is not the name of a network device", netdev)
	}
	header := appendAttr(nil, unix.ETHTOOL_A_HEADER_DEV_NAME, append([]byte(netdev), 0))
	return appendAttr(message(command, ethtoolVersion), unix.ETHTOOL_A_COALESCE_HEADER|unix.NLA_F_NESTED, header), nil
}

// ethtoolVersion is ETHTOOL_GENL_VERSION of the kernel's ethtool_netlink.h.
const ethtoolVersion = 1
