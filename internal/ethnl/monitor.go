package ethnl

import (
	"bytes"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Group is where the kernel tells of changes that anyone makes with ethtool, through
// netlink or the older ioctl: the multicast group of the ethtool family, in the network
// namespace of the thread that asked.
type Group struct {
	Family uint16 // the type of its messages
	ID     uint32 // what a generic netlink socket joins
}

// Monitor asks for the group. A kernel without ethtool netlink is ErrNotSupported.
func Monitor() (Group, error) {
	c, err := Dial()
	if err != nil {
		return Group{}, err
	}
	defer c.Close()
	return c.monitor()
}

func (c *Conn) monitor() (Group, error) {
	attrs, err := c.describeFamily()
	if err != nil {
		return Group{}, err
	}
	groups, err := attributes(attrs[nl.GENL_CTRL_ATTR_MCAST_GROUPS])
	if err != nil {
		return Group{}, fmt.Errorf("ethtool netlink groups: %w", err)
	}
	for _, g := range groups {
		one, err := attributes(g)
		if err != nil {
			return Group{}, fmt.Errorf("ethtool netlink groups: %w", err)
		}
		id := one[nl.GENL_CTRL_ATTR_MCAST_GRP_ID]
		if text(one[nl.GENL_CTRL_ATTR_MCAST_GRP_NAME]) == unix.ETHTOOL_MCGRP_MONITOR_NAME && len(id) == 4 {
			return Group{native.Uint16(attrs[nl.GENL_CTRL_ATTR_FAMILY_ID]), native.Uint32(id)}, nil
		}
	}
	return Group{}, fmt.Errorf("ethtool netlink group %q: %w", unix.ETHTOOL_MCGRP_MONITOR_NAME, ErrNotSupported)
}

// headerAttr is the number of the attribute that names the device, the same in each of
// the family's messages.
const headerAttr = unix.ETHTOOL_A_COALESCE_HEADER

// Changed returns which network device a notification of the group is about: b is the
// netlink message without its header.
func Changed(b []byte) (netdev string, err error) {
	attrs, err := answer(b)
	if err != nil {
		return "", fmt.Errorf("ethtool notification: %w", err)
	}
	header, err := attributes(attrs[headerAttr])
	if err != nil {
		return "", fmt.Errorf("ethtool notification: %w", err)
	}
	netdev = text(header[unix.ETHTOOL_A_HEADER_DEV_NAME])
	if netdev == "" || len(netdev) >= unix.IFNAMSIZ {
		return "", fmt.Errorf("ethtool notification: %.40q is not the name of a network device", netdev)
	}
	return netdev, nil
}

// text is the value of a string attribute: up to its first NUL.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
