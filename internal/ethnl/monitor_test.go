package ethnl

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// family makes the kernel's description of a family with multicast groups.
func family(id uint16, groups ...[]byte) []byte {
	return reply(
		appendAttr(nil, nl.GENL_CTRL_ATTR_FAMILY_ID, native.AppendUint16(nil, id)),
		appendAttr(nil, nl.GENL_CTRL_ATTR_MCAST_GROUPS|unix.NLA_F_NESTED, slices.Concat(groups...)))
}

// group makes one of the groups.
func group(index uint16, name string, id uint32) []byte {
	one := appendAttr(nil, nl.GENL_CTRL_ATTR_MCAST_GRP_NAME, append([]byte(name), 0))
	return appendAttr(nil, index, append(one, word(nl.GENL_CTRL_ATTR_MCAST_GRP_ID, id)...))
}

func TestMonitor(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []byte
		want   Group
		err    error
	}{
		{"alone", family(21, group(1, "monitor", 5)), Group{21, 5}, nil},
		{"second", family(21, group(1, "other", 4), group(2, "monitor", 5)), Group{21, 5}, nil},
		{"another", family(21, group(1, "monitors", 5)), Group{}, ErrNotSupported},
		{"none", family(21), Group{}, ErrNotSupported},
		{"no family", reply(), Group{}, ErrNotSupported},
		{"without an id", family(21, appendAttr(nil, 1, appendAttr(nil, nl.GENL_CTRL_ATTR_MCAST_GRP_NAME, []byte("monitor\x00")))), Group{}, ErrNotSupported},
		{"cut", family(21, []byte{9, 0}), Group{}, errTruncated},
		{"cut inside", family(21, appendAttr(nil, 1, []byte{9, 0, 1, 0})), Group{}, errTruncated},
	} {
		conn := &Conn{do: func(uint16, int, []byte) ([][]byte, error) { return [][]byte{c.answer}, nil }}
		got, err := conn.monitor()
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

// TestMonitorOfKernel asks the kernel that the test runs on; no privilege is needed.
func TestMonitorOfKernel(t *testing.T) {
	g, err := Monitor()
	if errors.Is(err, ErrNotSupported) {
		t.Logf("this kernel has none: %v", err)
		return
	}
	if err != nil || g.Family < unix.NLMSG_MIN_TYPE || g.ID == 0 {
		t.Errorf("%+v, %v", g, err)
	}
}

// notification makes one about a device of a name.
func notification(name string) []byte {
	return reply(
		appendAttr(nil, headerAttr|unix.NLA_F_NESTED, slices.Concat(
			word(unix.ETHTOOL_A_HEADER_DEV_INDEX, 2), appendAttr(nil, unix.ETHTOOL_A_HEADER_DEV_NAME, []byte(name)))),
		word(unix.ETHTOOL_A_COALESCE_RX_USECS, 50))
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"whole", notification("eth0\x00"), "eth0"},
		{"without NUL", notification("eth0"), "eth0"},
		{"empty name", notification(""), ""},
		{"long name", notification(strings.Repeat("x", unix.IFNAMSIZ)), ""},
		{"no header", reply(word(unix.ETHTOOL_A_COALESCE_RX_USECS, 50)), ""},
		{"cut", notification("eth0\x00")[:20], ""},
		{"cut inside", reply(appendAttr(nil, headerAttr, []byte{9, 0, 2, 0})), ""},
		{"nothing", nil, ""},
	} {
		got, err := Changed(c.b)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func FuzzChanged(f *testing.F) {
	f.Add(notification("eth0\x00"))
	f.Add(notification("eth0\x00")[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := Changed(b)
		if (err == nil) != (name != "") || len(name) >= unix.IFNAMSIZ || strings.Contains(name, "\x00") {
			t.Fatalf("%q: %q, %v", b, name, err)
		}
	})
}
