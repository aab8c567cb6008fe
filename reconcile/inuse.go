package reconcile

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// inUse says why the link of a netdev must stay up, "" when nothing is known that needs
// it: the default route is through it, or through what it is a port of, or somebody is
// logged in over it.
func inUse(netdev string) (string, error) {
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		return "", fmt.Errorf("%s: %w", netdev, err)
	}
	indices := []int{link.Attrs().Index}
	if m := link.Attrs().MasterIndex; m > 0 {
		indices = append(indices, m)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return "", fmt.Errorf("routes: %w", err)
	}
	for _, r := range routes {
		if (r.Dst == nil || r.Dst.IP.IsUnspecified()) && through(r, indices) {
			return fmt.Sprintf("the default route is through %s", netdev), nil
		}
	}
	sessions, err := loggedIn()
	if err != nil {
		return "", err
	}
	for _, i := range indices {
		name, err := net.InterfaceByIndex(i)
		if err != nil {
			continue // it went away meanwhile
		}
		addrs, err := name.Addrs()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name.Name, err)
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && slices.Contains(sessions, p.Addr().Unmap()) {
				return fmt.Sprintf("somebody is logged in over %s (%s)", netdev, p.Addr()), nil
			}
		}
	}
	return "", nil
}

// through reports whether a route leaves by one of the links.
func through(r netlink.Route, indices []int) bool {
	if slices.Contains(indices, r.LinkIndex) {
		return true
	}
	return slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return slices.Contains(indices, n.LinkIndex) })
}

// loginPort is where sshd listens (RFC 4251); established is a state of a TCP socket
// (include/net/tcp_states.h).
const (
	loginPort   = 22
	established = 1
)

// loggedIn returns this machine's ends of established logins.
func loggedIn() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			continue // no such protocol
		}
		if err != nil {
			return nil, err
		}
		s := bufio.NewScanner(f)
		for s.Scan() {
			if a, ok := login(s.Text()); ok {
				out = append(out, a)
			}
		}
		if err := errors.Join(s.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// login reads a line of /proc/net/tcp or tcp6 (Documentation/networking/proc_net_tcp.rst):
// addresses are 32-bit words in the machine's byte order, little-endian on all that
// rdmatune is built for.
func login(line string) (netip.Addr, bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return netip.Addr{}, false
	}
	local, port, ok := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(port, 16, 16)
	state, stateErr := strconv.ParseUint(fields[3], 16, 8)
	b, hexErr := hex.DecodeString(local)
	if !ok || err != nil || stateErr != nil || hexErr != nil || n != loginPort || state != established || len(b)%4 != 0 {
		return netip.Addr{}, false
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(b)
	return a.Unmap(), ok
}
