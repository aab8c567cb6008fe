package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// twoHosts makes one kernel behave like two hosts on a wire. Both cards are in one
// namespace (rxe of this kernel carries no traffic in another), so left alone the
// kernel would deliver locally what one card sends to the other. Policy rules take
// the local table out of the way for that pair of addresses: it answers only for
// what came in by a card, and last of all for the rest.
func twoHosts() error {
	a, err := findCard(proto.MACs[0])
	if err != nil {
		return err
	}
	b, err := findCard(proto.MACs[1])
	if err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0); err != nil {
		return err
	}
	for _, card := range []string{a, b} {
		for knob, value := range map[string]string{"accept_local": "1", "rp_filter": "0", "arp_ignore": "1"} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", card, knob), []byte(value), 0); err != nil {
				return err
			}
		}
	}
	if err := tool("ip link set lo up", "ip link set "+a+" up", "ip link set "+b+" up"); err != nil {
		return err
	}
	for _, card := range []string{a, b} {
		if err := wait("carrier on "+card, func() bool { return fileIs("/sys/class/net/"+card+"/carrier", "1") }); err != nil {
			return err
		}
	}
	ipA, ipB := proto.Addresses[0], proto.Addresses[1]
	err = tool(
		"ip addr add "+ipA+"/32 dev "+a,
		"ip addr add "+ipB+"/32 dev "+b,
		"ip neigh add "+ipB+" lladdr "+proto.MACs[1]+" dev "+a+" nud permanent",
		"ip neigh add "+ipA+" lladdr "+proto.MACs[0]+" dev "+b+" nud permanent",
		"ip route add "+ipB+" dev "+a+" src "+ipA+" table 101",
		"ip route add "+ipA+" dev "+b+" src "+ipB+" table 102",
		"ip rule add pref 1 iif "+a+" lookup local",
		"ip rule add pref 2 iif "+b+" lookup local",
		"ip rule add pref 11 from "+ipA+" to "+ipB+" lookup 101",
		"ip rule add pref 12 from "+ipB+" to "+ipA+" lookup 102",
		"ip rule add pref 20 lookup local",
		"ip rule del pref 0",
		"rdma link add rxe0 type rxe netdev "+a,
		"rdma link add rxe1 type rxe netdev "+b,
	)
	if err != nil {
		return err
	}
	for _, dev := range []string{"rxe0", "rxe1"} {
		state := "/sys/class/infiniband/" + dev + "/ports/1/state"
		if err := wait("active port on "+dev, func() bool { return fileIs(state, "4: ACTIVE") }); err != nil {
			return err
		}
	}
	return nil
}

// findCard returns the netdev with the hardware address, which unlike the netdev's
// name does not depend on the order in which the kernel finds the cards.
func findCard(mac string) (string, error) {
	var name string
	err := wait("network card "+mac, func() bool {
		ifs, err := net.Interfaces()
		if err != nil {
			return false
		}
		for _, i := range ifs {
			if i.HardwareAddr.String() == mac {
				name = i.Name
			}
		}
		return name != ""
	})
	return name, err
}

// tool runs each command, which holds no quoting, and stops at the first failure.
func tool(commands ...string) error {
	for _, c := range commands {
		args := strings.Fields(c)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func fileIs(path, want string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(b)) == want
}
